//! Login (RFC 6120, section 6): two store queries. The first loads the credentials for any client; the second loads the
//! roster, the blocklist and the number of offline messages, and is available only to authenticated clients. A
//! proof that arrives with its request is verified in between, so that both are one call ([`prove`]).
//!
//! The second query finds the account only with the credentials that were proved: the account may have been
//! removed, recreated or disabled, or its password changed, while the client computed its proof.
//!
//! Not implemented: the bind, which is the engine's (`Node::bind`).
//!
//! # Pitfalls
//!
//! The first query must not depend on the data of the account, or on whether the account exists.

use std::sync::Arc;

use jid::Jid;
use store::{AccountSecrets, AddressId, Login, StoreError, TokensUpdateFn};
use throng_core::account_provider::{ProvidedAccount, is_external};
use throng_core::server_error::ServerError;
use throng_core::{Host, Node, Principal};

use crate::provided_accounts;

pub use store::TokensUpdateOutcome;

/// The identity that a client claims, and after the proof has.
#[derive(Clone, Debug)]
pub struct LoginIdentity {
    /// The host.
    pub host: Arc<Host>,
    /// The bare address.
    pub jid: Jid,
    /// Its id; [`AddressId::UNASSIGNED`] if it has none before the proof.
    pub id: AddressId,
    /// Revision of the credentials that are proved; see [`store::AccountSecrets::revision`].
    pub revision: u64,
    /// No stored account: SASL ANONYMOUS.
    pub ephemeral: bool,
}

/// An account before authentication.
#[derive(Debug)]
pub struct LoginRecord {
    /// The identity of the client if its proof is right.
    pub identity: LoginIdentity,
    /// Opaque to the engine; parsed by `sasl`.
    pub credentials: Vec<u8>,
    /// Tokens for quick logins, also opaque.
    pub tokens: Vec<u8>,
    /// The account may not log in.
    pub disabled: bool,
    /// As the provider of the domain reported it. The account in the store is not known yet; after the proof,
    /// [`crate::provided_accounts::register`] reads or creates it.
    pub provided: Option<ProvidedAccount>,
}

impl LoginRecord {
    pub(crate) fn new(host: Arc<Host>, jid: Jid, secrets: AccountSecrets) -> LoginRecord {
        let AccountSecrets { id, revision, credentials, disabled, tokens } = secrets;
        let identity = LoginIdentity { host, jid, id, revision, ephemeral: false };
        LoginRecord { identity, credentials, tokens, disabled, provided: None }
    }
}

/// An account after authentication.
#[derive(Debug)]
pub enum Admission {
    /// The initial data of a session.
    Granted(Box<Principal>),
    /// Disabled after the proof.
    Disabled,
    /// Removed after the proof, or the proved password is no longer valid.
    Revoked,
}

impl Admission {
    /// The initial data of a session, if it may start.
    pub fn granted(self) -> Option<Principal> {
        match self {
            Admission::Granted(principal) => Some(*principal),
            Admission::Disabled | Admission::Revoked => None,
        }
    }
}

/// Result of [`upgrade_credentials`].
#[derive(Debug)]
pub enum CredentialsUpgradeOutcome {
    /// The new keys are stored.
    Stored,
    /// Nothing is stored: the keys, but not the password, have changed since the proof. These are the present ones.
    Superseded(Vec<u8>),
    /// Disabled after the proof.
    Disabled,
    /// Removed after the proof, or the proved password is no longer valid.
    Revoked,
}

/// Loads the credentials of an account: one round trip to the store, or one request to the provider of the domain.
///
/// # Errors
/// If the store or the provider does not answer.
pub async fn load_credentials(
    node: &Node,
    host: Arc<Host>,
    jid: Jid,
) -> Result<Option<LoginRecord>, ServerError> {
    if let Some(provider) = host.account_provider().cloned() {
        return provided_accounts::find(&*provider, host, jid).await;
    }
    load_stored(node, host, jid).await
}

/// Loads what the store has of an account: its login tokens, and its credentials unless the domain has a provider.
///
/// # Errors
/// If the store does not answer.
pub async fn load_stored(node: &Node, host: Arc<Host>, jid: Jid) -> Result<Option<LoginRecord>, ServerError> {
    let secrets = node.stores.logins.secrets(jid.as_ref()).await?;
    Ok(secrets.map(|secrets| LoginRecord::new(host, jid, secrets)))
}

