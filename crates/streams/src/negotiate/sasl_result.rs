//! Login steps shared by both SASL profiles, from a mechanism's step to an admitted account: RFC 6120, section 6 (see
//! `sasl`), and XEP-0388 (see `sasl2`).
//!
//! The mechanisms are in the crate `sasl`; this file handles accounts and failure counts, with the limits on attempts
//! of `access::login_throttle`.
//!
//! # Pitfalls
//!
//! Everything sent before the proof must be the same for an account that does not exist. The throttle refuses before
//! the store is read, and it counts names, not accounts.

use std::sync::Arc;

use access::login::{LoginRecord, anonymous_identity, load_credentials};
use access::login_throttle::{self, Attempt, AttemptKeys, AttemptOutcome, login_throttle};
use access::provided_accounts;
use access::session_log::session_log;
use base::Secret;
use jid::Jid;
use sasl::{Credentials, Exchange, ExchangeStep, Failure, FailureReason, Mechanism};
use stanza::{StreamCondition, StreamError};
use throng_core::{Host, Node};
use xml::{Ns, Writer};

use super::{
    LoginStepResult, Negotiation, NegotiationEvent, NegotiationOutcome, NegotiationResult, PasswordAttempt,
    SaslProfile, check_password,
};
use crate::c2s::{C2sConnection, ConnectionPhase};

impl C2sConnection {
    pub(super) fn negotiation(&mut self) -> Option<&mut Negotiation> {
        match &mut self.phase {
            ConnectionPhase::Negotiating(state) => Some(state),
            _ => None,
        }
    }

    /// Carries out a step of the exchange.
    pub(super) fn apply_sasl_step(&mut self, step: ExchangeStep) -> NegotiationResult {
        match step {
            ExchangeStep::Challenge(data) => self.challenge(&data),
            ExchangeStep::NeedCredentials { username } => {
                let Some(known) = self.claim_account(username, false) else { return self.throttled_login() };
                let node = self.context.node.clone();
                let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
                match known {
                    Some((host, jid)) => {
                        state.pending_step = Some(Box::pin(async move {
                            LoginStepResult::Credentials(load_credentials(&node, host, jid).await)
                        }));
                        Ok(NegotiationOutcome::Pending)
                    }
                    None => self.on_login_step(LoginStepResult::Credentials(Ok(None))),
                }
            }
            ExchangeStep::NeedPasswordCheck { username, password } => {
                let Some(known) = self.claim_account(username, false) else { return self.throttled_login() };
                let context = self.context.clone();
                let keys = self.keys();
                let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
                let account = state.claimed_address.clone();
                state.pending_step = Some(Box::pin(async move {
                    let attempt = match login_throttle::begin(&context.node, keys).await {
                        Ok(attempt) => attempt,
                        Err(limit) => return LoginStepResult::Throttled(limit),
                    };
                    let found = match known {
                        Some((host, jid)) if host.account_provider().is_some() => {
                            return check_provided_password(host, jid, password, attempt).await;
                        }
                        Some((host, jid)) => match load_credentials(&context.node, host, jid).await {
                            Ok(found) => found,
                            Err(fault) => return LoginStepResult::Password(Err(fault)),
                        },
                        None => None,
                    };
                    check_password(&context, found, PasswordAttempt { account, password, attempt }).await
                }));
                Ok(NegotiationOutcome::Pending)
            }
            ExchangeStep::NeedTokenCheck { authzid, token } => {
                // A token that names no account is counted by its own digest. Tokens cannot be guessed.
                let claimed = match authzid.as_deref().and_then(|authzid| Jid::parse(authzid).ok()) {
                    Some(jid) if jid.local().is_some() => jid.local().unwrap_or_default().to_owned(),
                    _ => format!("token {}", sasl::encoding::short_digest(token.expose())),
                };
                if self.claim_account(claimed, true).is_none() {
                    return self.throttled_login();
                }
                let (node, keys) = (self.context.node.clone(), self.keys());
                let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
                let Some(host) = state.host.clone() else { return Ok(NegotiationOutcome::Pending) };
                state.pending_step = Some(Box::pin(async move {
                    match login_throttle::begin(&node, keys).await {
                        Ok(attempt) => check_bearer_token(host, token, attempt).await,
                        Err(limit) => LoginStepResult::Throttled(limit),
                    }
                }));
                Ok(NegotiationOutcome::Pending)
            }
            ExchangeStep::NeedCertificate { authzid } => {
                let user = self.certified(authzid.as_deref());
                let Some(exchange) = self.negotiation().and_then(|s| s.exchange.as_mut()) else {
                    return Ok(NegotiationOutcome::Pending);
                };
                let step = exchange.certificate(user);
                self.apply_sasl_step(step)
            }
            ExchangeStep::Done { username, authzid, additional } => {
                self.on_proved(&username, authzid.as_deref(), additional)
            }
            ExchangeStep::Failed(failure) => {
                let reason = self.negotiation().and_then(|s| s.exchange.as_ref()).and_then(Exchange::reason);
                let text = reason.map_or("failure", |r| r.as_str());
                match reason {
                    // Counted before the client learnt that its token is invalid; see `check_bearer_token`.
                    Some(FailureReason::InvalidToken) => self.failed_after_proof(failure, text),
                    _ => self.failed_login(failure, text),
                }
            }
        }
    }

