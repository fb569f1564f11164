//! FAST token logins: XEP-0484 (0.2.0). The tokens and their storage format are in `sasl::fast_tokens`.
//!
//! A client with a token needs one message: `<authenticate/>` with the proof, sent together with the stream header. It
//! costs the two look-ups of any login, in one store call where the client binds a resource directly. It writes only
//! when the token is used for the first time, is due for rotation, or is invalidated.
//!
//! **Replays.** TLS early data is not accepted (`tls-0rtt` is not offered), so `count` is not stored. A recorded EXPR
//! login is worthless on any other connection. ENDP and NONE send the same bytes each time, which only TLS keeps
//! secret; rotation invalidates them later, `<fast invalidate/>` immediately.
//!
//! A token request for a mechanism that is not offered, or without a user agent id, is ignored: the login matters more. So is
//! one after OAUTHBEARER: a bearer token expires soon and can be revoked at the identity provider, which a token of this server
//! would outlive.
//!
//! # Pitfalls
//!
//! A token stands for a password, so it is issued only after a complete login, and a changed password ends it: the
//! store clears tokens together with `set_credentials`, and stores new ones only for the revision of the credentials
//! that were proved. Otherwise a client that began its login with the old password would obtain a token that outlives
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::sasl::fast_tokens::{FastToken, TokenChange, TokenProof, TokenVerification, VerifiedToken};
use ::sasl::{ClientId, Failure, FastTokens, HtMechanism, Mechanism, hashed_token};
use access::login::{self, Admission, LoginRecord, TokensUpdateOutcome};
use access::login_throttle::AttemptKeys;
use access::provided_accounts::{confirm, permits_login_tokens};
use jid::Jid;
use throng_core::server_error::ServerError;
use throng_core::{Host, Node};
use tokio::sync::oneshot;
use xml::{Ns, Writer};

use super::sasl_result::may_answer;
use super::{LoginStepResult, NegotiationOutcome, NegotiationResult};
use crate::c2s::C2sConnection;
use crate::context::C2sContext;

/// Module name in the configuration.
pub(super) const MODULE: &str = "fast_tokens";
const HOUR: i64 = 3_600;

/// Parsed `<fast/>` of a request.
pub(crate) struct FastRequest {
    /// The client logs out.
    invalidate: bool,
    verified_token: Option<VerifiedToken>,
}

impl FastRequest {
    pub(super) fn read(fast: xml::TreeNode<'_>) -> FastRequest {
        let invalidate = fast.attr("invalidate").is_some_and(|v| v == "true" || v == "1");
        FastRequest { invalidate, verified_token: None }
    }

    pub(super) fn used_token(&self) -> bool {
        self.verified_token.is_some()
    }
}

/// The proof of a token and everything to verify it with, except the stored tokens.
struct Proof {
    account: String,
    client: ClientId,
    mechanism: HtMechanism,
    data: Vec<u8>,
    proof: [u8; hashed_token::PROOF_BYTES],
    now: u32,
    keys: AttemptKeys,
    context: Arc<C2sContext>,
}

impl Proof {
    /// Verifies the proof against the stored tokens; `None` for a missing account, which takes as long. Returns `None`
    /// where a correct proof must look like a wrong one because of too many attempts; see
    /// [`access::login_throttle`].
    fn judge(&self, tokens: Option<&[u8]>) -> Option<TokenVerification> {
        let tokens = tokens.and_then(|tokens| FastTokens::decode(tokens).ok()).unwrap_or_default();
        let Proof { account, client, mechanism, data, proof, .. } = self;
        let claim = TokenProof { account, client: *client, mechanism: *mechanism, binding_data: data, proof };
        let verdict = tokens.check(&self.context.token_key, &claim, self.now);
        let valid = matches!(verdict, TokenVerification::Valid(_));
        (!valid || may_answer(&self.context.node, &self.keys, true)).then_some(verdict)
    }
}