/// Runs both queries and `proof` in between, which receives the tokens, or `None` without an account, and
/// must not wait; see [`store::Logins::prove`]. The second result is that of [`load_principal`], if
/// the proof is right and the account is not disabled.
///
/// # Errors
/// If the store does not answer.
pub async fn prove(
    node: &Node,
    host: Arc<Host>,
    jid: Jid,
    proof: impl FnOnce(Option<&[u8]>) -> bool + Send + 'static,
) -> Result<Option<(LoginRecord, Option<Result<Admission, ServerError>>)>, ServerError> {
    let epoch = node.epoch(jid.as_ref());
    let proof = Box::new(move |secrets: Option<&AccountSecrets>| {
        proof(secrets.map(|secrets| match is_external(&secrets.credentials) {
            // Of a time when the domain had a provider: nobody knows whether it still has the account.
            true => &[][..],
            false => secrets.tokens.as_slice(),
        }))
    });
    let Some(attempt) = node.stores.logins.prove(jid.as_ref(), proof).await? else { return Ok(None) };
    let found = LoginRecord::new(host, jid, attempt.secrets);
    let loaded = attempt.login.map(|login| loaded(found.identity.clone(), epoch, login));
    Ok(Some((found, loaded)))
}

/// Loads the initial data of a session after authentication: one round trip to the store, or none for a
/// user without an account. An account without an id gets one.
///
/// # Errors
/// If the store does not answer.
pub async fn load_principal(node: &Node, mut identity: LoginIdentity) -> Result<Admission, ServerError> {
    // Read before the query, so that a write in between is noticed at bind.
    let epoch = node.epoch(identity.jid.as_ref());
    if identity.ephemeral {
        return Ok(Admission::Granted(Box::new(principal(identity, epoch))));
    }
    if identity.id == AddressId::UNASSIGNED {
        identity.id = node.stores.addresses.intern(&identity.jid).await?;
    }
    let login = node.stores.logins.login(identity.id, identity.revision).await;
    loaded(identity, epoch, login)
}

/// Changes the tokens of an account if its credentials are still those that `identity` proved; see
/// [`store::LoginTokens::update_tokens`].
///
/// # Errors
/// If the store does not answer.
pub async fn update_tokens(
    node: &Node,
    identity: &LoginIdentity,
    change: TokensUpdateFn,
) -> Result<TokensUpdateOutcome, ServerError> {
    let revision = Some(identity.revision);
    Ok(node.stores.tokens.update_tokens(identity.jid.as_ref(), revision, change).await?)
}

/// Replaces the `expected` credentials of an account by others for the same password (XEP-0480). One round trip to
/// the store, and another if the credentials are no longer the expected ones: another client may have upgraded
/// them, which must not fail a login with the right password.
///
/// # Errors
/// If the store does not answer.
pub async fn upgrade_credentials(
    node: &Node,
    identity: &LoginIdentity,
    expected: &[u8],
    credentials: &[u8],
) -> Result<CredentialsUpgradeOutcome, ServerError> {
    let account = identity.jid.as_ref();
    if node.stores.accounts.upgrade_credentials(account, expected, credentials).await? {
        return Ok(CredentialsUpgradeOutcome::Stored);
    }
    let secrets = node.stores.logins.secrets(account).await?;
    Ok(match secrets.filter(|secrets| secrets.revision == identity.revision) {
        None => CredentialsUpgradeOutcome::Revoked,
        Some(secrets) if secrets.disabled => CredentialsUpgradeOutcome::Disabled,
        Some(secrets) => CredentialsUpgradeOutcome::Superseded(secrets.credentials),
    })
}

/// A new user without an account (SASL ANONYMOUS, RFC 4505). The name is random and valid for the session
/// only.
pub fn anonymous_identity(host: Arc<Host>) -> Option<LoginIdentity> {
    let jid = Jid::from_parts(Some(&format!("guest-{}", base::id::random_id())), host.domain(), None).ok()?;
    Some(LoginIdentity { host, jid, id: AddressId::UNASSIGNED, revision: 0, ephemeral: true })
}

/// A user without stored data.
fn principal(identity: LoginIdentity, epoch: u32) -> Principal {
    let LoginIdentity { host, jid, id, revision, ephemeral } = identity;
    Principal {
        host,
        jid,
        id,
        roster: Vec::new(),
        roster_version: 0,
        offline_messages: 0,
        photo: None,
        blocked: Vec::new(),
        epoch,
        revision,
        ephemeral,
    }
}

fn loaded(
    identity: LoginIdentity,
    epoch: u32,
    login: Result<Option<Login>, StoreError>,
) -> Result<Admission, ServerError> {
    Ok(match login? {
        None => Admission::Revoked,
        Some(login) if login.disabled => Admission::Disabled,
        Some(login) => Admission::Granted(Box::new(Principal {
            roster: login.roster,
            roster_version: login.roster_version,
            offline_messages: login.offline_messages,
            photo: login.photo,
            // A user is not logged in without its blocklist.
            blocked: store::blocklists::decode(&login.blocklist)?,
            ..principal(identity, epoch)
        })),
    })
}
