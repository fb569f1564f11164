//! SASL negotiation: RFC 6120 section 6, XEP-0178 1.2 section 2 for certificates.
//!
//! The mechanisms are in the crate `sasl`; here are the elements, the accounts and the count of failures.

use std::sync::Arc;

use jid::Jid;
use sasl::{Credentials, Exchange, Failure, Mechanism, Step};
use stanza::{StreamCondition, StreamError};
use throng_core::metrics::ByReason;
use throng_core::{Found, Host};
use xml::{Ns, Tree, Writer};

use super::{Did, Negotiation, Ready, Taken, Work, check_password};
use crate::c2s::{Connection, Phase};
use crate::sm;

impl Connection {
    fn state(&mut self) -> Option<&mut Negotiation> {
        match &mut self.phase {
            Phase::Negotiating(state) => Some(state),
            _ => None,
        }
    }

    /// An element in the SASL namespace.
    pub(super) fn sasl(&mut self, name: &str, bytes: &[u8]) -> Taken {
        let scope = self.scope.clone();
        let limits = self.service.node.limits().negotiation();
        let tree = Tree::parse(bytes, &scope, &limits)?;
        let text = tree.root().text().into_owned();
        let binding = self.binding();
        let after_tls = self.after_tls();
        let limit = self.service.node.limits().auth_attempts;
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        match name {
            "auth" => {
                // 6.4.2: a new attempt; an exchange that was under way is forgotten, but it counts.
                state.found = None;
                if state.exchange.take().is_some() {
                    state.attempts = state.attempts.saturating_add(1);
                    if state.attempts >= limit {
                        return Err(too_many());
                    }
                }
                let mechanism = tree.root().attr("mechanism");
                let mechanism = mechanism.as_deref().and_then(Mechanism::from_name);
                let Some(mechanism) = mechanism.filter(|m| state.offered.contains(*m)) else {
                    let failure = if mechanism.is_some_and(|m| after_tls.contains(m)) {
                        Failure::EncryptionRequired
                    } else {
                        Failure::InvalidMechanism
                    };
                    return self.failed_login(failure, "mechanism");
                };
                let initial = match sasl::text::initial_response(&text) {
                    Ok(initial) => initial,
                    Err(failure) => return self.failed_login(failure, "encoding"),
                };
                let mut exchange = Exchange::new(mechanism, state.offered.has_plus(), binding, sasl::nonce());
                let step = exchange.step(initial.as_deref());
                state.exchange = Some(exchange);
                self.step(step)
            }
            "response" => {
                let Some(exchange) = &mut state.exchange else {
                    return self.failed_login(Failure::MalformedRequest, "no exchange");
                };
                match sasl::text::response(&text) {
                    Ok(data) => {
                        let step = exchange.step(Some(&data));
                        self.step(step)
                    }
                    Err(failure) => self.failed_login(failure, "encoding"),
                }
            }
            "abort" => self.failed_login(Failure::Aborted, "aborted"),
            _ => Err(StreamCondition::UnsupportedStanzaType.into()),
        }
    }

