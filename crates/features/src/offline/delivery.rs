//! One desk for each recipient with something to do: what is being stored for it, what is being delivered to it.
//!
//! A desk exists only while it is busy. Messages are stored by one task a desk (`storer`), in the order in which they came
//! and as many at once as are waiting; messages are delivered by one task a desk (`deliverer`). Both meet under the lock of
//! [`OfflineDelivery`]:
//!
//! - While older messages are on their way, into the store or out of it, and the recipient can take messages, the
//!   account's `flushing` is set: the router sends newer messages here, behind the older ones ([`RecipientQueue::sync_flushing_flag`]).
//! - The deliverer puts page after page into the queue of one session. With the last page in, it *closes*: the storer
//!   begins no new batch, what it has just written follows, and what still waits to be written goes straight into the
//!   queue, behind the others. So it comes to an end however many senders go on.
//! - From then on newer messages take the ordinary way, and the deliverer only waits until what it put into the queue was
//!   taken by the connection (and acknowledged, XEP-0198), to remove it from the store. If the session goes before, the
//!   store still has the rest, and newer messages stay behind it again.
//!
//! What this cannot keep: messages that were stored while a session still held older ones that are only in its queue (it was
//! full, or the resource stopped taking messages) come before those if the session is lost then.
//!
//! Long because storing and delivering meet under one lock, and each case is decided with the other one in sight.
//!
//! Desks outlive a reload (`Builder::kept`): what the handlers of the old host began is seen by those of the new one.
//!
//! Locks: this one, then the account's, then the session's, then the link's. Nothing waits and nothing is spawned under it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};

use jid::{Jid, JidRef};
use parking_lot::Mutex;
use ring::digest;
use stanza::{StanzaCondition, StanzaError, append_child, payload::delay};
use store::{AddressId, AppendOutcome, OfflineMessage, Page, Quota, StoreError};
use throng_core::server_error::{store_error, unreadable_stanza};
use throng_core::{Account, Node, Session, SharedStanza};
use xml::{Ns, Writer};

use super::completion::{Completer, Completion, completion_pair};
use super::in_flight::{
    InFlightBatch, PageOutcome, accepts_messages, enqueue_page, has_queue_space, preferred_resource,
};

/// Messages written in one transaction at most.
const STORE_BATCH: usize = 64;
/// Messages read and delivered at a time.
const FETCH_PAGE: u32 = 64;
/// Recipients whose number is remembered, a power of two.
const ADDRESS_CACHE_SIZE: usize = 1024;
const DAY_MILLIS: u64 = 86_400_000;

/// What a sender is told: kept, or an error.
pub(super) type StoreOutcome = Result<(), StanzaError>;

struct PendingMessage {
    frame: SharedStanza,
    /// When it came, in milliseconds since 1970.
    received_at: u64,
    completer: Completer<StoreOutcome>,
}

/// The options of the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfflineRules {
    pub(super) quota: Quota,
    /// 0: never.
    pub(super) expiry_days: u64,
}

#[derive(Default)]
struct RecipientQueue {
    pending: VecDeque<PendingMessage>,
    /// As the newest message brought them; none before the first.
    rules: Option<OfflineRules>,
    /// There is a storer.
    storing: bool,
    /// The storer begins no new batch: the deliverer takes what waits.
    closing: bool,
    /// There is a deliverer.
    delivering: bool,
    /// The deliverer is to look into the store.
    fetch_due: bool,
    /// It is on its way from there to having closed.
    fetching: bool,
    /// Of the deliverer.
    waker: Option<Waker>,
}

/// What is to be done when the lock is given back.
#[derive(Default)]
struct FollowUp {
    start_storing: bool,
    start_delivery: bool,
    waker: Option<Waker>,
}

impl RecipientQueue {
    /// Keeps the account's `flushing` right; to be called behind every change.
    fn sync_flushing_flag(&self, account: Option<&Arc<Account>>) {
        let Some(account) = account else { return };
        account.with(|state| {
            let older = self.storing || self.fetch_due || self.fetching || !self.pending.is_empty();
            let there = state.sessions.iter().any(accepts_messages);
            state.flushing = there && (older || self.delivering && state.may_have_offline_messages);
        });
    }
    fn is_idle(&self) -> bool {
        !self.storing && !self.delivering && self.pending.is_empty()
    }
    /// Lets the deliverer look into the store.
    fn schedule_delivery(&mut self, then: &mut FollowUp) {
        self.fetch_due = true;
        then.start_delivery |= !std::mem::replace(&mut self.delivering, true);
        then.waker = self.waker.take().or(then.waker.take());
    }
    /// Lets what waits be written.
    fn schedule_store(&mut self, then: &mut FollowUp) {
        then.start_storing |= !std::mem::replace(&mut self.storing, true);
    }
}