    fn challenge(&mut self, data: &[u8]) -> NegotiationResult {
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let ns = state.profile.ns();
        let mut out = Vec::with_capacity(192);
        Writer::new(&mut out).start("challenge").ns(ns).text(&sasl::encoding::encode_challenge(data)).end();
        Ok(NegotiationOutcome::Reply(out))
    }

    /// Records the claimed account; inner `None` if it cannot be an account. Outer `None` if too many earlier logins
    /// have failed.
    pub(super) fn claim_account(
        &mut self,
        username: String,
        token: bool,
    ) -> Option<Option<(Arc<Host>, Jid)>> {
        let peer = self.stream.info().peer.ip();
        let node = self.context.node.clone();
        let state = self.negotiation()?;
        let known = account(state.host.as_ref(), &username);
        state.claimed_address = known.as_ref().map_or(username, |(_, jid)| jid.to_string());
        let keys = login_throttle(&node).keys(peer, &state.claimed_address, token);
        state.keys = Some(keys);
        match login_throttle(&node).check(&node.limits(), node.seconds(), &keys) {
            Ok(()) => Some(known),
            Err(limited) => {
                node.metrics.logins_throttled.inc([limited.as_str()]);
                None
            }
        }
    }

    /// Keys under which failures of this attempt are counted.
    fn keys(&mut self) -> AttemptKeys {
        let peer = self.stream.info().peer.ip();
        let node = self.context.node.clone();
        let keys = self.negotiation().and_then(|state| state.keys);
        // The attempt names no account.
        keys.unwrap_or_else(|| login_throttle(&node).keys(peer, "", false))
    }

    /// Whether the client may learn if its secret was `right`. Must be called before anything that depends on that:
    /// after too many attempts the right secret must look like a wrong one; see [`access::login_throttle`].
    pub(super) fn check_login_throttle(&mut self, right: bool) -> bool {
        if self.negotiation().is_some_and(|state| state.is_counted) {
            return true;
        }
        let keys = self.keys();
        may_answer(&self.context.node, &keys, right)
    }

    /// RFC 6120, section 6.5.11: the condition that reveals nothing about the account and means "try again later".
    pub(super) fn throttled_login(&mut self) -> NegotiationResult {
        self.failed_login(Failure::TemporaryAuthFailure, "limited")
    }