    fn step(&mut self, step: Step) -> Taken {
        let service = self.service.clone();
        match step {
            Step::Challenge(data) => {
                let mut out = Vec::with_capacity(192);
                let mut w = Writer::new(&mut out);
                w.start("challenge").ns(Ns::Sasl).text(&sasl::text::challenge(&data)).end();
                Ok(Did::Said(out))
            }
            Step::NeedCredentials { username } => {
                let Some(state) = self.state() else { return Ok(Did::Waits) };
                match account(state.host.as_ref(), &username) {
                    Some((host, jid)) => {
                        state.claimed = jid.to_string();
                        let node = service.node.clone();
                        state.work =
                            Some(Work::Credentials(Box::pin(async move { node.look_up(host, jid).await })));
                        Ok(Did::Waits)
                    }
                    None => {
                        state.claimed = username;
                        self.login_ready(Ready::Credentials(Ok(None)))
                    }
                }
            }
            Step::NeedPasswordCheck { username, password } => {
                let Some(state) = self.state() else { return Ok(Did::Waits) };
                let known = account(state.host.as_ref(), &username);
                let name = known.as_ref().map_or(username, |(_, jid)| jid.to_string());
                state.work = Some(Work::Password(Box::pin(async move {
                    let found = match known {
                        Some((host, jid)) => service.node.look_up(host, jid).await?,
                        None => None,
                    };
                    Ok(check_password(&service, found, name, password).await)
                })));
                Ok(Did::Waits)
            }
            Step::NeedCertificate { authzid } => {
                let user = self.certified(authzid.as_deref());
                let Some(exchange) = self.state().and_then(|s| s.exchange.as_mut()) else {
                    return Ok(Did::Waits);
                };
                let step = exchange.certificate(user);
                self.step(step)
            }
            Step::Done { username, authzid, additional } => {
                self.proved(&username, authzid.as_deref(), additional)
            }
            Step::Failed(failure) => {
                let reason = self.state().and_then(|s| s.exchange.as_ref()).and_then(Exchange::reason);
                self.failed_login(failure, reason.map_or("failure", |r| r.as_str()))
            }
        }
    }

    /// A slow step came back.
    pub(super) fn login_ready(&mut self, done: Ready) -> Taken {
        let decoy = self.service.decoy.clone();
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        match done {
            Ready::Early(bytes) => Ok(Did::Said(bytes)),
            Ready::Credentials(Err(fault)) | Ready::Password(Err(fault)) | Ready::Account(Err(fault)) => {
                tracing::warn!(cause = %fault.cause, "a login could not be looked up");
                self.failed_login(Failure::TemporaryAuthFailure, "storage")
            }
            Ready::Credentials(Ok(found)) => {
                let stored = found.as_ref().and_then(|f| Credentials::decode(&f.credentials).ok());
                state.found = found;
                let Some(exchange) = &mut state.exchange else { return Ok(Did::Waits) };
                let step = exchange.credentials(stored.as_ref(), &decoy, &state.claimed);
                self.step(step)
            }
            Ready::Password(Ok((found, right))) => {
                state.found = found;
                let Some(exchange) = &mut state.exchange else { return Ok(Did::Waits) };
                let step = exchange.password_checked(right);
                self.step(step)
            }
            Ready::Account(Ok(found)) => match found {
                Some(found) => {
                    state.found = Some(found);
                    self.admit()
                }
                None => self.failed_login(Failure::NotAuthorized, "no account"),
            },
            Ready::Resume(answer) => match answer {
                sm::Answer::Resumed(session, bytes) => Ok(Did::Resumed(session, bytes)),
                sm::Answer::Failed(bytes) => Ok(Did::Said(bytes)),
                sm::Answer::Ended(error) => Err(error),
            },
        }
    }

    /// The client has proved who it is.
    fn proved(&mut self, username: &str, authzid: Option<&str>, additional: Option<Vec<u8>>) -> Taken {
        let node = self.service.node.clone();
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        state.additional = additional;
        let Some(host) = state.host.clone() else { return Ok(Did::Waits) };
        let mechanism = state.exchange.as_ref().map(Exchange::mechanism);
        if mechanism == Some(Mechanism::Anonymous) {
            state.principal = node.guest(host);
            return self.success();
        }
        let Some((_, jid)) = account(Some(&host), username) else {
            return self.failed_login(Failure::NotAuthorized, "no account");
        };
        // Acting for somebody else is not supported: the authorization identity is one's own address (6.3.8).
        let same = authzid.is_none_or(|a| jid::parse(a).is_ok_and(|p| p.as_ref().as_str() == jid.as_str()));
        if !same {
            return self.failed_login(Failure::InvalidAuthzid, "authzid");
        }
        if mechanism == Some(Mechanism::External) {
            state.work = Some(Work::Account(Box::pin(async move { node.look_up(host, jid).await })));
            return Ok(Did::Waits);
        }
        self.admit()
    }

