//! Stream features: RFC 6120, section 4.3.2; XEP-0388 (1.0.4), section 3.1; XEP-0440 (1.0.0), channel binding types;
//! XEP-0509 (0.2.0), section 2.1, version of the whole.

use sasl::{ChannelBindingData, Mechanism, MechanismSet};
use throng_core::{Host, StreamFeatureStage};
use xml::{Ns, Writer};

use super::sasl2::IAP;
use super::{bind2, fast_tokens, sasl2, scram_upgrade};
use crate::c2s::{C2sConnection, ConnectionPhase};
use crate::context::{AuthPolicy, TlsPolicy};
use crate::stream_management;

impl C2sConnection {
    /// Writes `<stream:features/>` for the current state.
    pub(super) fn write_stream_features(&mut self, out: &mut Vec<u8>) {
        let secure = self.stream.info().secure;
        let policy = &self.context.policy;
        let tls = self.may_start_tls();
        let required = tls && policy.tls == TlsPolicy::Required;
        let binding = self.channel_binding();
        let offered = if required { MechanismSet::EMPTY } else { self.mechanisms(secure, &binding) };
        let ConnectionPhase::Negotiating(state) = &mut self.phase else { return };
        if state.stage.is_authenticated() {
            let host = state.host.as_ref();
            stanza::stream::write_features(out, |w| {
                w.start("bind").ns(Ns::Bind).end();
                // RFC 6121, appendix E: for clients that still request it, marked as having no effect.
                w.start("session").ns(Ns::Session).start("optional").end().end();
                if let Some(host) = host {
                    host.stream_features.write(w, StreamFeatureStage::Authenticated);
                }
            });
            return;
        }
        state.offered = offered;
        // XEP-0388, section 4: only after TLS, or where something else encrypts.
        let protected = secure || policy.allow_plain_without_tls;
        state.offered_sasl2 =
            if protected && state.offers(sasl2::MODULE) { offered } else { MechanismSet::EMPTY };
        let host = state.host.clone().filter(|_| !state.offered_sasl2.is_empty());
        let begin = out.len();
        let early = state.host.as_ref().filter(|_| !required);
        stanza::stream::write_features(out, |w| {
            if tls {
                w.start("starttls").ns(Ns::Tls);
                if required {
                    w.start("required").end();
                }
                w.end();
            }
            if !offered.is_empty() {
                mechanisms(w, offered);
                if let Some(host) = &host {
                    authentication(w, offered, host, &binding);
                }
                if offered.has_plus() {
                    w.start("sasl-channel-binding").ns(Ns::SaslCb);
                    for name in binding.types() {
                        w.start("channel-binding").attr("type", name).end();
                    }
                    w.end();
                }
            }
            if let Some(host) = early {
                host.stream_features.write(w, StreamFeatureStage::Unauthenticated);
            }
        });
        if host.is_some() {
            write_features_version(out, begin, &mut state.config_version);
        }
    }

    /// Whether STARTTLS is offered.
    pub(super) fn may_start_tls(&self) -> bool {
        let info = self.stream.info();
        !info.secure
            && info.transport.has_starttls()
            && self.context.tls.is_some()
            && self.context.policy.tls != TlsPolicy::Off
    }

    /// Whether TLS is required, missing, and unavailable on this stream: a client that came by plain HTTP.
    pub(super) fn requires_unavailable_tls(&self) -> bool {
        let info = self.stream.info();
        let required = self.context.tls.is_some() && self.context.policy.tls == TlsPolicy::Required;
        required && !info.secure && !info.transport.has_starttls()
    }

    /// Mechanisms that would be offered after STARTTLS, if that is available (section 6.5.4).
    pub(super) fn mechanisms_after_tls(&self) -> MechanismSet {
        if !self.may_start_tls() {
            return MechanismSet::EMPTY;
        }
        let auth = self.auth_policy();
        let host = self.negotiated_host();
        let usable = auth.mechanisms.iter().filter(|mechanism| has_secrets_for(host, *mechanism));
        let mechanisms: MechanismSet = usable.collect();
        if auth.allow_anonymous { mechanisms.with(Mechanism::Anonymous) } else { mechanisms }
    }

