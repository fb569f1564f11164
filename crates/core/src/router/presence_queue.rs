//! Presence broadcasts to more contacts than one pass handles: in chunks, so that other sessions are served in between.
//!
//! While a broadcast of an account is in progress, later ones of the account wait for it, in order: of all its resources, and of a
//! session that was bound to the same address since. Presence of the account that arrives from another node waits, too. So a
//! contact never receives an older presence after a later one. The account may change meanwhile:
//!
//! * Available presence is for contacts that are still subscribed and not blocked. One that was removed or blocked has
//!   received `unavailable`.
//! * Available presence that is no longer the last one of its session is not sent to the rest: the broadcast of the last one
//!   waits here or is about to begin.
//! * `unavailable` is for all contacts that were subscribed and not blocked when the session became unavailable. Those that were
//!   removed or blocked since have not received it, because the session was no longer available.
//!
//! A task of its own handles the chunks, so that the end of the sender's stream does not end them. The sender's next stanza waits.
//! That bounds the broadcasts: each stream and each event of a session adds at most one. Presence from another node has bounds in
//! bytes; above them it does not wait, so that the node that sends it does.
//!
//! Not implemented: chunks for contacts on other nodes. Their envelopes are sent at once, because a node releases its claim to
//! an address after them; a contact costs a look-up in the directory and 16 bytes.
//!
//! # Pitfalls
//!
//! A contact can receive one presence twice: from the broadcast, and because it became available or was approved meanwhile.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::spawn::yield_now;
use jid::JidRef;
use queues::keyed_queues::KeyedPushOutcome;
use stanza::{PresenceType, StanzaKind};
use store::Subscription;

use super::multicast::CHUNK;
use super::{Continuation, ResumedChain, RoutingWork};
use crate::account::{Account, Contact};
use crate::blocklist::Blocklist;
use crate::effect::Effects;
use crate::node::{Node, PresenceJob};
use crate::receipt::{ReceiptIssuer, receipt_pair};
use crate::shared_stanza::SharedStanza;

/// Counted for each job besides its stanza and its contacts.
const JOB_OVERHEAD: usize = 192;

/// A broadcast in progress.
struct PresenceBroadcast {
    account: Arc<Account>,
    stanza: SharedStanza,
    /// Resource of the sender.
    resource: Option<Box<str>>,
    /// Subscription bits of the contacts that receive it.
    to: Subscription,
    contacts: Box<[Contact]>,
    /// Position of the next contact.
    next: usize,
    /// The account's blocklist at the begin.
    blocked: Option<Arc<Blocklist>>,
    /// Sessions that have accepted it.
    sessions: u64,
    /// Wakes the task that waits for the end when it is dropped.
    _end: ReceiptIssuer,
}

impl PresenceBroadcast {
    /// Sends to the next chunk of contacts.
    fn step(&mut self, node: &Arc<Node>) -> ControlFlow<()> {
        let leaves = self.stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable);
        if !leaves && self.is_superseded() {
            return self.end(node);
        }
        let end = self.contacts.len().min(self.next.saturating_add(CHUNK));
        let chunk = &mut self.contacts[self.next..end];
        if !leaves {
            self.account.with(|state| {
                for contact in chunk.iter_mut() {
                    contact.subscription = state.find(contact.hash, contact.id);
                }
            });
        }
        let host = &self.account.host();
        let subscribers = chunk.iter().filter(|contact| contact.subscription.0 & self.to.0 != 0);
        for contact in subscribers {
            let sender = (&**host, &*self.account);
            let Some(account) = node.routing_table.find_by_id(contact.hash, contact.id) else { continue };
            self.sessions += if leaves {
                node.send_unless_blocked(sender, &account, &self.stanza, self.blocked.as_deref())
            } else {
                node.send_to_account(sender, &account, &self.stanza, true)
            };
        }
        self.next = end;
        if end < self.contacts.len() { ControlFlow::Continue(()) } else { self.end(node) }
    }

    fn end(&self, node: &Node) -> ControlFlow<()> {
        node.metrics.fanout.record(self.sessions);
        ControlFlow::Break(())
    }

    /// Whether the session has another presence since, or has ended.
    fn is_superseded(&self) -> bool {
        let Some(resource) = &self.resource else { return false };
        let same = |last: &SharedStanza| std::ptr::eq(last.bytes(), self.stanza.bytes());
        let session = self.account.session(resource);
        !session.is_some_and(|session| session.with(|state| state.presence.as_ref().is_some_and(same)))
    }
}

