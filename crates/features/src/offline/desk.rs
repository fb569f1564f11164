//! One desk for each recipient with something to do: what is being stored for it, what is being delivered to it.
//!
//! A desk exists only while it is busy. Messages are stored by one task a desk, in the order in which they came and as
//! many at once as are waiting; messages are delivered by one task a desk. Both meet under the lock of [`Desks`]:
//!
//! - While a desk exists and the recipient can take messages, the account's `flushing` is set: the router sends newer
//!   messages here, behind the older ones.
//! - The deliverer ends, and clears `flushing`, when the store is empty and nothing is being stored, or when nobody is
//!   there to take messages.
//! - After each write the recipient is looked up again: it may have come while the write was on its way.
//!
//! Delivered messages are removed from the store when the receiver's connection has taken them. If it goes before, they
//! are delivered again: at least once, never out of order.
//!
//! Desks outlive a reload ([`Builder::kept`](throng_core::feature::Builder::kept)): what the handlers of the old host began
//! is seen by those of the new one. The options come with each message, since they may have changed.
//!
//! Locks: this one, then the account's, then the session's. Nothing waits and nothing is spawned under it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jid::{Jid, JidRef};
use parking_lot::Mutex;
use stanza::{StanzaCondition, StanzaError, append_child, payload::delay};
use store::{AddressId, Appended, OfflineMessage, Page, StoreError, Waiting};
use throng_core::fault::store_error;
use throng_core::session::Stamp;
use throng_core::{Account, Frame, Node, Session};
use xml::{Ns, Writer};

use super::answer::{Teller, Told, pair};

/// Messages written in one transaction at most.
const BATCH: usize = 64;
/// Messages read and delivered at a time.
const PAGE: u32 = 64;
/// Recipients whose number is remembered, a power of two.
const CACHE: usize = 1024;
const DAY_MILLIS: u64 = 86_400_000;

/// What a sender is told: kept, or an error.
pub(super) type Answer = Result<(), StanzaError>;

struct Job {
    stanza: Vec<u8>,
    teller: Teller<Answer>,
}

/// The options of the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) limit: u32,
    /// 0: never.
    pub(super) expiry_days: u64,
}

#[derive(Default)]
struct Desk {
    jobs: VecDeque<Job>,
    /// As the newest message brought them.
    rules: Rules,
    storing: bool,
    delivering: bool,
}

type Numbers = Box<[Option<(Jid, AddressId)>]>;

/// All desks of a host.
pub(super) struct Desks {
    desks: Mutex<HashMap<Jid, Desk>>,
    /// Numbers of recent recipients. A number is never given to another address, so an entry is never wrong.
    numbers: Mutex<Numbers>,
}

impl Desks {
    pub(super) fn new() -> Desks {
        Desks { desks: Mutex::default(), numbers: Mutex::new(vec![None; CACHE].into()) }
    }

    /// Puts a message behind those that are being stored for the recipient.
    pub(super) fn store(
        self: &Arc<Self>,
        node: &Arc<Node>,
        account: Option<&Arc<Account>>,
        to: JidRef<'_>,
        frame: &Frame,
        rules: Rules,
    ) -> Told<Answer> {
        let (teller, told) = pair();
        let owner = to.bare().to_jid();
        let job = Job { stanza: delayed(frame, owner.domain(), node.clock.unix_millis()), teller };
        let mut desks = self.desks.lock();
        let desk = desks.entry(owner.clone()).or_default();
        desk.jobs.push_back(job);
        desk.rules = rules;
        let start = !std::mem::replace(&mut desk.storing, true);
        if let Some(account) = account {
            account.with(|state| state.flushing |= state.sessions.iter().any(takes));
        }
        drop(desks);
        if start {
            let (desks, node) = (self.clone(), node.clone());
            node.clone().spawner.spawn("offline store", Box::pin(desks.storer(node, owner)));
        }
        told
    }

    /// A resource came or changed its priority: empties the store into it.
    pub(super) fn available(self: &Arc<Self>, node: &Arc<Node>, account: &Arc<Account>) {
        let mut desks = self.desks.lock();
        let busy = desks.get(account.jid.as_str()).is_some_and(|d| d.storing || d.delivering);
        let waiting = account.with(|state| {
            let there = state.sessions.iter().any(takes);
            state.flushing |= there && (busy || state.waiting);
            there && state.waiting
        });
        if waiting {
            let desk = desks.entry(account.jid.clone()).or_default();
            if !std::mem::replace(&mut desk.delivering, true) {
                drop(desks);
                self.deliver(node, &account.jid);
            }
        }
    }

    fn deliver(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid) {
        let (desks, task, owner) = (self.clone(), node.clone(), owner.clone());
        node.spawner.spawn("offline delivery", Box::pin(desks.deliverer(task, owner)));
    }

    // Storing.