type AddressIdCache = Box<[Option<(Jid, AddressId)>]>;

/// All desks of a host.
pub(super) struct OfflineDelivery {
    recipients: Mutex<HashMap<Jid, RecipientQueue>>,
    /// Numbers of recent recipients. A number is never given to another address, so an entry is never wrong.
    address_ids: Mutex<AddressIdCache>,
}

impl OfflineDelivery {
    pub(super) fn new() -> OfflineDelivery {
        OfflineDelivery {
            recipients: Mutex::default(),
            address_ids: Mutex::new(vec![None; ADDRESS_CACHE_SIZE].into()),
        }
    }

    /// Changes a desk, and does behind the lock what follows from it.
    fn update<T>(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        change: impl FnOnce(&mut RecipientQueue, Option<&Arc<Account>>, &mut FollowUp) -> T,
    ) -> T {
        let mut then = FollowUp::default();
        let mut desks = self.recipients.lock();
        let account = node.routing_table.find(owner.as_ref());
        let desk = desks.entry(owner.clone()).or_default();
        let changed = change(desk, account.as_ref(), &mut then);
        desk.sync_flushing_flag(account.as_ref());
        if desk.is_idle() {
            desks.remove(owner);
        }
        drop(desks);
        if let Some(waker) = then.waker {
            waker.wake();
        }
        if then.start_storing {
            let (desks, task, owner) = (self.clone(), node.clone(), owner.clone());
            node.spawner.spawn("offline store", Box::pin(desks.store_task(task, owner)));
        }
        if then.start_delivery {
            let (desks, task, owner) = (self.clone(), node.clone(), owner.clone());
            node.spawner.spawn("offline delivery", Box::pin(desks.delivery_task(task, owner)));
        }
        changed
    }

    /// Puts a message behind those that are being stored for the recipient.
    pub(super) fn store(
        self: &Arc<Self>,
        node: &Arc<Node>,
        to: JidRef<'_>,
        frame: &SharedStanza,
        rules: OfflineRules,
    ) -> Completion<StoreOutcome> {
        let (teller, told) = completion_pair();
        let job =
            PendingMessage { frame: frame.clone(), received_at: node.clock.unix_millis(), completer: teller };
        self.update(node, &to.bare().to_jid(), |desk, _, then| {
            desk.pending.push_back(job);
            desk.rules = Some(rules);
            if !desk.closing {
                desk.schedule_store(then);
            }
        });
        told
    }

    /// A resource came or changed its priority: empties the store into it.
    pub(super) fn available(self: &Arc<Self>, node: &Arc<Node>, account: &Arc<Account>) {
        let waiting = account.with(|state| state.may_have_offline_messages);
        if !waiting && !self.recipients.lock().contains_key(&account.jid) {
            return;
        }
        self.update(node, &account.jid, |desk, _, then| {
            if account
                .with(|state| state.may_have_offline_messages && state.sessions.iter().any(accepts_messages))
            {
                desk.schedule_delivery(then);
            }
        });
    }

    // Storing.

    async fn store_task(self: Arc<Self>, node: Arc<Node>, owner: Jid) {
        let guard = RecipientGuard { delivery: &self, node: &node, owner: &owner, storing: true };
        loop {
            let (batch, rules) = self.update(&node, &owner, |desk, account, then| {
                if !desk.closing && !desk.pending.is_empty() {
                    let count = desk.pending.len().min(STORE_BATCH);
                    return (desk.pending.drain(..count).collect::<Vec<_>>(), desk.rules);
                }
                desk.storing = false;
                // The deliverer may wait for this, or has stepped back while there was something to write; or a resource
                // came during a write that failed.
                then.waker = desk.waker.take();
                let again = account.is_some_and(|a| {
                    a.with(|state| {
                        state.may_have_offline_messages && state.sessions.iter().any(accepts_messages)
                    })
                });
                if again && !desk.delivering {
                    desk.schedule_delivery(then);
                }
                (Vec::new(), desk.rules)
            });
            if batch.is_empty() {
                break;
            }
            let (mut jobs, mut stanzas) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
            for job in batch {
                match with_delay(&job.frame, owner.domain(), job.received_at) {
                    Ok(stanza) => {
                        stanzas.push(stanza);
                        jobs.push(job);
                    }
                    Err(error) => job.completer.complete(Err(error)),
                }
            }
            if jobs.is_empty() {
                continue;
            }
            let Some(rules) = rules else { break };
            let answers = self.store_batch(&node, &owner, stanzas, rules).await;
            // Before the senders go on: their next messages must find `flushing` set if the recipient is there.
            if answers.iter().any(Result::is_ok) {
                self.update(&node, &owner, |desk, _, then| {
                    let account = node.message_stored(owner.as_ref());
                    if account.is_some_and(|a| a.with(|state| state.sessions.iter().any(accepts_messages))) {
                        desk.schedule_delivery(then);
                    }
                });
            }
            for (job, answer) in jobs.into_iter().zip(answers) {
                job.completer.complete(answer);
            }
        }
        std::mem::forget(guard);
    }