    /// Continues the login with the result of an asynchronous step.
    pub(super) fn on_login_step(&mut self, done: LoginStepResult) -> NegotiationResult {
        let context = self.context.clone();
        let peer = self.stream.info().peer.ip();
        let (decoy, decoy_text) = (&context.decoy, &context.decoy_credentials);
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        match done {
            LoginStepResult::Credentials(Err(fault))
            | LoginStepResult::Password(Err(fault))
            | LoginStepResult::Account(Err(fault))
            | LoginStepResult::BearerToken(Err(fault))
            | LoginStepResult::Token(Err(fault)) => {
                tracing::warn!(cause = %fault.cause, "could not read the account of a login");
                self.failed_login(Failure::TemporaryAuthFailure, "storage")
            }
            LoginStepResult::Credentials(Ok(found)) => {
                // Decoded for a missing account as well, so that the work does not reveal which accounts exist.
                let text = found.as_ref().map_or(decoy_text, |found| &found.credentials);
                let stored = Credentials::decode(text).ok().filter(|_| found.is_some());
                state.login_record = found.map(|found| LoginRecord { tokens: Vec::new(), ..found });
                let Some(exchange) = &mut state.exchange else { return Ok(NegotiationOutcome::Pending) };
                let provider = state.host.as_ref().and_then(|host| host.account_provider());
                let foreign = provider
                    .and_then(|provider| provider.scram_parameters())
                    .map(|like| decoy.with_parameters(like.salt_bytes, like.iterations));
                let decoy = foreign.as_ref().unwrap_or(decoy);
                let step = exchange.credentials(stored.as_ref(), decoy, &state.claimed_address);
                self.apply_sasl_step(step)
            }
            LoginStepResult::Throttled(limited) => {
                context.node.metrics.logins_throttled.inc([limited.as_str()]);
                self.throttled_login()
            }
            LoginStepResult::Password(Ok((found, right))) => {
                state.is_counted = true;
                state.login_record = found;
                let Some(exchange) = &mut state.exchange else { return Ok(NegotiationOutcome::Pending) };
                let step = exchange.password_checked(right);
                self.apply_sasl_step(step)
            }
            LoginStepResult::BearerToken(Ok(found)) => {
                let user = found.as_ref().and_then(|found| found.identity.jid.local()).map(str::to_owned);
                // The success is one of the account that the token proves. The requested identity is the client's choice: a
                // valid token must not lift the limits of another account.
                if let Some(found) = &found {
                    let proved = found.identity.jid.as_str();
                    proved.clone_into(&mut state.claimed_address);
                    state.keys = Some(login_throttle(&context.node).keys(peer, proved, true));
                }
                state.is_counted = found.is_none();
                state.login_record = found;
                let Some(exchange) = &mut state.exchange else { return Ok(NegotiationOutcome::Pending) };
                let step = exchange.token_checked(user);
                self.apply_sasl_step(step)
            }
            LoginStepResult::Account(Ok(found)) => match found {
                Some(found) => {
                    state.login_record = Some(found);
                    self.admit()
                }
                // The certificate is valid, so this is no guess.
                None => self.failed_after_proof(Failure::NotAuthorized, "no account"),
            },
            LoginStepResult::Token(Ok(answered)) => self.token_answered(answered),
            LoginStepResult::Loaded(done) => self.on_principal_loaded(done),
            LoginStepResult::PreAuthReply(bytes) => Ok(NegotiationOutcome::Reply(bytes)),
            LoginStepResult::Resume(answer) => self.on_resume_outcome(answer),
            LoginStepResult::TokensUpdated(done) => self.on_tokens_updated(done),
            LoginStepResult::Upgraded(done) => self.on_upgraded(done),
        }
    }

