//! From a mechanism's step to an admitted account, for both profiles: RFC 6120 section 6 (see `sasl`) and XEP-0388 (see
//! `sasl2`).
//!
//! The mechanisms are in the crate `sasl`; here are the accounts, the count of failures, and who may try at all
//! (`throng_core::guard`).
//!
//! The trap: whatever is said before the proof must be the same for an account that does not exist. A refusal by the guard
//! comes before the store is asked, and counts names, not accounts.

use std::sync::Arc;

use jid::Jid;
use sasl::{Credentials, Exchange, Failure, Mechanism, Step};
use stanza::{StreamCondition, StreamError};
use throng_core::guard::AttemptKeys;
use throng_core::{Found, Host, Node};
use xml::{Ns, Writer};

use super::{Did, Negotiation, Profile, Ready, Taken, Tried, check_password};
use crate::c2s::{Connection, Phase};

impl Connection {
    pub(super) fn state(&mut self) -> Option<&mut Negotiation> {
        match &mut self.phase {
            Phase::Negotiating(state) => Some(state),
            _ => None,
        }
    }

    /// Does what an exchange asks for.
    pub(super) fn step(&mut self, step: Step) -> Taken {
        match step {
            Step::Challenge(data) => self.challenge(&data),
            Step::NeedCredentials { username } => {
                let Some(known) = self.claim(username, false) else { return self.limited_login() };
                let node = self.service.node.clone();
                let Some(state) = self.state() else { return Ok(Did::Waits) };
                match known {
                    Some((host, jid)) => {
                        state.work =
                            Some(Box::pin(async move { Ready::Credentials(node.look_up(host, jid).await) }));
                        Ok(Did::Waits)
                    }
                    None => self.login_ready(Ready::Credentials(Ok(None))),
                }
            }
            Step::NeedPasswordCheck { username, password } => {
                let Some(known) = self.claim(username, false) else { return self.limited_login() };
                let service = self.service.clone();
                let keys = self.keys();
                let Some(state) = self.state() else { return Ok(Did::Waits) };
                let tried = Tried { account: state.claimed.clone(), keys, password };
                state.work = Some(Box::pin(async move {
                    let found = match known {
                        Some((host, jid)) => match service.node.look_up(host, jid).await {
                            Ok(found) => found,
                            Err(fault) => return Ready::Password(Err(fault)),
                        },
                        None => None,
                    };
                    Ready::Password(Ok(check_password(&service, found, tried).await))
                }));
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

    fn challenge(&mut self, data: &[u8]) -> Taken {
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let ns = state.profile.ns();
        let mut out = Vec::with_capacity(192);
        Writer::new(&mut out).start("challenge").ns(ns).text(&sasl::text::challenge(data)).end();
        Ok(Did::Said(out))
    }

    /// Remembers whom the client claims to be, and whether that can be an account at all. Outer `None`: too many logins
    /// have failed before this one.
    pub(super) fn claim(&mut self, username: String, token: bool) -> Option<Option<(Arc<Host>, Jid)>> {
        let peer = self.stream.facts().peer.ip();
        let node = self.service.node.clone();
        let state = self.state()?;
        let known = account(state.host.as_ref(), &username);
        state.claimed = known.as_ref().map_or(username, |(_, jid)| jid.to_string());
        let keys = node.guard.keys(peer, &state.claimed, token);
        state.keys = Some(keys);
        match node.guard.check(&node.limits(), node.seconds(), &keys) {
            Ok(()) => Some(known),
            Err(limited) => {
                node.metrics.logins_throttled.inc([limited.as_str()]);
                None
            }
        }
    }

    /// Where the failures of this attempt are counted.
    fn keys(&mut self) -> AttemptKeys {
        let peer = self.stream.facts().peer.ip();
        let node = self.service.node.clone();
        let keys = self.state().and_then(|state| state.keys);
        // An attempt that names no account.
        keys.unwrap_or_else(|| node.guard.keys(peer, "", false))
    }

    /// Whether the client may learn if its secret was `right`. Asked before anything that depends on that, since the right
    /// secret must look like a wrong one when too many were tried; see [`throng_core::guard`].
    pub(super) fn may_answer(&mut self, right: bool) -> bool {
        let keys = self.keys();
        may_answer(&self.service.node, &keys, right)
    }

    /// RFC 6120 section 6.5.11: the condition that says nothing of the account and asks to come back later.
    pub(super) fn limited_login(&mut self) -> Taken {
        self.failed_login(Failure::TemporaryAuthFailure, "limited")
    }

    /// A slow step came back.
    pub(super) fn login_ready(&mut self, done: Ready) -> Taken {
        let service = self.service.clone();
        let (decoy, decoy_text) = (&service.decoy, &service.decoy_text);
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        match done {
            Ready::Credentials(Err(fault))
            | Ready::Password(Err(fault))
            | Ready::Account(Err(fault))
            | Ready::Token(Err(fault)) => {
                tracing::warn!(cause = %fault.cause, "a login could not be looked up");
                self.failed_login(Failure::TemporaryAuthFailure, "storage")
            }
            Ready::Credentials(Ok(found)) => {
                // Read for nobody, too, so that the work does not tell who exists.
                let text = found.as_ref().map_or(decoy_text, |found| &found.credentials);
                let stored = Credentials::decode(text).ok().filter(|_| found.is_some());
                state.found = found.map(|found| Found { tokens: Vec::new(), ..found });
                let Some(exchange) = &mut state.exchange else { return Ok(Did::Waits) };
                let step = exchange.credentials(stored.as_ref(), decoy, &state.claimed);
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
            Ready::Token(Ok(answered)) => self.token_answered(answered),
            Ready::Loaded(done) => self.loaded(done),
            Ready::Early(bytes) => Ok(Did::Said(bytes)),
            Ready::Resume(answer) => self.resume_ready(answer),
            Ready::TokensChanged(done) => self.tokens_changed(done),
            Ready::Upgraded(done) => self.upgraded(done),
        }
    }

    /// The client has proved who it is.
    fn proved(&mut self, username: &str, authzid: Option<&str>, additional: Option<Vec<u8>>) -> Taken {
        let node = self.service.node.clone();
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        state.additional = additional;
        let Some(host) = state.host.clone() else { return Ok(Did::Waits) };
        let mechanism = state.exchange.as_ref().map(Exchange::mechanism);
        state.mechanism = mechanism.map_or("none", Mechanism::name);
        if mechanism == Some(Mechanism::Anonymous) {
            state.identity = node.guest(host);
            return self.success();
        }
        // A certificate is no secret that is guessed.
        if mechanism != Some(Mechanism::External) && !self.may_answer(true) {
            return self.limited_login();
        }
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let Some((_, jid)) = account(Some(&host), username) else {
            return self.failed_login(Failure::NotAuthorized, "no account");
        };
        // Acting for somebody else is not supported: the authorization identity is one's own address (6.3.8). XEP-0388
        // section 3.3 also wants it to be the `from` of the stream.
        let same = authzid.is_none_or(|a| jid::parse(a).is_ok_and(|p| p.as_ref().as_str() == jid.as_str()));
        let told = authzid.is_none()
            || state.profile == Profile::Rfc6120
            || state.from.as_ref().is_none_or(|from| from.bare().as_str() == jid.as_str());
        if !same || !told {
            return self.failed_login(Failure::InvalidAuthzid, "authzid");
        }
        if mechanism == Some(Mechanism::External) {
            state.work = Some(Box::pin(async move { Ready::Account(node.look_up(host, jid).await) }));
            return Ok(Did::Waits);
        }
        self.admit()
    }

    /// The last checks before success.
    pub(super) fn admit(&mut self) -> Taken {
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        match state.found.take() {
            Some(Found { disabled: true, .. }) => self.failed_login(Failure::AccountDisabled, "disabled"),
            Some(found) => {
                if let Some(request) = &mut state.request {
                    request.credentials = found.credentials;
                }
                state.identity = Some(found.identity);
                self.success()
            }
            None => self.failed_login(Failure::NotAuthorized, "no account"),
        }
    }

    fn success(&mut self) -> Taken {
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        state.exchange = None;
        match state.profile {
            Profile::Rfc6120 => self.success_rfc6120(),
            Profile::Sasl2 => self.proved_sasl2(),
        }
    }

    /// What follows from success in either profile.
    pub(super) fn authenticated(&mut self) {
        let Some(state) = self.state() else { return };
        let mechanism = state.mechanism;
        state.authenticated = true;
        self.service.node.metrics.logins.inc([mechanism]);
        self.stream.set_authenticated();
    }

    /// RFC 6120 sections 6.4.5 and 6.5, XEP-0388 section 3.6.2. After too many the stream is closed.
    pub(super) fn failed_login(&mut self, failure: Failure, reason: &'static str) -> Taken {
        self.failed_login_with(failure, reason, &[])
    }

    /// The same with more elements in `<failure/>`.
    pub(super) fn failed_login_with(&mut self, failure: Failure, reason: &'static str, more: &[u8]) -> Taken {
        let (failure, reason) = match failure {
            Failure::NotAuthorized if !self.may_answer(false) => (Failure::TemporaryAuthFailure, "limited"),
            other => (other, reason),
        };
        let node = self.service.node.clone();
        let limit = node.limits().auth_attempts;
        let peer = self.stream.facts().peer;
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let chosen = state.exchange.as_ref().map(|exchange| exchange.mechanism().name());
        node.metrics.login_failures.inc([chosen.unwrap_or(state.mechanism), failure.condition()]);
        let user = state.found.as_ref().map(|f| f.identity.jid.to_string()).unwrap_or_default();
        state.forget_login();
        // XEP-0509 section 2.2: "without prejudice".
        if more.is_empty() {
            node.login_log.failed(node.seconds(), peer.ip(), &user, failure.condition(), reason);
            state.attempts = state.attempts.saturating_add(1);
        }
        let mut out = Vec::with_capacity(160);
        let mut w = Writer::new(&mut out);
        w.start("failure").ns(state.profile.ns());
        match state.profile {
            Profile::Rfc6120 => w.start(failure.condition()).end(),
            Profile::Sasl2 => w.empty(failure.condition(), Ns::Sasl),
        };
        w.raw(more).end();
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

/// See [`Connection::may_answer`].
pub(super) fn may_answer(node: &Node, keys: &AttemptKeys, right: bool) -> bool {
    let admitted = node.guard.admit(&node.limits(), node.seconds(), keys, right);
    if let Err(limited) = admitted {
        node.metrics.logins_throttled.inc([limited.as_str()]);
    }
    admitted.is_ok()
}

pub(super) fn too_many() -> StreamError {
    StreamError::new(StreamCondition::PolicyViolation).text("too many failed logins on this stream")
}

/// The account that a user name stands for.
fn account(host: Option<&Arc<Host>>, username: &str) -> Option<(Arc<Host>, Jid)> {
    let host = host?;
    let jid = Jid::from_parts(Some(username), host.domain(), None).ok()?;
    Some((host.clone(), jid))
}
