//! Logging in: two look-ups in the store. The first brings what a proof needs and is open to anybody; the second brings the
//! roster, the blocklist and the count of waiting messages, and belongs to clients that have proved who they are. A proof
//! that comes with its request is judged in between, so that both are one call ([`Node::prove`]).
//!
//! The second look-up finds the account only with the credentials that were proved: it may have been removed, made anew or
//! disabled, or its password changed, while the client computed its proof.
//!
//! The trap: whatever the first look-up does must not depend on what the account has, or on whether there is one.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaError, StreamCondition, StreamError};
use store::{AccountSecrets, AddressId, Login, PhotoHash, RosterItem, StoreError};

use crate::host::Host;
use crate::node::Node;
use crate::server_error::ServerError;
use crate::session::Session;

/// A user: who a client claims to be, and after the proof, who it is.
#[derive(Clone, Debug)]
pub struct LoginIdentity {
    /// The host.
    pub host: Arc<Host>,
    /// The bare address.
    pub jid: Jid,
    /// Its number.
    pub id: AddressId,
    /// Of the credentials that the proof is about; see [`store::Secrets::revision`].
    pub revision: u64,
    /// No account in the store: SASL ANONYMOUS.
    pub ephemeral: bool,
}

/// An account before the proof.
#[derive(Debug)]
pub struct LoginRecord {
    /// Who the client is if its proof is right.
    pub identity: LoginIdentity,
    /// Opaque to the engine; `sasl` reads them.
    pub credentials: Vec<u8>,
    /// As opaque: tokens for quick logins.
    pub tokens: Vec<u8>,
    /// May not log in.
    pub disabled: bool,
}

impl LoginRecord {
    fn new(host: Arc<Host>, jid: Jid, secrets: AccountSecrets) -> LoginRecord {
        let AccountSecrets { id, revision, credentials, disabled, tokens } = secrets;
        let identity = LoginIdentity { host, jid, id, revision, ephemeral: false };
        LoginRecord { identity, credentials, tokens, disabled }
    }
}

/// Who authenticated on a stream, with what a session begins with; see [`crate::login`].
#[derive(Debug)]
pub struct Principal {
    /// The host.
    pub host: Arc<Host>,
    /// The bare address.
    pub jid: Jid,
    /// Its number.
    pub id: AddressId,
    /// The roster.
    pub roster: Vec<RosterItem>,
    /// Its version.
    pub roster_version: u64,
    /// Messages in the offline store.
    pub offline_messages: u32,
    /// Hash of the photo that the account shows.
    pub photo: Option<PhotoHash>,
    /// Addresses that the account has blocked.
    pub blocked: Vec<Jid>,
    /// [`Node::epoch`] before the store was asked.
    pub epoch: u32,
    /// Of the credentials that were proved; see [`store::AccountSecrets::revision`].
    pub revision: u64,
    /// No account in the store: SASL ANONYMOUS.
    pub ephemeral: bool,
}

/// An account after the proof.
#[derive(Debug)]
pub enum Admission {
    /// What a session begins with.
    Granted(Box<Principal>),
    /// Disabled since the proof.
    Disabled,
    /// Removed since the proof, or what was proved is not its password any more.
    Revoked,
}

impl Admission {
    /// What a session begins with, if there may be one.
    #[must_use]
    pub fn granted(self) -> Option<Principal> {
        match self {
            Admission::Granted(principal) => Some(*principal),
            Admission::Disabled | Admission::Revoked => None,
        }
    }
}