    /// Handles a proved identity.
    fn on_proved(
        &mut self,
        username: &str,
        authzid: Option<&str>,
        additional: Option<Vec<u8>>,
    ) -> NegotiationResult {
        let node = self.context.node.clone();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        state.additional = additional;
        let Some(host) = state.host.clone() else { return Ok(NegotiationOutcome::Pending) };
        let mechanism = state.exchange.as_ref().map(Exchange::mechanism);
        state.mechanism = mechanism.map_or("none", Mechanism::name);
        if mechanism == Some(Mechanism::Anonymous) {
            state.identity = anonymous_identity(host);
            return self.success();
        }
        // A certificate is not a secret that can be guessed.
        if mechanism != Some(Mechanism::External) && !self.check_login_throttle(true) {
            return self.throttled_login();
        }
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let Some((_, jid)) = account(Some(&host), username) else {
            return self.failed_login(Failure::NotAuthorized, "no account");
        };
        // Acting for another user is not supported: the authorization identity is the user's own address (section
        // 6.3.8). XEP-0388, section 3.3, also requires it to be the `from` of the stream.
        let same = authzid.is_none_or(|a| jid::parse(a).is_ok_and(|p| p.as_ref().as_str() == jid.as_str()));
        let matches_from = authzid.is_none()
            || state.profile == SaslProfile::Rfc6120
            || state.from.as_ref().is_none_or(|from| from.bare().as_str() == jid.as_str());
        if !same || !matches_from {
            return self.failed_login(Failure::InvalidAuthzid, "authzid");
        }
        if mechanism == Some(Mechanism::External) {
            state.pending_step = Some(Box::pin(async move {
                let found = load_credentials(&node, host, jid).await;
                LoginStepResult::Account(match found {
                    Ok(Some(found)) => provided_accounts::register(&node, found).await,
                    other => other,
                })
            }));
            return Ok(NegotiationOutcome::Pending);
        }
        // The provider's view of the account is proved; the record in the store follows.
        match state.login_record.take_if(|found| found.provided.is_some()) {
            Some(found) => {
                state.pending_step = Some(Box::pin(async move {
                    LoginStepResult::Account(provided_accounts::register(&node, found).await)
                }));
                Ok(NegotiationOutcome::Pending)
            }
            None => self.admit(),
        }
    }

    /// Makes the last checks before success.
    pub(super) fn admit(&mut self) -> NegotiationResult {
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let Some(found) = state.login_record.take() else {
            return self.failed_login(Failure::NotAuthorized, "no account");
        };
        let LoginRecord { identity, credentials, disabled, .. } = found;
        state.identity = Some(identity);
        if disabled {
            return self.failed_after_proof(Failure::AccountDisabled, "disabled");
        }
        if let Some(request) = &mut state.sasl2_request {
            request.credentials = credentials;
        }
        self.success()
    }

    fn success(&mut self) -> NegotiationResult {
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        state.exchange = None;
        match state.profile {
            SaslProfile::Rfc6120 => self.success_rfc6120(),
            SaslProfile::Sasl2 => self.on_proved_sasl2(),
        }
    }

    /// Marks the stream as authenticated, for either profile.
    pub(super) fn on_authenticated(&mut self) {
        let Some(state) = self.negotiation() else { return };
        let mechanism = state.mechanism;
        state.stage = state.stage.after(NegotiationEvent::Authenticated);
        self.context.node.metrics.logins.inc([mechanism]);
        self.stream.set_authenticated();
    }

    /// Sends a failure (RFC 6120, sections 6.4.5 and 6.5; XEP-0388, section 3.6.2). Too many failures close the stream.
    pub(super) fn failed_login(&mut self, failure: Failure, reason: &'static str) -> NegotiationResult {
        match failure {
            Failure::NotAuthorized if !self.check_login_throttle(false) => {
                self.send_failure(Failure::TemporaryAuthFailure, "limited", &[])
            }
            _ => self.send_failure(failure, reason, &[]),
        }
    }

    /// As [`C2sConnection::failed_login`], for a client that has proved its secret: the failure counts against the
    /// stream, but not as a guess.
    pub(super) fn failed_after_proof(&mut self, failure: Failure, reason: &'static str) -> NegotiationResult {
        self.send_failure(failure, reason, &[])
    }

    /// Fails a login whose account was removed, or whose secret was revoked, after the proof.
    pub(super) fn revoked_login(&mut self) -> NegotiationResult {
        let request = self.negotiation().and_then(|state| state.sasl2_request.as_ref());
        // XEP-0484, section 4.2: the token is no longer trusted, so the client must try another mechanism.
        let failure = if request.is_some_and(|request| request.used_token()) {
            Failure::CredentialsExpired
        } else {
            Failure::NotAuthorized
        };
        self.failed_after_proof(failure, "account changed")
    }

