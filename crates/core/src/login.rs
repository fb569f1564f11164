//! Logging in: one look-up in the store brings credentials, roster and the count of waiting messages.

use std::sync::Arc;

use jid::Jid;
use store::AddressId;

use crate::fault::Fault;
use crate::host::Host;
use crate::node::{Node, Principal};

/// An account as the store knows it.
#[derive(Debug)]
pub struct Found {
    /// Who it is, ready to be bound.
    pub principal: Principal,
    /// Opaque to the engine; `sasl` reads them.
    pub credentials: Vec<u8>,
    /// As opaque: tokens for quick logins.
    pub tokens: Vec<u8>,
    /// May not log in.
    pub disabled: bool,
}

impl Node {
    /// Looks an account up: one round trip to the store.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn look_up(&self, host: Arc<Host>, jid: Jid) -> Result<Option<Found>, Fault> {
        // Read before the store is asked, so that a write in between is noticed at bind.
        let epoch = self.epoch(jid.as_ref());
        let Some(login) = self.stores.logins.login(jid.as_ref()).await? else { return Ok(None) };
        let principal = Principal {
            host,
            jid,
            id: login.id,
            roster: login.roster,
            roster_version: login.roster_version,
            offline: login.offline,
            photo: login.photo,
            // Who wanted to be left alone is not let in without that.
            blocked: store::blocklists::decode(&login.blocklist)?,
            epoch,
            ephemeral: false,
        };
        Ok(Some(Found {
            principal,
            credentials: login.credentials,
            tokens: login.tokens,
            disabled: login.disabled,
        }))
    }

    /// A new user without an account (SASL ANONYMOUS, RFC 4505). The name is random and gone with the session.
    pub fn guest(&self, host: Arc<Host>) -> Option<Principal> {
        let jid =
            Jid::from_parts(Some(&format!("guest-{}", base::id::random_id())), host.domain(), None).ok()?;
        Some(Principal {
            epoch: self.epoch(jid.as_ref()),
            host,
            jid,
            id: AddressId::UNASSIGNED,
            roster: Vec::new(),
            roster_version: 0,
            offline: 0,
            photo: None,
            blocked: Vec::new(),
            ephemeral: true,
        })
    }
}