    /// Writes messages; one answer for each.
    async fn store_batch(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
        stanzas: Vec<Vec<u8>>,
        rules: OfflineRules,
    ) -> Vec<StoreOutcome> {
        let count = stanzas.len();
        let all = |answer: StoreOutcome| vec![answer; count];
        let id = match self.address_id(node, owner).await {
            Ok(Some(id)) => id,
            Ok(None) => return all(Err(StanzaCondition::ServiceUnavailable.into())),
            Err(error) => return all(Err(store_error(error))),
        };
        let now = node.clock.unix_millis();
        let expires = (rules.expiry_days > 0).then(|| now + rules.expiry_days * DAY_MILLIS);
        let messages = stanzas.into_iter().map(|stanza| {
            let sender = sender_fingerprint(&stanza, owner);
            OfflineMessage { owner: id, sender, stored_at: now, expires, stanza }
        });
        match node.stores.offline.append(messages.collect(), rules.quota).await {
            Err(error) => all(Err(store_error(error))),
            Ok(appended) => appended
                .into_iter()
                .map(|one| match one {
                    AppendOutcome::Stored { .. } => {
                        node.metrics.offline_stored.inc();
                        Ok(())
                    }
                    AppendOutcome::Full => {
                        node.metrics.offline_refused.inc(["full"]);
                        Err(storage_full())
                    }
                    // For this sender it is full. The answer does not tell which limit was reached: a sender could learn
                    // from it that the recipient is away, and how long (RFC 6121 section 8.5.2).
                    AppendOutcome::SenderFull => {
                        node.metrics.offline_refused.inc(["sender"]);
                        Err(storage_full())
                    }
                    AppendOutcome::NoAccount => Err(StanzaCondition::ServiceUnavailable.into()),
                })
                .collect(),
        }
    }

    async fn address_id(&self, node: &Arc<Node>, owner: &Jid) -> Result<Option<AddressId>, StoreError> {
        if let Some(account) = node.routing_table.find(owner.as_ref()) {
            return Ok(Some(account.id));
        }
        let slot = node.routing_table.hash(owner.as_ref()) as usize % ADDRESS_CACHE_SIZE;
        if let Some((jid, id)) = &self.address_ids.lock()[slot]
            && jid == owner
        {
            return Ok(Some(*id));
        }
        let id = node.stores.addresses.find(owner).await?;
        if let Some(id) = id {
            self.address_ids.lock()[slot] = Some((owner.clone(), id));
        }
        Ok(id)
    }

    // Delivering.

    async fn delivery_task(self: Arc<Self>, node: Arc<Node>, owner: Jid) {
        let guard = RecipientGuard { delivery: &self, node: &node, owner: &owner, storing: false };
        let mut tray = None;
        let mut failed = false;
        loop {
            if let Err(error) = self.remove_delivered(&node, &owner, &mut tray).await {
                tracing::warn!(%error, "delivered messages could not be removed from the store");
                failed = true;
            }
            let held = tray.is_some();
            let look = self.update(&node, &owner, |desk, account, _| {
                // Somebody may have come, or the session that was to get it has gone.
                desk.fetch_due |= !held
                    && !failed
                    && account.is_some_and(|a| {
                        a.with(|state| {
                            state.may_have_offline_messages && state.sessions.iter().any(accepts_messages)
                        })
                    });
                desk.fetching = std::mem::take(&mut desk.fetch_due);
                desk.delivering = desk.fetching || held;
                desk.fetching
            });
            if look {
                let round = self.deliver_pages(&node, &owner, &mut tray).await;
                failed = round.is_err();
                if let Err(error) = round {
                    tracing::warn!(%error, "waiting messages could not be delivered");
                }
                self.update(&node, &owner, |desk, account, then| {
                    desk.fetching = false;
                    desk.closing = false;
                    if !desk.pending.is_empty() {
                        desk.schedule_store(then);
                    }
                    if let (true, Some(account)) = (failed, account) {
                        account.with(|state| state.may_have_offline_messages = true);
                    }
                });
            } else if let Some(tray) = &tray {
                self.wait_for_work(&owner, tray).await;
            } else {
                break;
            }
        }
        std::mem::forget(guard);
    }

