//! Backups of messages in the queues of sessions: they make messages safe whose clients take them slowly.
//!
//! A sender with stream management (XEP-0198 1.6.3, section 4) learns that a message was handled when it is *settled*: its
//! client has acknowledged it, or without stream management the kernel has taken it. A message that is not settled within
//! [`OVERDUE_MILLIS`] gets a backup in the offline store, which settles it; so an acknowledged message survives the end of
//! the process. In the common case nothing is stored.
//!
//! The sessions whose outboxes have unsettled messages are in [`Node::delivery_watch`].
//!
//! A message that another node handed over is tracked here as if its sender waited for it; its settlement ends the receipt
//! at the sender's node (`peers/src/handovers.rs`).
//!
//! Not implemented: messages of services and components, which count as handled when they are in a queue.

use std::sync::Arc;

use jid::Jid;

use crate::account::Account;
use crate::node::Node;
use crate::session::Session;
use crate::shared_stanza::SharedStanza;

pub use outbox::OVERDUE_MILLIS;

/// Sessions that are checked before other tasks run.
pub const CHECKS_PER_PASS: usize = 256;

/// Callback that begins the backups of messages in a session's outbox and returns the messages, which stay in the outbox. Call it once.
pub type BeginBackups<'a> = &'a mut dyn FnMut() -> Vec<SharedStanza>;

/// Stores backups of messages: a feature with offline storage.
pub trait MessageBackup: Send + Sync {
    /// Stores backups of the messages that `begin_backups` returns, which a session of this account holds, in this order, and settles
    /// the messages. Each message has begun its backup ([`SharedStanza::begin_backup`]); those that cannot have one must be
    /// cancelled. `begin_backups` locks the session's outbox. It must run under the lock that decides the order of the store: two
    /// tasks begin backups of one session, and the earlier messages must be stored first.
    fn back_up(&self, node: &Arc<Node>, account: &Arc<Account>, begin_backups: BeginBackups<'_>);

    /// Removes the backups of messages that were delivered.
    fn remove_backups(&self, node: &Arc<Node>, account: &Arc<Account>, messages: Vec<SharedStanza>);

    /// The last session that held this message is gone: its backup is an ordinary stored message.
    fn abandon_backup(&self, node: &Arc<Node>, account: &Arc<Account>, message: &SharedStanza);

    /// The number of the row that backs up a message of this owner, if it is written.
    fn row_of(&self, owner: &Jid, message: &SharedStanza) -> Option<u64>;

    /// A session of this owner is about to hold a message that another node has stored under this number.
    fn adopt_backup(&self, node: &Node, owner: &Jid, message: &SharedStanza, row: u64);

    /// Another node holds the message, and removes its backup.
    fn release_backup(&self, owner: &Jid, message: &SharedStanza);
}

impl Node {
    /// A tracked message was put into the session's queue.
    pub fn watch_delivery(&self, session: &Arc<Session>) {
        if session.outbox.start_watch() {
            self.delivery_watch.add(session.clone(), self.clock.now());
        }
    }

    /// Backs up the overdue messages of sessions whose check is due, at most [`CHECKS_PER_PASS`]. Must be called when
    /// [`outbox::DeliveryWatch::poll_due`] says so. True if more are due: the caller must yield and call it again.
    pub fn back_up_overdue(self: &Arc<Self>) -> bool {
        let now = self.clock.now();
        for _ in 0..CHECKS_PER_PASS {
            let Some(session) = self.delivery_watch.next_due(now) else { return false };
            let check = session.outbox.check_unsettled(now, OVERDUE_MILLIS);
            if check.must_check_again {
                self.delivery_watch.add(session.clone(), now);
            }
            if check.has_overdue {
                self.back_up(&session, &mut || session.outbox.begin_overdue_backups(now, OVERDUE_MILLIS));
            }
        }
        true
    }

    /// Backs up all unsettled messages of an account's sessions: a message that is about to be stored must follow them.
    pub fn back_up_unsettled(self: &Arc<Self>, account: &Account) {
        for session in account.sessions() {
            if session.outbox.may_have_unsettled() {
                self.back_up(&session, &mut || session.outbox.begin_unsettled_backups());
            }
        }
    }

    fn back_up(self: &Arc<Self>, session: &Session, begin_backups: BeginBackups<'_>) {
        let host = session.account.host();
        match &host.message_backup {
            Some(backup) => backup.back_up(self, &session.account, begin_backups),
            // A reload has disabled offline storage.
            None => {
                for message in begin_backups() {
                    message.cancel_backup();
                    message.settle_delivery();
                }
            }
        }
    }

    /// Removes the backups of messages that the session's client has taken. Must be called after each acknowledgement, and
    /// after a flush that was delayed.
    pub fn remove_delivered_backups(self: &Arc<Self>, session: &Session) {
        let messages = session.outbox.take_confirmed_backups();
        if messages.is_empty() {
            return;
        }
        if let Some(peers) = self.peers() {
            messages.iter().for_each(|message| peers.note_delivered(&session.account, message));
        }
        let host = session.account.host();
        if let Some(backup) = &host.message_backup {
            backup.remove_backups(self, &session.account, messages);
        }
    }

    /// The last session that held this message is gone. True if the store has the message, or is about to store it: it must
    /// not be rerouted.
    pub(crate) fn abandon_to_backup(
        self: &Arc<Self>,
        account: &Arc<Account>,
        message: &SharedStanza,
    ) -> bool {
        let host = account.host();
        let Some(backup) = &host.message_backup else { return false };
        let has_backup = message.abandon_to_backup();
        if has_backup {
            backup.abandon_backup(self, account, message);
        }
        has_backup
    }
}
