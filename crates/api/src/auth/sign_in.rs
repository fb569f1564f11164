//! Sign-in with an administrator's password.
//!
//! The password is compared with the stored SCRAM keys (RFC 5802, section 3), so nothing else is needed. Failures
//! count in the same tables as those of XMPP logins ([`access::login_throttle`]), so that no interface
//! circumvents the limits of another. An account that does not exist takes as long as one that does, and gets the
//! same response.
//!
//! Not implemented: a second factor.
//!
//! # Pitfalls
//!
//! Looking up before counting, or counting only existing accounts, would reveal which accounts exist.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::login::LoginRecord;
use access::login_throttle::{self, Attempt, AttemptOutcome, LoginLimit, login_throttle};
use access::provided_accounts;
use access::session_log::session_log;
use axum::http::StatusCode;
use base::Secret;
use jid::Jid;
use store::AccountSecrets;
use throng_commands::audit::record_audit_entry;
use throng_core::Host;
use throng_core::server_error::ServerError;

use super::sessions::{ConsoleSession, SecretHash, hash_secret};
use crate::{Api, Problem, RequestPeer};

/// Passwords that are compared with stored keys at a time; each costs milliseconds of CPU time.
const MAX_CONCURRENT: usize = 8;
/// Maximum length of an address or a password in bytes.
const MAX_FIELD_BYTES: usize = 3_071;

/// State of sign-in.
#[derive(Default)]
pub(crate) struct SignInLimiter {
    in_flight: AtomicUsize,
    /// Keys that match no password, for accounts that do not exist.
    decoy: OnceLock<Vec<u8>>,
}

/// A permit for one password comparison.
struct SignInPermit<'a>(&'a AtomicUsize);

impl Drop for SignInPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SignInLimiter {
    fn try_acquire(&self) -> Option<SignInPermit<'_>> {
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        let permit = SignInPermit(&self.in_flight);
        (before < MAX_CONCURRENT).then_some(permit)
    }
}

fn bad_credentials() -> Problem {
    Problem::unauthorized("the address or the password is wrong")
}

/// Verifies an administrator's password and begins a session; returns the cookie and the session.
pub(crate) async fn sign_in(
    api: &Arc<Api>,
    peer: RequestPeer,
    address: &str,
    password: Secret,
) -> Result<(String, ConsoleSession), Problem> {
    let node = &api.node;
    if address.len() > MAX_FIELD_BYTES || password.len() > MAX_FIELD_BYTES {
        return Err(Problem::invalid("the address or the password is longer than allowed"));
    }
    let jid = resolve_account(api, address);
    let claimed = jid.as_ref().map_or(address, Jid::as_str);
    let limited = |limited: LoginLimit| {
        let reason = limited.as_str();
        session_log(node).login_failed(node.seconds(), peer.address, "", "policy-violation", "limited");
        node.metrics.logins_throttled.inc([reason]);
        Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "policy-violation",
            "too many failed attempts; try again later",
        )
    };
    let attempt = login_throttle(node).keys(peer.address, claimed, false);
    login_throttle(node).check(&node.limits(), node.seconds(), &attempt).map_err(limited)?;
    // Of parallel attempts only as many as the limit allows are checked.
    let attempt = login_throttle::begin(node, attempt).await.map_err(limited)?;
    let checked = check(api, jid.clone(), password, attempt).await.map_err(limited)??;
    // Not before: that the record is read or written would tell which of the other attempts was right.
    let found = match checked {
        CheckedPassword::Wrong => None,
        CheckedPassword::Stored(found) => Some(found),
        CheckedPassword::Provided(record) => load_registered(api, *record).await?,
    };
    let Some((jid, found)) = jid.as_ref().zip(found) else {
        audit(api, peer, jid.as_ref(), "not-authorized");
        return Err(bad_credentials());
    };
    // At this point the password is proved, so the response may reveal the account's state.
    if found.disabled || !node.is_admin(jid.as_ref()) {
        audit(api, peer, Some(jid), "forbidden");
        let reason =
            if found.disabled { "this account is disabled" } else { "this account is not an administrator" };
        return Err(Problem::forbidden(reason));
    }
    audit(api, peer, Some(jid), "done");
    Ok(api.auth.sessions.create(jid.clone(), hash_credentials(&found), node.clock.now()))
}

/// Result of checking a password.
enum CheckedPassword {
    /// It is wrong, or there is no such account.
    Wrong,
    /// It is that of this account.
    Stored(AccountSecrets),
    /// A provider accepts it; the account in the store is not read yet.
    Provided(Box<LoginRecord>),
}

/// Hash by which a later change of the password is noticed. The credentials of a provider's account may stay the same.
fn hash_credentials(account: &AccountSecrets) -> SecretHash {
    hash_secret(&[&account.revision.to_be_bytes()[..], &account.credentials].concat())
}

/// The account and its host, if a provider keeps it.
fn provided_account(api: &Api, jid: &Jid) -> Option<(Arc<Host>, Jid)> {
    let host = api.node.host(jid.domain())?;
    host.account_provider()?;
    Some((host, jid.clone()))
}