    async fn storer(self: Arc<Self>, node: Arc<Node>, owner: Jid) {
        let guard = Guard { desks: &self, node: &node, owner: &owner, storing: true };
        loop {
            let (batch, rules): (Vec<Job>, Rules) = {
                let mut desks = self.desks.lock();
                let Some(desk) = desks.get_mut(&owner) else { break };
                let count = desk.jobs.len().min(BATCH);
                (desk.jobs.drain(..count).collect(), desk.rules)
            };
            if batch.is_empty() {
                if self.stored_all(&node, &owner) { break } else { continue }
            }
            let (stanzas, tellers): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|j| (j.stanza, j.teller)).unzip();
            let answers = self.write(&node, &owner, stanzas, rules).await;
            // Before the senders go on: their next messages must find `flushing` set if the recipient is there.
            if answers.iter().any(Result::is_ok) {
                self.stored(&node, &owner);
            }
            for (teller, answer) in tellers.into_iter().zip(answers) {
                teller.tell(answer);
            }
        }
        std::mem::forget(guard);
    }

    /// Writes messages; one answer for each.
    async fn write(&self, node: &Arc<Node>, owner: &Jid, stanzas: Vec<Vec<u8>>, rules: Rules) -> Vec<Answer> {
        let count = stanzas.len();
        let all = |answer: Answer| vec![answer; count];
        let id = match self.number(node, owner).await {
            Ok(Some(id)) => id,
            Ok(None) => return all(Err(StanzaCondition::ServiceUnavailable.into())),
            Err(error) => return all(Err(store_error(error))),
        };
        let now = node.clock.unix_millis();
        let expires = (rules.expiry_days > 0).then(|| now + rules.expiry_days * DAY_MILLIS);
        let messages =
            stanzas.into_iter().map(|stanza| OfflineMessage { owner: id, stored_at: now, expires, stanza });
        match node.stores.offline.append(messages.collect(), rules.limit).await {
            Err(error) => all(Err(store_error(error))),
            Ok(appended) => appended
                .into_iter()
                .map(|one| match one {
                    Appended::Stored { .. } => {
                        node.metrics.offline_stored.inc();
                        Ok(())
                    }
                    // XEP-0160 section 2, step 3.
                    Appended::Full => Err(StanzaError::new(StanzaCondition::ServiceUnavailable)
                        .text("the recipient's offline storage is full")),
                    Appended::NoAccount => Err(StanzaCondition::ServiceUnavailable.into()),
                })
                .collect(),
        }
    }

    async fn number(&self, node: &Arc<Node>, owner: &Jid) -> Result<Option<AddressId>, StoreError> {
        if let Some(account) = node.table.find(owner.as_ref()) {
            return Ok(Some(account.id));
        }
        let slot = throng_core::router::table::bare_hash(owner.as_ref()) as usize % CACHE;
        if let Some((jid, id)) = &self.numbers.lock()[slot]
            && jid == owner
        {
            return Ok(Some(*id));
        }
        let id = node.stores.addresses.find(owner).await?;
        if let Some(id) = id {
            self.numbers.lock()[slot] = Some((owner.clone(), id));
        }
        Ok(id)
    }

    /// Messages were written: if somebody is there to take them, they must be delivered.
    fn stored(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid) {
        let mut desks = self.desks.lock();
        let Some(account) = node.message_stored(owner.as_ref()) else { return };
        let there = account.with(|state| {
            let there = state.sessions.iter().any(takes);
            state.flushing |= there;
            there
        });
        let Some(desk) = desks.get_mut(owner) else { return };
        if there && !std::mem::replace(&mut desk.delivering, true) {
            drop(desks);
            self.deliver(node, owner);
        }
    }

    /// Nothing is left to be stored: frees the desk, unless a message came meanwhile. True if there is none.
    fn stored_all(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid) -> bool {
        let mut desks = self.desks.lock();
        let Some(desk) = desks.get_mut(owner) else { return true };
        if !desk.jobs.is_empty() {
            return false;
        }
        desk.storing = false;
        if desk.delivering {
            return true;
        }
        // A deliverer may have stepped back because of this task, or a resource may have come during a write
        // that failed.
        let mut again = false;
        if let Some(account) = node.table.find(owner.as_ref()) {
            account.with(|state| {
                again = state.waiting && state.sessions.iter().any(takes);
                state.flushing = again;
            });
        }
        if again {
            desk.delivering = true;
            drop(desks);
            self.deliver(node, owner);
        } else {
            desks.remove(owner);
        }
        true
    }

    // Delivering.

    async fn deliverer(self: Arc<Self>, node: Arc<Node>, owner: Jid) {
        let guard = Guard { desks: &self, node: &node, owner: &owner, storing: false };
        loop {
            let round = self.round(&node, &owner).await;
            if let Err(error) = &round {
                tracing::warn!(%error, "waiting messages could not be delivered");
            }
            if self.delivered_all(&node, &owner, round.is_err()) {
                break;
            }
        }
        std::mem::forget(guard);
    }

    /// Delivers until the store is empty or nobody takes messages any more.
    async fn round(&self, node: &Arc<Node>, owner: &Jid) -> Result<(), StoreError> {
        let Some(account) = node.table.find(owner.as_ref()) else { return Ok(()) };
        // Before the store is read: whoever writes after that sets it again.
        account.with(|state| state.waiting = false);
        loop {
            let now = node.clock.unix_millis();
            let page = node.stores.offline.fetch(account.id, Page::first(PAGE), now).await;
            let page = page.inspect_err(|_| account.with(|state| state.waiting = true))?;
            if page.items.is_empty() {
                return Ok(());
            }
            let Some(session) = account.with(|state| best(&state.sessions)) else {
                account.with(|state| state.waiting = true);
                return Ok(());
            };
            let (count, through) = hand_over(node, &session, page.items).await;
            // Until the connection took them, losing it gives them back; see `Frame::is_stored`.
            session.link.emptied().await;
            if count == 0 || !connected(&session) {
                continue;
            }
            node.metrics.offline_delivered.inc_by(count);
            let removed = node.stores.offline.remove_through(account.id, through).await;
            removed.inspect_err(|_| account.with(|state| state.waiting = true))?;
        }
    }

    /// A round is over: frees the desk, or says that another round is due. True if there is none.
    fn delivered_all(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid, failed: bool) -> bool {
        let mut desks = self.desks.lock();
        let Some(desk) = desks.get_mut(owner) else { return true };
        let mut again = false;
        if let Some(account) = node.table.find(owner.as_ref()) {
            account.with(|state| {
                let there = state.sessions.iter().any(takes);
                again = there && state.waiting && !failed;
                // While something is being stored, newer messages stay behind it; its writer delivers.
                state.flushing = again || there && desk.storing;
            });
        }
        if !again {
            desk.delivering = false;
            if !desk.storing {
                desks.remove(owner);
            }
        }
        !again
    }
}