    /// Removes from the store what the session's connection has taken. What is left when the session is gone is
    /// delivered again.
    async fn remove_delivered(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
        tray: &mut Option<InFlightBatch>,
    ) -> Result<(), StoreError> {
        while let Some(held) = tray {
            let progress = held.session.outbox.delivery_progress(None);
            let safe = held.removable_through(progress.delivered_through);
            if safe > held.removed_through {
                let removed = node.stores.offline.remove_through(held.owner, safe).await;
                match removed {
                    Ok(count) => node.metrics.offline_delivered.inc_by(u64::from(count)),
                    Err(error) => {
                        // They will come again.
                        self.abandon_batch(node, owner, tray);
                        return Err(error);
                    }
                };
                held.removed_through = safe;
            } else if held.removed_through >= held.fetched_through {
                held.session.outbox.stop_tracking_stored();
                *tray = None;
            } else if progress.closed {
                self.abandon_batch(node, owner, tray);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// The store still has what is in the tray.
    fn abandon_batch(&self, node: &Arc<Node>, owner: &Jid, tray: &mut Option<InFlightBatch>) {
        if let Some(tray) = tray.take() {
            tray.session.outbox.stop_tracking_stored();
        }
        if let Some(account) = node.routing_table.find(owner.as_ref()) {
            account.with(|state| state.may_have_offline_messages = true);
        }
    }

    /// Waits until there is something to do: to remove, to deliver again, or to look into the store.
    async fn wait_for_work(&self, owner: &Jid, tray: &InFlightBatch) {
        std::future::poll_fn(|cx| {
            let progress = tray.session.outbox.delivery_progress(Some(cx));
            if progress.closed || tray.removable_through(progress.delivered_through) > tray.removed_through {
                return Poll::Ready(());
            }
            let mut desks = self.recipients.lock();
            let Some(desk) = desks.get_mut(owner) else { return Poll::Ready(()) };
            if desk.fetch_due {
                return Poll::Ready(());
            }
            desk.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Delivers until nothing waits in the store or on the desk, or nobody takes messages any more.
    async fn deliver_pages(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        tray: &mut Option<InFlightBatch>,
    ) -> Result<(), StoreError> {
        let Some(account) = node.routing_table.find(owner.as_ref()) else { return Ok(()) };
        let wait = |waiting| account.with(|state| state.may_have_offline_messages = waiting);
        loop {
            // Before the store is read: whoever writes after that sets it again.
            wait(false);
            let now = node.clock.unix_millis();
            let after = tray.as_ref().map_or(0, |tray| tray.fetched_through);
            let page = node.stores.offline.fetch(account.id, Page::after(after, FETCH_PAGE), now).await;
            let page = page.inspect_err(|_| wait(true))?;
            // Messages of which some are in a session's queue go on into that one.
            let session = match tray {
                Some(tray) => Some(tray.session.clone()),
                None => account.with(|state| preferred_resource(&state.sessions)),
            };
            let Some(session) = session.filter(accepts_messages) else {
                wait(true);
                return Ok(());
            };
            if !page.items.is_empty() {
                match enqueue_page(node, &session, account.id, page.items, tray).await {
                    PageOutcome::Enqueued => {}
                    PageOutcome::Blocked => {
                        // The store still has what is in the queue of that session: another resource gets it, too.
                        if account
                            .with(|state| preferred_resource(&state.sessions))
                            .is_some_and(|s| !s.outbox.is_detached())
                        {
                            self.abandon_batch(node, owner, tray);
                        } else {
                            self.wait_for_resumption(owner, &session).await;
                        }
                        continue;
                    }
                    PageOutcome::Ended => {
                        wait(true);
                        return Ok(());
                    }
                }
            }
            if page.next.is_none() && self.drain_tail(node, owner, &account, &session).await {
                return Ok(());
            }
        }
    }

    /// Waits until a session without a connection has one and an empty queue, or is over, or somebody else comes.
    async fn wait_for_resumption(&self, owner: &Jid, session: &Arc<Session>) {
        std::future::poll_fn(|cx| {
            if has_queue_space(session, cx) {
                return Poll::Ready(());
            }
            let mut desks = self.recipients.lock();
            let Some(desk) = desks.get_mut(owner) else { return Poll::Ready(()) };
            if std::mem::take(&mut desk.fetch_due) {
                return Poll::Ready(());
            }
            desk.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The last page is in the queue: what comes behind it follows. True if nothing is left to follow.
    async fn drain_tail(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        account: &Arc<Account>,
        session: &Arc<Session>,
    ) -> bool {
        self.wait_until(owner, |desk| {
            desk.closing = true;
            !desk.storing
        })
        .await;
        let mut told = Vec::new();
        let (closed, full) = self.update(node, owner, |desk, _, then| {
            desk.fetch_due = false;
            if account.with(|state| state.may_have_offline_messages) {
                // What the storer had begun is in the store now.
                return (false, false);
            }
            // All or none: what is only in a queue must not be followed by what is only in the store, or losing the
            // session would change their order.
            let fits = session.outbox.has_room_for(desk.pending.iter().map(|job| &job.frame), &node.limits());
            while let Some(job) = desk.pending.pop_front() {
                if fits
                    && accepts_messages(session)
                    && node.deliver_if_first_accepts(account, &job.frame, session)
                {
                    told.push(job.completer);
                } else {
                    desk.pending.push_front(job);
                    break;
                }
            }
            if desk.pending.is_empty() {
                (desk.fetching, desk.closing) = (false, false);
                return (true, false);
            }
            // They do not fit: they are written after all, and come with a next page.
            desk.schedule_store(then);
            desk.closing = false;
            (!accepts_messages(session), accepts_messages(session))
        });
        for teller in told {
            teller.complete(Ok(()));
        }
        if full {
            self.wait_until(owner, |desk| desk.fetch_due || !desk.storing).await;
        }
        closed
    }

    /// Waits, for the deliverer, until something is so.
    async fn wait_until(&self, owner: &Jid, mut so: impl FnMut(&mut RecipientQueue) -> bool) {
        std::future::poll_fn(|cx| {
            let mut desks = self.recipients.lock();
            let Some(desk) = desks.get_mut(owner) else { return Poll::Ready(()) };
            if so(desk) {
                return Poll::Ready(());
            }
            desk.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Frees the desk when a task panics or is dropped.
struct RecipientGuard<'a> {
    delivery: &'a Arc<OfflineDelivery>,
    node: &'a Arc<Node>,
    owner: &'a Jid,
    storing: bool,
}

impl Drop for RecipientGuard<'_> {
    fn drop(&mut self) {
        let lost = self.delivery.update(self.node, self.owner, |desk, account, then| {
            then.waker = desk.waker.take();
            let lost = if self.storing {
                desk.storing = false;
                // Senders whose message was not written are told so by the end of their `Completer`.
                std::mem::take(&mut desk.pending)
            } else {
                (desk.delivering, desk.fetch_due, desk.fetching, desk.closing) = (false, false, false, false);
                if !desk.pending.is_empty() {
                    desk.schedule_store(then);
                }
                VecDeque::new()
            };
            if let Some(account) = account {
                account.with(|state| state.may_have_offline_messages = true);
            }
            lost
        });
        drop(lost);
    }
}

/// XEP-0160 section 2, step 3.
fn storage_full() -> StanzaError {
    StanzaError::new(StanzaCondition::ServiceUnavailable).text("the recipient's offline storage is full")
}

/// Who sent a message, as a number for the store: a part of a SHA-256 that nobody finds a second address for. Nobody for the
/// owner's own and the server's, which no share binds.
fn sender_fingerprint(stanza: &[u8], owner: &Jid) -> u64 {
    let frame = SharedStanza::parse(stanza);
    let from = frame.as_ref().and_then(|frame| frame.head().raw_from(frame.bytes()));
    // Neither localpart nor domain has characters that are escaped in an attribute.
    let bare = from.map(|from| from.split_once('/').map_or(from, |(bare, _)| bare)).unwrap_or_default();
    if bare.is_empty() || bare == owner.as_ref().as_str() || bare == owner.domain() {
        return 0;
    }
    let hash = digest::digest(&digest::SHA256, bare.as_bytes());
    let number = hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    (number >> 1).max(1)
}

/// The message with the time at which it was stored (XEP-0203 section 3).
///
/// # Errors
/// If it could not be read when it comes out of the store: then it is refused instead of stored.
fn with_delay(frame: &SharedStanza, domain: &str, now: u64) -> Result<Vec<u8>, StanzaError> {
    if frame.is_delayed() {
        return Ok(frame.bytes().to_vec());
    }
    let mut child = Vec::with_capacity(96);
    delay::write(&mut Writer::new(&mut child), domain, now);
    let mut out = Vec::new();
    append_child(frame.bytes(), frame.head(), &child, Ns::Delay, &mut out).map_err(unreadable_stanza)?;
    throng_core::shared_stanza::check(&out).map_err(unreadable_stanza)?;
    Ok(out)
}
