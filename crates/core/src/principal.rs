//! An authenticated user: what a login has read for [`Node::bind`], and what a bind refuses.
//!
//! Not implemented: the login itself, which is in the crate `access`.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaError};
use store::{AddressId, PhotoHash, RosterItem};

use crate::host::Host;
use crate::node::Node;
use crate::session::Session;

/// An authenticated user, with the initial data of a session; the login has read it.
#[derive(Debug)]
pub struct Principal {
    /// The host.
    pub host: Arc<Host>,
    /// The bare address.
    pub jid: Jid,
    /// Its id.
    pub id: AddressId,
    /// The roster.
    pub roster: Vec<RosterItem>,
    /// The version of the roster.
    pub roster_version: u64,
    /// Messages in offline storage.
    pub offline_messages: u32,
    /// Hash of the account's photo.
    pub photo: Option<PhotoHash>,
    /// Addresses that the account has blocked.
    pub blocked: Vec<Jid>,
    /// [`Node::epoch`] before the store was queried.
    pub epoch: u32,
    /// Revision of the credentials that were proved; see [`store::AccountSecrets::revision`].
    pub revision: u64,
    /// No stored account: SASL ANONYMOUS.
    pub ephemeral: bool,
}

impl Node {
    /// Refuses a bind that [`Node::bind`] would refuse. Called before the login reads the data of a
    /// session, so that a request that cannot succeed reads nothing from the store.
    ///
    /// # Errors
    /// As those of [`Node::bind`].
    pub fn check_bind(&self, bare: JidRef<'_>, resource: Option<&str>) -> Result<(), StanzaError> {
        let jid = self.full_address(bare, resource)?;
        let Some(account) = self.routing_table.find(bare) else { return Ok(()) };
        let sessions = account.sessions();
        let full = sessions.len() >= usize::from(self.limits().sessions_per_account);
        // A session of the same resource and a detached session make room.
        let gives_way = |s: &Arc<Session>| s.outbox.is_detached() || Some(s.resource()) == jid.resource();
        if full && !sessions.iter().any(gives_way) { Err(too_many_resources()) } else { Ok(()) }
    }

    /// The full address of the bound `resource`; random without a name.
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
}

/// The error of RFC 6120, section 7.6.2.1.
pub(crate) fn too_many_resources() -> StanzaError {
    StanzaError::new(StanzaCondition::ResourceConstraint)
        .text("too many resources are connected; disconnect one of them")
}