    /// Host of the stream.
    fn negotiated_host(&self) -> Option<&Host> {
        match &self.phase {
            ConnectionPhase::Negotiating(state) => state.host.as_deref(),
            _ => None,
        }
    }

    /// Login policy of the stream's domain.
    fn auth_policy(&self) -> AuthPolicy {
        self.context.policy.auth(self.negotiated_host().map(Host::domain))
    }

    /// Channel binding data of this stream.
    pub(super) fn channel_binding(&self) -> ChannelBindingData {
        let found = self.stream.channel_binding();
        ChannelBindingData {
            exporter: found.exporter.map(|e| e.to_vec()),
            server_end_point: found.server_end_point.map(<[u8]>::to_vec),
        }
    }

    fn mechanisms(&self, secure: bool, binding: &ChannelBindingData) -> MechanismSet {
        let policy = &self.context.policy;
        let mut set = MechanismSet::EMPTY;
        let auth = self.auth_policy();
        for mechanism in auth.mechanisms.iter() {
            let offer = match mechanism {
                mechanism if !has_secrets_for(self.negotiated_host(), mechanism) => false,
                Mechanism::Plain | Mechanism::OauthBearer => secure || policy.allow_plain_without_tls,
                // Section 6.3.4: offered where it can be expected to succeed.
                Mechanism::External => !self.certified_users().is_empty(),
                Mechanism::Anonymous => false,
                m if m.is_plus() => !binding.is_empty(),
                _ => true,
            };
            if offer {
                set = set.with(mechanism);
            }
        }
        if auth.allow_anonymous { set.with(Mechanism::Anonymous) } else { set }
    }
}

/// Whether the accounts of the host have what the mechanism verifies: with a provider, only what that can check.
fn has_secrets_for(host: Option<&Host>, mechanism: Mechanism) -> bool {
    let Some(provider) = host.and_then(Host::account_provider) else {
        return mechanism != Mechanism::OauthBearer;
    };
    let capabilities = provider.capabilities();
    match mechanism {
        Mechanism::Plain => capabilities.passwords,
        Mechanism::OauthBearer => capabilities.tokens,
        // Whether the account still exists must be known.
        Mechanism::External => capabilities.lookup,
        Mechanism::Anonymous => true,
        scram => scram.hash().is_some_and(|hash| capabilities.scram.contains(&hash.scram_name())),
    }
}

/// Writes `<authentication/>` of XEP-0388: the mechanisms and the inline features.
fn authentication(w: &mut Writer<'_>, offered: MechanismSet, host: &Host, binding: &ChannelBindingData) {
    let mut inline = Vec::with_capacity(320);
    let mut inner = Writer::new(&mut inline);
    if stream_management::config(host).is_some() {
        inner.empty_element("sm", Ns::Sm3);
    }
    bind2::feature(&mut inner, host);
    fast_tokens::feature(&mut inner, host, binding);
    w.start("authentication").ns(Ns::Sasl2);
    for mechanism in offered.iter() {
        w.text_element("mechanism", mechanism.name());
    }
    if !inline.is_empty() {
        w.start("inline").raw(&inline).end();
    }
    if host.options(scram_upgrade::MODULE).is_some() {
        scram_upgrade::features(w, offered);
    }
    w.end();
}

/// Writes the version of the features that begin at `begin`, a hash of them all (XEP-0509). A client that knows it may
/// log in before it has received them again.
fn write_features_version(out: &mut Vec<u8>, begin: usize, version: &mut String) {
    const END: &[u8] = b"</stream:features>";
    let Some(rest) = out[begin..].strip_suffix(END) else { return };
    *version = sasl::encoding::short_digest(rest);
    let keep = out.len() - END.len();
    out.truncate(keep);
    Writer::new(out).start("config-version").xmlns(IAP).attr("scheme", "opaque").attr("value", version).end();
    out.extend_from_slice(END);
}

fn mechanisms(w: &mut Writer<'_>, offered: MechanismSet) {
    w.start("mechanisms").ns(Ns::Sasl);
    for mechanism in offered.iter() {
        w.text_element("mechanism", mechanism.name());
    }
    w.end();
}