/// Result of verifying the proof of a token.
pub(crate) struct Answered {
    found: Option<LoginRecord>,
    /// `None`: too many attempts.
    verdict: Option<TokenVerification>,
    /// The data that a session starts with, if it was read together with the account.
    loaded: Option<Result<Admission, ServerError>>,
}

/// Verifies the proof against the stored tokens, and the account with the provider of its domain, if there is one.
async fn check_stored(
    node: &Node,
    host: Arc<Host>,
    jid: Jid,
    proof: &Proof,
) -> Result<Answered, ServerError> {
    let found = login::load_stored(node, host, jid).await?;
    let verdict = proof.judge(found.as_ref().map(|found| found.tokens.as_slice()));
    let (found, verdict) = match (found, verdict) {
        (Some(found), Some(TokenVerification::Valid(token))) => match confirm(found).await? {
            Some(found) => (Some(found), TokenVerification::Valid(token)),
            None => (None, TokenVerification::Expired),
        },
        (found, Some(verdict)) => (found, verdict),
        (found, None) => return Ok(Answered { found, verdict: None, loaded: None }),
    };
    Ok(Answered { found, verdict: Some(verdict), loaded: None })
}

/// Result of updating the tokens of an account.
pub(crate) enum FastUpdateOutcome {
    /// The change is stored.
    Stored,
    /// Nothing was changed: another login has replaced or removed the token that was used.
    TokenRemoved,
    /// Nothing was changed: the account was disabled after the proof.
    AccountDisabled,
    /// Nothing was changed: the account was removed after the proof, or the proved password is no longer valid.
    AccountRevoked,
}

/// Writes `<fast/>` for `<inline/>` of SASL2 (section 3.1).
pub(super) fn feature(w: &mut Writer<'_>, host: &Host, binding: &::sasl::ChannelBindingData) {
    if host.options(MODULE).is_none() || !permits_login_tokens(host) {
        return;
    }
    w.start("fast").ns(Ns::Fast);
    for mechanism in offered(binding) {
        w.text_element("mechanism", mechanism.name());
    }
    w.end();
}

fn offered(binding: &::sasl::ChannelBindingData) -> impl Iterator<Item = HtMechanism> + '_ {
    HtMechanism::ALL.into_iter().filter(|m| m.binding_data(binding).is_some())
}

impl C2sConnection {
    fn host_with_fast(&mut self) -> Option<Arc<Host>> {
        let state = self.negotiation().filter(|s| !s.offered_sasl2.is_empty())?;
        state.host.clone().filter(|host| host.options(MODULE).is_some() && permits_login_tokens(host))
    }

    /// Seconds since 1970.
    fn unix_seconds(&self) -> u32 {
        u32::try_from(self.context.node.clock.unix_millis() / 1000).unwrap_or(u32::MAX)
    }