/// Frees the desk when a task panics or is dropped.
struct Guard<'a> {
    desks: &'a Arc<Desks>,
    node: &'a Arc<Node>,
    owner: &'a Jid,
    storing: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut desks = self.desks.desks.lock();
        let Some(desk) = desks.get_mut(self.owner) else { return };
        // Senders whose message was not written are told so by the end of their `Teller`.
        let lost = if self.storing { std::mem::take(&mut desk.jobs) } else { VecDeque::new() };
        if self.storing {
            desk.storing = false;
        } else {
            desk.delivering = false;
        }
        let idle = !desk.storing && !desk.delivering;
        if idle {
            desks.remove(self.owner);
        }
        if let Some(account) = self.node.table.find(self.owner.as_ref()) {
            account.with(|state| {
                state.flushing &= !idle;
                state.waiting = true;
            });
        }
        drop(desks);
        drop(lost);
    }
}

/// Puts messages into the queue of a session, as fast as its connection takes them. How many went in, and the number
/// of the last one. Stops when the session does not take messages any more.
async fn hand_over(node: &Arc<Node>, session: &Arc<Session>, messages: Vec<Waiting>) -> (u64, u64) {
    let (mut count, mut through) = (0, 0);
    for message in messages {
        // Nothing to deliver if it cannot be read; it goes with the others.
        if let Some(frame) = Frame::from_store(&message.stanza, message.seq) {
            loop {
                if !takes(session) {
                    return (count, through);
                }
                if node.enqueue(session, frame.clone(), Stamp::None) {
                    break;
                }
                session.link.emptied().await;
            }
        }
        count += 1;
        through = message.seq;
    }
    (count, through)
}

/// Whether the connection is there to take anything.
fn connected(session: &Session) -> bool {
    !session.is_ended() && session.link.wish().is_none()
}

/// Whether the resource takes messages for the bare address (RFC 6121 section 8.5.2.1.1).
fn takes(session: &Arc<Session>) -> bool {
    session.priority().is_some_and(|p| p >= 0) && connected(session)
}

/// The resource with the highest priority; of equals the newest, which is the one that came for its messages.
fn best(sessions: &[Arc<Session>]) -> Option<Arc<Session>> {
    sessions.iter().filter(|s| takes(s)).max_by_key(|s| s.priority()).cloned()
}

/// The message with the time at which it was stored (XEP-0203 section 3).
fn delayed(frame: &Frame, domain: &str, now: u64) -> Vec<u8> {
    if frame.is_late() {
        return frame.bytes().to_vec();
    }
    let mut child = Vec::with_capacity(96);
    delay::write(&mut Writer::new(&mut child), domain, now);
    let mut out = Vec::new();
    append_child(frame.bytes(), frame.head(), &child, Ns::Delay, &mut out);
    out
}