impl Node {
    /// Looks up what proves who a client is: one round trip to the store.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn load_credentials(
        &self,
        host: Arc<Host>,
        jid: Jid,
    ) -> Result<Option<LoginRecord>, ServerError> {
        let secrets = self.stores.logins.secrets(jid.as_ref()).await?;
        Ok(secrets.map(|secrets| LoginRecord::new(host, jid, secrets)))
    }

    /// Both look-ups, with the judgement of `proof` in between, which gets the tokens or `None` for no account and must not
    /// wait; see [`store::Logins::prove`]. The second answer is that of [`Node::load_principal`], if the proof was right and
    /// the account is not disabled.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn prove(
        &self,
        host: Arc<Host>,
        jid: Jid,
        proof: impl FnOnce(Option<&[u8]>) -> bool + Send + 'static,
    ) -> Result<Option<(LoginRecord, Option<Result<Admission, ServerError>>)>, ServerError> {
        let epoch = self.epoch(jid.as_ref());
        let proof = Box::new(move |secrets: Option<&AccountSecrets>| {
            proof(secrets.map(|secrets| secrets.tokens.as_slice()))
        });
        let Some(attempt) = self.stores.logins.prove(jid.as_ref(), proof).await? else { return Ok(None) };
        let found = LoginRecord::new(host, jid, attempt.secrets);
        let loaded = attempt.login.map(|login| loaded(found.identity.clone(), epoch, login));
        Ok(Some((found, loaded)))
    }

    /// Reads what a session begins with, after the proof: one round trip to the store, or none for a user without an
    /// account.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn load_principal(&self, identity: LoginIdentity) -> Result<Admission, ServerError> {
        // Read before the store is asked, so that a write in between is noticed at bind.
        let epoch = self.epoch(identity.jid.as_ref());
        if identity.ephemeral {
            return Ok(Admission::Granted(Box::new(principal(identity, epoch))));
        }
        let login = self.stores.logins.login(identity.id, identity.revision).await;
        loaded(identity, epoch, login)
    }

    /// Refuses what [`Node::bind`] would refuse of a client with this bare address. Asked before [`Node::load_principal`], so that
    /// a request that cannot succeed reads nothing from the store.
    ///
    /// # Errors
    /// As those of [`Node::bind`].
    pub fn check_bind(&self, bare: JidRef<'_>, resource: Option<&str>) -> Result<(), StanzaError> {
        let jid = self.full_address(bare, resource)?;
        let Some(account) = self.routing_table.find(bare) else { return Ok(()) };
        let sessions = account.sessions();
        let full = sessions.len() >= usize::from(self.limits().sessions_per_account);
        // A session of the same resource and one without a connection make room.
        let gives_way = |s: &Arc<Session>| s.outbox.is_detached() || Some(s.resource()) == jid.resource();
        if full && !sessions.iter().any(gives_way) { Err(too_many_resources()) } else { Ok(()) }
    }

    /// Reads again what a session has begun with, and ends it if there may be none any more: the account was removed or
    /// disabled after it had been read, and before the session could be found.
    pub(crate) fn repeat_login(self: &Arc<Self>, session: Arc<Session>, revision: u64) {
        let node = self.clone();
        self.spawner.spawn(
            "login again",
            Box::pin(async move {
                let account = &session.account;
                match node.stores.logins.login(account.id, revision).await {
                    Ok(Some(login)) if !login.disabled => account.with(|state| {
                        if login.roster_version >= state.roster_version {
                            state.replace_roster(&node.routing_table, &login.roster, login.roster_version);
                        }
                    }),
                    Ok(_) => {
                        let error = StreamError::new(StreamCondition::NotAuthorized);
                        session.outbox.close(error.text("the account was removed, disabled or changed"));
                        node.end_session(&session);
                    }
                    Err(error) => tracing::warn!(%error, "an account could not be read again"),
                }
            }),
        );
    }

    /// The full address that binding `resource` makes. Without a name the resource is random.
    pub(crate) fn full_address(&self, bare: JidRef<'_>, resource: Option<&str>) -> Result<Jid, StanzaError> {
        let bad = |text: String| StanzaError::new(StanzaCondition::BadRequest).text(text);
        match resource.filter(|r| !r.is_empty()) {
            Some(r) if r.len() > usize::from(self.limits().resourcepart_bytes) => {
                return Err(bad("the resource is too long".to_owned()));
            }
            Some(r) => bare.with_resource(r),
            None => bare.with_resource(&base::id::random_id()),
        }
        .map_err(|e| bad(e.to_string()))
    }

    /// A new user without an account (SASL ANONYMOUS, RFC 4505). The name is random and gone with the session.
    pub fn anonymous_identity(&self, host: Arc<Host>) -> Option<LoginIdentity> {
        let jid =
            Jid::from_parts(Some(&format!("guest-{}", base::id::random_id())), host.domain(), None).ok()?;
        Some(LoginIdentity { host, jid, id: AddressId::UNASSIGNED, revision: 0, ephemeral: true })
    }
}

/// A user without anything stored.
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
            // A user who wanted to be left alone is not let in without that.
            blocked: store::blocklists::decode(&login.blocklist)?,
            ..principal(identity, epoch)
        })),
    })
}

/// RFC 6120 section 7.6.2.1.
pub(crate) fn too_many_resources() -> StanzaError {
    StanzaError::new(StanzaCondition::ResourceConstraint)
        .text("too many resources are connected; close one of them")
}