/// The presence of an account that is sent in order. Its jobs are steps of broadcasts, and presence from other nodes.
struct PresenceQueue {
    node: Arc<Node>,
    /// Keyed hash of the account's address. Addresses with the same hash share a queue.
    key: u64,
    ended: bool,
}

impl PresenceQueue {
    fn next(&mut self) -> Option<PresenceJob> {
        let next = self.node.presence_jobs.next(&self.key);
        self.ended = next.is_none();
        next
    }

    /// Performs the first step at once, and the rest in a task.
    fn begin(mut self, mut job: PresenceJob) {
        if job(&self.node).is_break() {
            let Some(next) = self.next() else { return };
            job = next;
        }
        let node = self.node.clone();
        node.spawner.spawn("presence broadcast", Box::pin(self.run(job)));
    }

    async fn run(mut self, mut job: PresenceJob) {
        loop {
            if job(&self.node).is_break() {
                let Some(next) = self.next() else { return };
                job = next;
            }
            yield_now().await;
        }
    }
}

impl Drop for PresenceQueue {
    /// A job has panicked: the others follow all the same.
    fn drop(&mut self) {
        if !self.ended
            && let Some(next) = self.next()
        {
            let rest = PresenceQueue { node: self.node.clone(), key: self.key, ended: false };
            self.node.spawner.spawn("presence broadcast", Box::pin(rest.run(next)));
        }
    }
}

impl Node {
    /// Sends presence to these contacts after the broadcasts of the account that are in progress. The end is deferred work.
    pub(super) fn broadcast_in_chunks(
        self: &Arc<Self>,
        account: &Arc<Account>,
        stanza: &SharedStanza,
        to: Subscription,
        contacts: &[Contact],
        work: &mut RoutingWork,
    ) {
        let (issuer, end) = receipt_pair();
        let from = stanza.head().from(stanza.bytes());
        let from = from.as_deref().and_then(JidRef::from_normalised);
        let mut broadcast = PresenceBroadcast {
            account: account.clone(),
            stanza: stanza.clone(),
            resource: from.and_then(|from| from.resource().map(Box::from)),
            to,
            contacts: contacts.into(),
            next: 0,
            blocked: account.blocked(),
            sessions: 0,
            _end: issuer,
        };
        let size = stanza.bytes().len().saturating_add(size_of_val(contacts));
        self.enter_presence_queue(
            account.hash,
            Box::new(move |node: &Arc<Node>| broadcast.step(node)),
            size,
            true,
        );
        work.pending.push(Box::pin(async move {
            // The issuer is dropped at the end, which is no failure here.
            let _ = poll_fn(|cx| end.poll_outcome(cx)).await;
            ResumedChain { effects: Effects::default(), continuation: Continuation::Nothing }
        }));
    }

    fn enter_presence_queue(self: &Arc<Self>, key: u64, job: PresenceJob, size: usize, forced: bool) {
        let (jobs, size) = (&self.presence_jobs, size.saturating_add(JOB_OVERHEAD));
        let entered = if forced { jobs.push_forced(key, job, size) } else { jobs.push(key, job, size) };
        match entered {
            KeyedPushOutcome::Owner(job) => {
                PresenceQueue { node: self.clone(), key, ended: false }.begin(job)
            }
            // The order is not kept for a node that sends more than a correct one.
            KeyedPushOutcome::Full(mut job) => _ = job(self),
            KeyedPushOutcome::Queued => {}
        }
    }

    /// Whether a broadcast of the account with this hash is in progress, so that other presence of the account must follow it.
    pub fn is_broadcasting(&self, hash: u64) -> bool {
        self.presence_jobs.contains(&hash)
    }

    /// Calls `deliver` when the broadcasts of the account with this hash that are in progress have ended. `size`: bytes that it
    /// holds; if too many wait, it is called at once.
    pub fn after_broadcasts(
        self: &Arc<Self>,
        hash: u64,
        size: usize,
        deliver: impl FnOnce() + Send + 'static,
    ) {
        let mut deliver = Some(deliver);
        let job = move |_: &Arc<Node>| {
            if let Some(deliver) = deliver.take() {
                deliver();
            }
            ControlFlow::Break(())
        };
        self.enter_presence_queue(hash, Box::new(job), size, false);
    }
}
