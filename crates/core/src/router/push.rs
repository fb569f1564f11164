//! Pushes to an account's own sessions on all nodes: copies, roster and blocklist pushes, presence of the account itself.

use std::sync::Arc;

use super::RoutingWork;
use crate::account::Account;
use crate::node::Node;
use crate::session::{Session, ToRewrite};
use crate::shared_stanza::SharedStanza;

/// Sessions of an account that receive a push.
#[derive(Clone, Copy)]
pub struct PushSelection {
    /// They have all of these flags.
    pub flags: u64,
    /// They are available.
    pub available: bool,
    /// The `to` that is written.
    pub to: ToRewrite,
}

impl PushSelection {
    /// Whether the session receives the push.
    pub fn selects(&self, session: &Session) -> bool {
        session.flags.has(self.flags) && (!self.available || session.is_available())
    }
}

impl Node {
    /// Pushes a stanza to the selected sessions of an account on all nodes, except some resources.
    pub(super) fn push_to_selected<'a>(
        self: &Arc<Self>,
        account: &Arc<Account>,
        selection: PushSelection,
        except: impl Iterator<Item = &'a str> + Clone,
        stanza: &SharedStanza,
        work: &mut RoutingWork,
    ) {
        let peers = self.peers();
        let is_latest = peers.is_none_or(|peers| peers.record_push(self, account, stanza));
        for session in account.sessions().into_iter().filter(|_| is_latest) {
            if selection.selects(&session) && !except.clone().any(|other| other == session.resource()) {
                self.push(&session, stanza.clone(), selection.to, work);
            }
        }
        if let Some(peers) = peers {
            peers.push_to_peers(self, account, selection, &mut except.into_iter(), stanza);
        }
    }
}