    /// The last checks before success.
    fn admit(&mut self) -> Taken {
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        match state.found.take() {
            Some(Found { disabled: true, .. }) => self.failed_login(Failure::AccountDisabled, "disabled"),
            Some(found) => {
                state.principal = Some(found.principal);
                self.success()
            }
            None => self.failed_login(Failure::NotAuthorized, "no account"),
        }
    }

    fn success(&mut self) -> Taken {
        let mechanism =
            self.state().and_then(|s| s.exchange.as_ref()).map_or("none", |e| e.mechanism().name());
        self.service.node.metrics.logins.get_or_create(&ByReason { reason: mechanism }).inc();
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let additional = sasl::text::additional(state.additional.take().as_deref());
        state.authenticated = true;
        state.exchange = None;
        self.stream.set_authenticated();
        let mut out = Vec::with_capacity(128);
        let mut w = Writer::new(&mut out);
        w.start("success").ns(Ns::Sasl);
        if !additional.is_empty() {
            w.text(&additional);
        }
        w.end();
        Ok(Did::Restart(out))
    }

    /// RFC 6120 sections 6.4.5 and 6.5. After too many the stream is closed.
    fn failed_login(&mut self, failure: Failure, reason: &'static str) -> Taken {
        let limit = self.service.node.limits().auth_attempts;
        let peer = self.stream.facts().peer;
        self.service.node.metrics.logins.get_or_create(&ByReason { reason: failure.condition() }).inc();
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let user = state.found.as_ref().map(|f| f.principal.jid.to_string()).unwrap_or_default();
        tracing::info!(%peer, user, condition = failure.condition(), reason, "login failed");
        state.exchange = None;
        state.found = None;
        state.attempts = state.attempts.saturating_add(1);
        let mut out = Vec::with_capacity(128);
        let mut w = Writer::new(&mut out);
        w.start("failure").ns(Ns::Sasl).start(failure.condition()).end().end();
        if state.attempts < limit {
            return Ok(Did::Said(out));
        }
        self.last_words = Some(out);
        Err(too_many())
    }

    /// Accounts of this host that the client's certificate names.
    pub(super) fn certified_users(&self) -> Vec<Jid> {
        let Phase::Negotiating(state) = &self.phase else { return Vec::new() };
        let (Some(certificate), Some(host)) = (self.stream.client_certificate(), &state.host) else {
            return Vec::new();
        };
        let mut users: Vec<Jid> = Vec::new();
        for jid in certificate.xmpp_addresses.iter().filter_map(|a| Jid::parse(a).ok()) {
            let ours = jid.as_ref().is_bare() && jid.local().is_some() && jid.domain() == host.domain();
            if ours && !users.contains(&jid) {
                users.push(jid);
            }
        }
        users
    }

    /// XEP-0178 section 2: which user the certificate stands for.
    fn certified(&mut self, authzid: Option<&str>) -> Result<String, Failure> {
        let users = self.certified_users();
        let local = |jid: &Jid| jid.local().unwrap_or_default().to_owned();
        match (authzid, users.as_slice()) {
            (_, []) => Err(Failure::NotAuthorized),
            (None, [only]) => Ok(local(only)),
            (None, _) => Err(Failure::InvalidAuthzid),
            (Some(wanted), users) => {
                let wanted = Jid::parse(wanted).map_err(|_| Failure::InvalidAuthzid)?;
                users.iter().find(|u| **u == wanted).map(local).ok_or(Failure::InvalidAuthzid)
            }
        }
    }
}

fn too_many() -> StreamError {
    StreamError::new(StreamCondition::PolicyViolation).text("too many failed logins on this stream")
}

/// The account that a user name stands for.
fn account(host: Option<&Arc<Host>>, username: &str) -> Option<(Arc<Host>, Jid)> {
    let host = host?;
    let jid = Jid::from_parts(Some(username), host.domain(), None).ok()?;
    Some((host.clone(), jid))
}
