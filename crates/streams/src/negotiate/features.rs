//! Stream features: RFC 6120 section 4.3.2, XEP-0440 0.4.1 (channel binding types).

use sasl::{Binding, Mechanism, MechanismSet};
use xml::{Ns, Writer};

use crate::c2s::{Connection, Phase};
use crate::service::{Auth, TlsPolicy};

impl Connection {
    /// Writes what may be negotiated now.
    pub(super) fn features(&mut self, out: &mut Vec<u8>) {
        let secure = self.stream.facts().secure;
        let policy = &self.service.policy;
        let tls = !secure && self.service.tls.is_some() && policy.tls != TlsPolicy::Off;
        let required = tls && policy.tls == TlsPolicy::Required;
        let binding = self.binding();
        let offered = if required { MechanismSet::EMPTY } else { self.mechanisms(secure, &binding) };
        let Phase::Negotiating(state) = &mut self.phase else { return };
        if state.authenticated {
            let own = state.host.as_ref().map(|h| h.stream_features.clone()).unwrap_or_default();
            stanza::stream::features(out, |w| {
                w.start("bind").ns(Ns::Bind).end();
                // RFC 6121 appendix E: for clients that still ask, marked as having no effect.
                w.start("session").ns(Ns::Session).start("optional").end().end();
                w.raw(&own);
            });
            return;
        }
        state.offered = offered;
        let early = if required { None } else { state.host.as_ref().map(|h| h.early_features.clone()) };
        stanza::stream::features(out, |w| {
            if tls {
                w.start("starttls").ns(Ns::Tls);
                if required {
                    w.start("required").end();
                }
                w.end();
            }
            if !offered.is_empty() {
                mechanisms(w, offered);
                if offered.has_plus() {
                    w.start("sasl-channel-binding").ns(Ns::SaslCb);
                    for name in binding.types() {
                        w.start("channel-binding").attr("type", name).end();
                    }
                    w.end();
                }
            }
            w.raw(&early.unwrap_or_default());
        });
    }

    /// What would be offered if the stream had TLS, which it may get (section 6.5.4).
    pub(super) fn after_tls(&self) -> MechanismSet {
        let policy = &self.service.policy;
        if self.stream.facts().secure || self.service.tls.is_none() || policy.tls == TlsPolicy::Off {
            return MechanismSet::EMPTY;
        }
        let auth = self.auth();
        if auth.anonymous { auth.mechanisms.with(Mechanism::Anonymous) } else { auth.mechanisms }
    }

    /// How clients of the domain that this stream is for may log in.
    fn auth(&self) -> Auth {
        let host = match &self.phase {
            Phase::Negotiating(state) => state.host.as_ref(),
            _ => None,
        };
        self.service.policy.auth(host.map(|host| host.domain()))
    }

    /// What this stream can be bound to.
    pub(super) fn binding(&self) -> Binding {
        let found = self.stream.channel_binding();
        Binding {
            exporter: found.exporter.map(|e| e.to_vec()),
            server_end_point: found.server_end_point.map(<[u8]>::to_vec),
        }
    }

    fn mechanisms(&self, secure: bool, binding: &Binding) -> MechanismSet {
        let policy = &self.service.policy;
        let mut set = MechanismSet::EMPTY;
        let auth = self.auth();
        for mechanism in auth.mechanisms.iter() {
            let offer = match mechanism {
                Mechanism::Plain => secure || policy.plain_without_tls,
                // 6.3.4: where it can be expected to succeed.
                Mechanism::External => !self.certified_users().is_empty(),
                Mechanism::Anonymous => false,
                m if m.is_plus() => !binding.is_empty(),
                _ => true,
            };
            if offer {
                set = set.with(mechanism);
            }
        }
        if auth.anonymous { set.with(Mechanism::Anonymous) } else { set }
    }
}

fn mechanisms(w: &mut Writer<'_>, offered: MechanismSet) {
    w.start("mechanisms").ns(Ns::Sasl);
    for mechanism in offered.iter() {
        w.leaf("mechanism", mechanism.name());
    }
    w.end();
}