    /// Sends a failure that was decided, with further elements in `<failure/>`.
    pub(super) fn send_failure(
        &mut self,
        failure: Failure,
        reason: &'static str,
        more: &[u8],
    ) -> NegotiationResult {
        let node = self.context.node.clone();
        let limit = node.limits().auth_attempts;
        let peer = self.stream.info().peer;
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let chosen = state.exchange.as_ref().map(|exchange| exchange.mechanism().name());
        node.metrics.login_failures.inc([chosen.unwrap_or(state.mechanism), failure.condition()]);
        let identity = state.identity.as_ref().or(state.login_record.as_ref().map(|found| &found.identity));
        let user = identity.map(|identity| identity.jid.to_string()).unwrap_or_default();
        state.forget_login();
        // XEP-0509, section 2.2: "without prejudice".
        if more.is_empty() {
            session_log(&node).login_failed(node.seconds(), peer.ip(), &user, failure.condition(), reason);
            state.attempts = state.attempts.saturating_add(1);
        }
        let mut out = Vec::with_capacity(160);
        let mut w = Writer::new(&mut out);
        w.start("failure").ns(state.profile.ns());
        match state.profile {
            SaslProfile::Rfc6120 => w.start(failure.condition()).end(),
            SaslProfile::Sasl2 => w.empty_element(failure.condition(), Ns::Sasl),
        };
        w.raw(more).end();
        if state.attempts < limit {
            return Ok(NegotiationOutcome::Reply(out));
        }
        self.final_element = Some(out);
        Err(too_many_attempts())
    }

    /// Accounts of this host that the client's certificate names.
    pub(super) fn certified_users(&self) -> Vec<Jid> {
        let ConnectionPhase::Negotiating(state) = &self.phase else { return Vec::new() };
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

    /// Selects the user that the certificate stands for: XEP-0178, section 2.
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

/// See [`C2sConnection::check_login_throttle`].
pub(super) fn may_answer(node: &Node, keys: &AttemptKeys, right: bool) -> bool {
    let admitted = login_throttle(node).check_and_record(&node.limits(), node.seconds(), keys, right);
    if let Err(limited) = admitted {
        node.metrics.logins_throttled.inc([limited.as_str()]);
    }
    admitted.is_ok()
}

/// Checks a password with the provider of the host and counts the attempt, also if the client is gone meanwhile.
async fn check_provided_password(
    host: Arc<Host>,
    jid: Jid,
    password: Secret,
    attempt: Attempt,
) -> LoginStepResult {
    let checked = attempt.run(async move {
        let checked = provided_accounts::check_password(host, jid, password).await;
        let outcome = match &checked {
            Ok(Some(_)) => AttemptOutcome::Succeeded,
            Ok(None) => AttemptOutcome::Failed,
            Err(_) => AttemptOutcome::Undecided,
        };
        (outcome, checked)
    });
    match checked.await {
        Ok(checked) => LoginStepResult::Password(checked.map(|found| {
            let right = found.is_some();
            (found, right)
        })),
        Err(limit) => LoginStepResult::Throttled(limit),
    }
}

/// The same for a bearer token. The error about an invalid one tells the client all, which may never answer it.
async fn check_bearer_token(host: Arc<Host>, token: Secret, attempt: Attempt) -> LoginStepResult {
    let checked = attempt.run(async move {
        let checked = provided_accounts::check_token(host, token).await;
        let outcome = match &checked {
            Ok(None) => AttemptOutcome::Failed,
            // A valid one is counted for the account that it proves.
            Ok(Some(_)) | Err(_) => AttemptOutcome::Undecided,
        };
        (outcome, checked)
    });
    checked.await.map_or_else(LoginStepResult::Throttled, LoginStepResult::BearerToken)
}

pub(super) fn too_many_attempts() -> StreamError {
    StreamError::new(StreamCondition::PolicyViolation).text("too many failed logins on this stream")
}

/// Host and address of the account that a user name stands for.
fn account(host: Option<&Arc<Host>>, username: &str) -> Option<(Arc<Host>, Jid)> {
    let host = host?;
    let jid = Jid::from_parts(Some(username), host.domain(), None).ok()?;
    Some((host.clone(), jid))
}