/// Checks the password where the account is kept, and counts the attempt, also if the client is gone meanwhile.
async fn check(
    api: &Arc<Api>,
    jid: Option<Jid>,
    password: Secret,
    attempt: Attempt,
) -> Result<Result<CheckedPassword, Problem>, LoginLimit> {
    let api = api.clone();
    let checked = attempt.run(async move {
        let checked = match jid.as_ref().and_then(|jid| provided_account(&api, jid)) {
            Some((host, jid)) => check_with_provider(host, jid, password).await,
            None => check_with_store(&api, jid.as_ref(), password).await,
        };
        let outcome = match &checked {
            Ok(CheckedPassword::Wrong) => AttemptOutcome::Failed,
            Ok(CheckedPassword::Stored(_) | CheckedPassword::Provided(_)) => AttemptOutcome::Succeeded,
            Err(_) => AttemptOutcome::Undecided,
        };
        (outcome, checked)
    });
    checked.await
}

async fn check_with_store(
    api: &Api,
    jid: Option<&Jid>,
    password: Secret,
) -> Result<CheckedPassword, Problem> {
    let node = &api.node;
    let Some(permit) = api.auth.sign_in_limiter.try_acquire() else {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "resource-constraint",
            "too many concurrent sign-ins; try again",
        ));
    };
    let found = match jid {
        Some(jid) => node.stores.logins.secrets(jid.as_ref()).await?,
        None => None,
    };
    let stored = match &found {
        Some(found) => found.credentials.clone(),
        None => decoy_credentials(api).await?,
    };
    let right = node.passwords.verify(stored, password).await;
    drop(permit);
    Ok(found.filter(|_| right).map_or(CheckedPassword::Wrong, CheckedPassword::Stored))
}

/// Checks the password with the provider of the domain, which has limits of its own.
async fn check_with_provider(
    host: Arc<Host>,
    jid: Jid,
    password: Secret,
) -> Result<CheckedPassword, Problem> {
    let checked = provided_accounts::check_password(host, jid, password).await.map_err(unavailable)?;
    Ok(checked.map_or(CheckedPassword::Wrong, |record| CheckedPassword::Provided(Box::new(record))))
}

/// The account in the store, which has a record after the first login.
async fn load_registered(api: &Api, record: LoginRecord) -> Result<Option<AccountSecrets>, Problem> {
    let node = &api.node;
    let jid = record.identity.jid.clone();
    let registered = provided_accounts::register(node, record).await.map_err(unavailable)?;
    let disabled = registered.is_none_or(|record| record.disabled);
    let found = node.stores.logins.secrets(jid.as_ref()).await?;
    Ok(found.map(|found| AccountSecrets { disabled: found.disabled || disabled, ..found }))
}

fn unavailable(error: ServerError) -> Problem {
    tracing::warn!(cause = %error.cause, "could not check the password of an administrator");
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "resource-constraint",
        "the accounts of this domain are not available; try again later",
    )
}

/// Writes an audit entry if it concerns an administrator; otherwise unauthenticated clients could flush everything
/// else out of the log.
fn audit(api: &Api, peer: RequestPeer, jid: Option<&Jid>, outcome: &'static str) {
    let from = peer.address.to_string();
    match jid.filter(|jid| api.node.is_admin(jid.as_ref())) {
        Some(jid) => {
            let caller = throng_commands::Caller {
                identity: throng_commands::CallerIdentity::Account(jid.clone()),
                interface: "http",
                from,
            };
            record_audit_entry(&api.node, &caller, "sign-in", "", outcome);
        }
        None => session_log(&api.node).login_failed(api.node.seconds(), peer.address, "", outcome, "console"),
    }
}

/// Whether the account of a session is still an enabled administrator with the same password.
pub(crate) async fn is_still_valid(api: &Arc<Api>, session: &ConsoleSession) -> Result<bool, Problem> {
    if !api.node.is_admin(session.jid.as_ref()) {
        return Ok(false);
    }
    let Some(keys) = session.recheck else { return Ok(true) };
    let found = api.node.stores.logins.secrets(session.jid.as_ref()).await?;
    let found = found.filter(|found| !found.disabled && hash_credentials(found) == keys);
    let same = match found {
        Some(found) => is_confirmed(api, &session.jid, &found.credentials).await,
        None => false,
    };
    if same {
        api.auth.sessions.mark_checked(&session.id, api.node.clock.now());
    }
    Ok(same)
}

/// Whether nothing has changed at the provider of an account, if there is one. While it does not answer, sessions go on: the
/// server must be administered then, too.
async fn is_confirmed(api: &Api, jid: &Jid, credentials: &[u8]) -> bool {
    let Some((host, jid)) = provided_account(api, jid) else { return true };
    match provided_accounts::is_unchanged(&host, jid.as_ref(), credentials).await {
        Ok(unchanged) => unchanged,
        Err(error) => {
            tracing::warn!(cause = %error.cause, "could not look up an administrator with a session");
            true
        }
    }
}

/// Resolves the account of a login name; a name alone is one of the default domain.
fn resolve_account(api: &Api, address: &str) -> Option<Jid> {
    let address = address.trim();
    let jid = if address.contains('@') {
        Jid::parse(address).ok()?
    } else {
        Jid::from_parts(Some(address), &api.process.default_domain(), None).ok()?
    };
    let whole = jid.local().is_some() && jid.resource().is_none() && api.node.host(jid.domain()).is_some();
    whole.then_some(jid)
}

/// Keys that match no password, as expensive to compare as real ones.
async fn decoy_credentials(api: &Api) -> Result<Vec<u8>, Problem> {
    let decoy = &api.auth.sign_in_limiter.decoy;
    if let Some(keys) = decoy.get() {
        return Ok(keys.clone());
    }
    let keys = api.node.passwords.derive(Secret::new(base::id::random_id())).await;
    let keys = keys.map_err(|_| Problem::internal())?;
    Ok(decoy.get_or_init(|| keys).clone())
}