    /// Handles a login with a token (section 3.4).
    pub(super) fn token_login(
        &mut self,
        mechanism: HtMechanism,
        initial: Option<&[u8]>,
    ) -> NegotiationResult {
        let binding = self.channel_binding();
        if self.host_with_fast().is_none() || mechanism.binding_data(&binding).is_none() {
            return self.failed_login(Failure::InvalidMechanism, "mechanism");
        }
        let Some(request) = self.negotiation().and_then(|s| s.sasl2_request.as_ref()) else {
            return Ok(NegotiationOutcome::Pending);
        };
        let (Some(_), Some(_), Some(initial)) = (&request.fast, &request.user_agent, initial) else {
            return self.failed_login(Failure::MalformedRequest, "token without fast, user agent or proof");
        };
        let initial = match hashed_token::parse(initial) {
            Ok(initial) => initial,
            Err(reason) => return self.failed_login(reason.failure(), reason.as_str()),
        };
        if let Some(state) = self.negotiation() {
            state.mechanism = mechanism.name();
        }
        let Some(known) = self.claim_account(initial.username, true) else { return self.throttled_login() };
        let (context, now) = (self.context.clone(), self.unix_seconds());
        // Between the proof and everything else a provider must confirm the account.
        let provided = known.as_ref().is_some_and(|(host, _)| host.account_provider().is_some());
        let at_once = self.binds_at_once() && !provided;
        let node = context.node.clone();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let id = state.sasl2_request.as_ref().and_then(|request| request.user_agent.as_deref());
        let (Some(id), Some(keys)) = (id, state.keys) else { return Ok(NegotiationOutcome::Pending) };
        let proof = Proof {
            client: ClientId::new(id),
            account: state.claimed_address.clone(),
            mechanism,
            data: mechanism.binding_data(&binding).unwrap_or_default().to_vec(),
            proof: initial.proof,
            now,
            keys,
            context,
        };
        match known {
            Some((host, jid)) => {
                state.pending_step = Some(Box::pin(async move {
                    if !at_once {
                        return LoginStepResult::Token(check_stored(&node, host, jid, &proof).await);
                    }
                    let (verdict_sender, mut verdict) = oneshot::channel();
                    let judge = move |tokens: Option<&[u8]>| {
                        // Nobody waits any longer: the client is gone, or the store has missed its deadline.
                        if verdict_sender.is_closed() {
                            return false;
                        }
                        let verdict = proof.judge(tokens);
                        let valid = matches!(verdict, Some(TokenVerification::Valid(_)));
                        verdict_sender.send(verdict).is_ok() && valid
                    };
                    // Only this call waits, because it has a deadline: a proof may stay queued in the store after it.
                    let done = login::prove(&node, host, jid, judge).await;
                    LoginStepResult::Token(done.map(|done| {
                        let (found, loaded) = done.unzip();
                        let verdict = verdict.try_recv().unwrap_or_default();
                        Answered { found, verdict, loaded: loaded.flatten() }
                    }))
                }));
                Ok(NegotiationOutcome::Pending)
            }
            None => {
                let verdict = proof.judge(None);
                self.token_answered(Answered { found: None, verdict, loaded: None })
            }
        }
    }

    /// Continues the login with the verified proof.
    pub(super) fn token_answered(&mut self, answered: Answered) -> NegotiationResult {
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let Some(request) = &mut state.sasl2_request else { return Ok(NegotiationOutcome::Pending) };
        let Some(fast) = &mut request.fast else { return Ok(NegotiationOutcome::Pending) };
        state.login_record = answered.found;
        match answered.verdict {
            None => self.throttled_login(),
            Some(TokenVerification::Invalid) => self.failed_login(Failure::NotAuthorized, "token"),
            Some(TokenVerification::Expired) => self.failed_login(Failure::CredentialsExpired, "token"),
            Some(TokenVerification::Valid(token)) => {
                state.additional = Some(token.proof.expose().to_vec());
                fast.verified_token = Some(token);
                request.loaded = answered.loaded;
                self.admit()
            }
        }
    }

    /// Issues, activates or removes tokens where due, after everything else of the login.
    pub(super) fn update_tokens(&mut self) -> NegotiationResult {
        let now = self.unix_seconds();
        let context = self.context.clone();
        let binding = self.channel_binding();
        let Some(host) = self.host_with_fast() else { return self.finish_sasl2() };
        let hours = |key: &str| host.options(MODULE).map_or(0, |o| o.int(key)).saturating_mul(HOUR);
        let seconds = |key: &str| u32::try_from(hours(key)).unwrap_or(u32::MAX);
        let clients = host.options(MODULE).map_or(0, |o| o.int("max_clients_per_account"));
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let (Some(identity), Some(request)) = (&state.identity, &mut state.sasl2_request) else {
            return self.finish_sasl2();
        };
        let client = request.user_agent.as_deref().map(ClientId::new);
        let Some(client) = client.filter(|_| !identity.ephemeral) else { return self.finish_sasl2() };
        let token = request.fast.as_ref().and_then(|f| f.verified_token.as_ref());
        let invalidate = token.is_some() && request.fast.as_ref().is_some_and(|f| f.invalidate);
        let bearer = state.mechanism == Mechanism::OauthBearer.name();
        let wanted = request.request_token.filter(|_| !bearer);
        let wanted = wanted.filter(|wanted| offered(&binding).any(|m| m == *wanted));
        // Section 3.5; section 3.6: no new token for a client that logs out.
        let due =
            token.filter(|r| !invalidate && now.saturating_sub(r.token.issued) >= seconds("rotate_hours"));
        let issue = wanted.or(due.map(|r| r.token.mechanism));
        let issue = issue.map(|mechanism| FastToken::issue(mechanism, now, seconds("lifetime_hours")));
        if issue.is_none() && !invalidate && !token.is_some_and(|r| r.first_use) {
            return self.finish_sasl2();
        }
        if let Some(slot) = &issue {
            let text = context.token_key.token_text(identity.jid.as_str(), client, slot);
            let expiry = stanza::payload::datetime::format_utc(u64::from(slot.expires) * 1000, false);
            Writer::new(&mut request.token)
                .start("token")
                .ns(Ns::Fast)
                .attr("expiry", &expiry)
                .attr("token", &text)
                .end();
        }
        let change = TokenChange {
            client,
            used_seed: token.map(|r| r.token.seed),
            invalidate,
            new_token: issue,
            max_clients: usize::try_from(clients).unwrap_or(1),
            now,
        };
        let identity = identity.clone();
        state.pending_step = Some(Box::pin(async move {
            let removed = Arc::new(AtomicBool::new(false));
            let removed_flag = removed.clone();
            let apply = move |before: &[u8]| {
                // Unreadable tokens are worthless and are replaced.
                let mut tokens = FastTokens::decode(before).unwrap_or_default();
                match tokens.apply(&change) {
                    Ok(()) => Some(tokens.encode()),
                    Err(_) => {
                        removed_flag.store(true, Ordering::Relaxed);
                        None
                    }
                }
            };
            let done = login::update_tokens(&context.node, &identity, Box::new(apply)).await;
            LoginStepResult::TokensUpdated(done.map(|outcome| match outcome {
                TokensUpdateOutcome::Applied if removed.load(Ordering::Relaxed) => {
                    FastUpdateOutcome::TokenRemoved
                }
                TokensUpdateOutcome::Applied => FastUpdateOutcome::Stored,
                TokensUpdateOutcome::Disabled => FastUpdateOutcome::AccountDisabled,
                TokensUpdateOutcome::Revoked => FastUpdateOutcome::AccountRevoked,
            }))
        }));
        Ok(NegotiationOutcome::Pending)
    }

    /// Continues the login after the tokens were stored.
    pub(super) fn on_tokens_updated(
        &mut self,
        done: Result<FastUpdateOutcome, ServerError>,
    ) -> NegotiationResult {
        let Some(request) = self.negotiation().and_then(|s| s.sasl2_request.as_mut()) else {
            return Ok(NegotiationOutcome::Pending);
        };
        match done {
            Ok(FastUpdateOutcome::Stored) => self.finish_sasl2(),
            Ok(FastUpdateOutcome::AccountDisabled) => {
                self.failed_after_proof(Failure::AccountDisabled, "disabled")
            }
            // Section 4.2.
            Ok(FastUpdateOutcome::TokenRemoved) => {
                self.failed_after_proof(Failure::CredentialsExpired, "token")
            }
            Ok(FastUpdateOutcome::AccountRevoked) => self.revoked_login(),
            Err(fault) => {
                tracing::warn!(cause = %fault.cause, "could not store login tokens");
                if request.fast.as_ref().is_some_and(|fast| fast.invalidate) {
                    // The token must not be reported as removed.
                    return self.failed_login(Failure::TemporaryAuthFailure, "storage");
                }
                request.token.clear();
                self.finish_sasl2()
            }
        }
    }
}
