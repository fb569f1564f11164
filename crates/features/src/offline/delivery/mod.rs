//! Offline delivery: one queue for each recipient with messages that are being stored or delivered.
//!
//! A recipient queue exists only while it is busy. One task per recipient stores messages (`store_task`), in order of
//! arrival and in batches of those that are pending; another one delivers stored messages (`delivery_task`). What both do
//! is one state (`queue_state`) under the lock of [`OfflineDelivery`]:
//!
//! * While older messages are on their way, into the store or out of it, and the recipient accepts messages, the
//!   account's `flushing` is set: the router sends newer messages here, after the older ones
//!   ([`RecipientQueue::sync_account`]). A resource that becomes available meanwhile finds `has_messages_in_transit`.
//! * The delivery task puts page after page into the queue of one session. After the last page it drains: the store
//!   task begins no further batch, messages that it has just written are delivered, and pending ones go directly into
//!   the session's queue, after the others. So delivery ends however many senders continue.
//! * From then on newer messages are routed normally, and the delivery task only waits until the connection has taken
//!   the queued messages (and acknowledged them, XEP-0198), to remove them from the store. If the session ends before
//!   that, the store still has the rest, and newer messages stay after it again.
//!
//! Senders do not wait: each message has a receipt, which is fulfilled when it is stored or in a session's queue; for a
//! sender with stream management, when the session has delivered it.
//!
//! Backups of messages that sessions hold (`backups`) are pending with the others, in order, but are never delivered from
//! here, and newer messages need not follow them.
//!
//! What fails because of the store is retried (`failed_deliveries`): the removal of delivered messages, which are not delivered
//! again while their session lasts, and the delivery of others. Newer messages do not wait for that and come first.
//!
//! Not guaranteed: if messages are stored while a session still holds older ones that are only in its queue (it was
//! full, or the resource stopped accepting messages), and that session is lost, the stored ones come first.
//!
//! Recipient queues survive a reload (`FeatureBuilder::shared_state`), so the new host's handlers see work that the old
//! host's handlers started.
//!
//! Lock order: this one, then the account's, then the session's, then the outbox's. No code waits, spawns or runs a
//! chain of handlers while holding it.
//!
//! Long because storing and delivering meet under one lock, and each case is decided with the other one in sight.

mod failed_deliveries;
mod storing;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::{LeafMutex, RankedMutex, rank};
use jid::{Jid, JidRef};
use smallvec::SmallVec;
use stanza::{StanzaCondition, StanzaError};
use store::{AddressId, Page, Quota, StoreError};
use throng_core::message_backup::BeginBackups;
use throng_core::receipt::receipt_pair;
use throng_core::{Account, Node, Receipt, ReceiptIssuer, Session, SharedStanza};

use self::failed_deliveries::{FailedDeliveries, RETRY_SECONDS};
use super::backups::{MessageBackups, ranges_without};
use super::in_flight::{
    InFlightBatch, PageOutcome, accepts_messages, enqueue_page, has_queue_space, preferred_resource,
};
use super::pending::{PendingBytes, PendingMessage, PendingMessages, QueuedMessage};
use super::queue_state::{DeliveryPhase, QueueAction, QueueEvent, QueueState, StorePhase};
use super::storage_policy;

/// Messages read and delivered at a time.
const FETCH_PAGE: u32 = 64;
/// Batches of pending messages that are queued after the last page before other tasks have their turn.
const MAX_DRAIN_ROUNDS: u32 = 16;

/// Options of the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfflineRules {
    pub(super) quota: Quota,
    /// 0 disables expiry.
    pub(super) expiry_days: u64,
}

/// How a message came here.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageOrigin {
    /// The sender waits until it is delivered or stored.
    pub(super) tracks_delivery: bool,
    /// It was in the queue of a session that has ended.
    pub(super) redelivery: bool,
}

struct RecipientQueue {
    pending: PendingMessages,
    state: QueueState,
    /// The store task writes messages other than backups.
    writes_messages: bool,
    /// Batches of backups that the store task has begun, and has finished: `MessageBackups` knows their numbers.
    backup_batches: u64,
    finished_backup_batches: u64,
    /// Wakes the delivery task.
    waker: Option<Waker>,
}

/// Actions to take after the lock is released.
#[derive(Default)]
struct FollowUp {
    start_storing: bool,
    start_delivery: bool,
    waker: Option<Waker>,
}

impl RecipientQueue {
    fn new(total: Arc<PendingBytes>) -> RecipientQueue {
        RecipientQueue {
            pending: PendingMessages::new(total),
            state: QueueState::IDLE,
            writes_messages: false,
            backup_batches: 0,
            finished_backup_batches: 0,
            waker: None,
        }
    }

    /// Changes the state.
    fn on(&mut self, event: QueueEvent, then: &mut FollowUp) {
        let (state, action) = self.state.after(event);
        self.state = state;
        match action {
            QueueAction::None => {}
            QueueAction::StartStoring => then.start_storing = true,
            QueueAction::StartDelivery => then.start_delivery = true,
            QueueAction::WakeDelivery => self.wake_delivery(then),
        }
    }

    fn wake_delivery(&mut self, then: &mut FollowUp) {
        then.waker = self.waker.take().or(then.waker.take());
    }

    /// The store task writes no backups.
    fn finish_backups(&mut self, then: &mut FollowUp) {
        if self.finished_backup_batches < self.backup_batches {
            self.finished_backup_batches = self.backup_batches;
            self.wake_delivery(then);
        }
    }

    /// Has pending messages stored, if there are any.
    fn store_pending(&mut self, then: &mut FollowUp) {
        if !self.pending.is_empty() {
            self.on(QueueEvent::MessagesPending, then);
        }
    }

    /// Takes the next batch to write.
    fn take_batch(&mut self) -> Vec<QueuedMessage> {
        let batch = self.pending.take_batch();
        let is_backup = batch.first().map(|first| first.message.is_backup);
        self.writes_messages = is_backup == Some(false);
        self.backup_batches += u64::from(is_backup == Some(true));
        batch
    }

    /// Updates what the router knows; must be called after every change.
    fn sync_account(&self, account: Option<&Arc<Account>>) {
        let Some(account) = account else { return };
        // Newer messages follow backups in the queues of sessions, and need not wait until those are written.
        let delivery = QueueState { store: StorePhase::Idle, ..self.state };
        let older = delivery.has_older_messages() || self.writes_messages || self.pending.has_messages();
        let delivering = self.state.delivery != DeliveryPhase::Idle;
        account.with(|state| {
            let there = state.sessions.iter().any(accepts_messages);
            state.has_messages_in_transit = older;
            state.flushing = there && (older || delivering && state.may_have_offline_messages);
        });
    }

    /// Whether this node delivers what it has stored. What is being delivered here goes on.
    fn delivers_here(&self, node: &Arc<Node>, account: &Account) -> bool {
        self.state.delivery != DeliveryPhase::Idle
            || node.peers().is_none_or(|peers| peers.delivers_stored(node, account))
    }

    fn is_idle(&self) -> bool {
        self.state == QueueState::IDLE && self.pending.is_empty()
    }
}

/// Whether the store may hold messages and a resource accepts them.
fn can_deliver(account: &Account) -> bool {
    account.with(|state| state.may_have_offline_messages && state.sessions.iter().any(accepts_messages))
}

/// Recipient queues of a host.
pub(super) struct OfflineDelivery {
    recipients: RankedMutex<HashMap<Jid, RecipientQueue>, { rank::RECIPIENT_QUEUES }>,
    /// Address ids of recent recipients. An id is never reused for another address, so an entry is never wrong.
    address_ids: LeafMutex<HashMap<Jid, AddressId>>,
    pub(super) backups: MessageBackups,
    /// Hashes the addresses of senders.
    sender_hasher: RandomState,
}

impl OfflineDelivery {
    pub(super) fn new() -> OfflineDelivery {
        OfflineDelivery {
            recipients: RankedMutex::default(),
            address_ids: LeafMutex::default(),
            backups: MessageBackups::default(),
            sender_hasher: RandomState::new(),
        }
    }

    /// Changes a recipient queue, and performs the follow-up actions after releasing the lock.
    fn update<T>(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        change: impl FnOnce(&mut RecipientQueue, Option<&Arc<Account>>, &mut FollowUp) -> T,
    ) -> T {
        let mut then = FollowUp::default();
        let mut queues = self.recipients.lock();
        let account = node.routing_table.find(owner.as_ref());
        let queue = queues
            .entry(owner.clone())
            .or_insert_with(|| RecipientQueue::new(node.extensions.get_or_default::<PendingBytes>()));
        let changed = change(queue, account.as_ref(), &mut then);
        queue.sync_account(account.as_ref());
        if queue.is_idle() {
            queues.remove(owner);
        }
        drop(queues);
        if let Some(waker) = then.waker {
            waker.wake();
        }
        if then.start_storing {
            let (delivery, node_of_task, owner) = (self.clone(), node.clone(), owner.clone());
            node.spawner.spawn("offline store", Box::pin(delivery.store_task(node_of_task, owner)));
        }
        if then.start_delivery {
            let (delivery, node_of_task, owner) = (self.clone(), node.clone(), owner.clone());
            node.spawner.spawn("offline delivery", Box::pin(delivery.delivery_task(node_of_task, owner)));
        }
        changed
    }

    /// Queues a message after those that are being stored for the recipient.
    pub(super) fn store(
        self: &Arc<Self>,
        node: &Arc<Node>,
        to: JidRef<'_>,
        frame: &SharedStanza,
        origin: MessageOrigin,
        rules: OfflineRules,
    ) -> Receipt {
        let (issuer, receipt) = receipt_pair();
        let mut message = self.pending_message(node, frame, rules);
        message.issuer = Some(issuer);
        (message.tracks_delivery, message.is_redelivery) = (origin.tracks_delivery, origin.redelivery);
        let refused = self.update(node, &to.bare().to_jid(), |queue, _, then| {
            let pushed = queue.pending.push(message);
            queue.store_pending(then);
            pushed.err()
        });
        if let Some(issuer) = refused.and_then(|mut message| message.issuer.take()) {
            node.metrics.offline_refused.inc(["pending"]);
            issuer.settle(Err(storage_busy()));
        }
        receipt
    }

    fn pending_message(&self, node: &Arc<Node>, frame: &SharedStanza, rules: OfflineRules) -> PendingMessage {
        PendingMessage {
            frame: frame.clone(),
            received_at: node.clock.unix_millis(),
            pending_since: node.clock.now(),
            issuer: None,
            is_backup: false,
            tracks_delivery: false,
            is_redelivery: false,
            rules,
            sender: self.sender_hasher.hash_one(sender_of(frame)),
            node: Arc::downgrade(node),
        }
    }

    /// Queues backups of messages that a session of this account holds. The backups begin under the lock, so that those which
    /// another task begins next are stored after them.
    pub(super) fn store_backups(
        self: &Arc<Self>,
        node: &Arc<Node>,
        account: &Account,
        begin_backups: BeginBackups<'_>,
        rules: OfflineRules,
    ) {
        let others = self.update(node, &account.jid, |queue, _, then| {
            let (backups, others): (Vec<_>, Vec<_>) = begin_backups()
                .into_iter()
                .partition(|frame| storage_policy::decide(frame) == storage_policy::StorageDecision::Store);
            for frame in backups {
                // A backup is never refused.
                let mut backup = self.pending_message(node, &frame, rules);
                backup.is_backup = true;
                drop(queue.pending.push(backup));
            }
            queue.store_pending(then);
            others
        });
        for frame in others {
            // It would not be stored for an offline user either.
            frame.cancel_backup();
            frame.settle_delivery();
        }
    }

    /// A resource was bound: its account must know whether messages are on their way.
    pub(super) fn opened(self: &Arc<Self>, node: &Arc<Node>, account: &Arc<Account>) {
        if self.recipients.lock().contains_key(&account.jid) {
            self.update(node, &account.jid, |_, _, _| {});
        }
    }

    /// A resource became available or changed its priority: stored messages are delivered to it, or to resources on another node.
    pub(super) fn available(self: &Arc<Self>, node: &Arc<Node>, account: &Arc<Account>) {
        let waiting = account.with(|state| state.may_have_offline_messages);
        if !waiting && !self.recipients.lock().contains_key(&account.jid) {
            return;
        }
        self.update(node, &account.jid, |queue, _, then| {
            let delivers = queue.state.delivery != DeliveryPhase::Idle;
            let leaves = || node.peers().is_some_and(|peers| peers.leave_stored(node, account, delivers));
            if can_deliver(account) && !leaves() {
                queue.on(QueueEvent::DeliveryDue, then);
            }
        });
    }

    /// Retries what failed for a recipient.
    fn retry(self: &Arc<Self>, node: &Arc<Node>, account: &Arc<Account>) {
        self.available(node, account);
        if self.recipients.lock().contains_key(&account.jid) {
            // It may wait to remove delivered messages.
            self.update(node, &account.jid, |queue, _, then| queue.wake_delivery(then));
        }
    }

    async fn delivery_task(self: Arc<Self>, node: Arc<Node>, owner: Jid) {
        let guard = RecipientGuard { delivery: &self, node: &node, owner: &owner, storing: false };
        let mut in_flight = None;
        let mut round_failed = false;
        loop {
            let removal = self.remove_delivered(&node, &owner, &mut in_flight).await;
            if let Err(error) = &removal {
                tracing::warn!(%error, "cannot remove delivered messages from offline storage");
                FailedDeliveries::add(&node, &self, &owner);
            }
            let tracking = in_flight.is_some();
            let may_read = !tracking && !round_failed && removal.is_ok();
            let fetch = self.update(&node, &owner, |queue, account, then| {
                // A resource may have become available, or the receiving session has ended.
                if may_read && account.is_some_and(|a| can_deliver(a)) {
                    queue.on(QueueEvent::DeliveryDue, then);
                }
                queue.on(QueueEvent::RoundBegins, then);
                if !tracking {
                    queue.on(QueueEvent::AllConfirmed, then);
                }
                queue.state.delivery == DeliveryPhase::Reading
            });
            if fetch {
                let round = self.deliver_pages(&node, &owner, &mut in_flight).await;
                round_failed = round.is_err();
                if let Err(error) = round {
                    tracing::warn!(%error, "cannot deliver offline messages");
                    FailedDeliveries::add(&node, &self, &owner);
                }
                self.update(&node, &owner, |queue, account, then| {
                    queue.on(QueueEvent::RoundEnds, then);
                    queue.store_pending(then);
                    if let (true, Some(account)) = (round_failed, account) {
                        account.with(|state| state.may_have_offline_messages = true);
                    }
                });
            } else if let Some(in_flight) = &in_flight {
                self.wait_for_work(&node, &owner, in_flight).await;
            } else {
                break;
            }
        }
        std::mem::forget(guard);
    }

    /// Removes from the store the messages that the session's connection has taken. If the session ends, the rest is
    /// delivered again, and so is what the store could not remove.
    async fn remove_delivered(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
        in_flight: &mut Option<InFlightBatch>,
    ) -> Result<(), StoreError> {
        while let Some(delivery) = in_flight {
            let progress = delivery.session.outbox.delivery_progress(None);
            let safe = delivery.removable_through(progress.delivered_through);
            if safe > delivery.removed_through && (progress.closed || node.seconds() >= delivery.retry_at) {
                let first = delivery.removed_through + 1;
                for (first, last) in ranges_without(first, safe, &delivery.skipped) {
                    match node.stores.offline.remove_range(delivery.owner, first, last).await {
                        Ok(count) => node.metrics.offline_delivered.inc_by(u64::from(count)),
                        Err(error) if progress.closed => {
                            self.abandon_batch(node, owner, in_flight);
                            return Err(error);
                        }
                        Err(error) => {
                            delivery.retry_at = node.seconds().saturating_add(RETRY_SECONDS);
                            return Err(error);
                        }
                    };
                }
                delivery.removed_through = safe;
            } else if delivery.removed_through >= delivery.fetched_through {
                delivery.session.outbox.stop_tracking_stored();
                *in_flight = None;
            } else if progress.closed {
                self.abandon_batch(node, owner, in_flight);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Gives up the messages in flight; the store still has them.
    fn abandon_batch(&self, node: &Arc<Node>, owner: &Jid, in_flight: &mut Option<InFlightBatch>) {
        if let Some(in_flight) = in_flight.take() {
            in_flight.session.outbox.stop_tracking_stored();
        }
        if let Some(account) = node.routing_table.find(owner.as_ref()) {
            account.with(|state| state.may_have_offline_messages = true);
        }
    }

    /// Waits until messages can be removed, must be delivered again, or the store must be read.
    async fn wait_for_work(&self, node: &Node, owner: &Jid, in_flight: &InFlightBatch) {
        std::future::poll_fn(|cx| {
            let progress = in_flight.session.outbox.delivery_progress(Some(cx));
            let removable =
                in_flight.removable_through(progress.delivered_through) > in_flight.removed_through;
            if progress.closed || removable && node.seconds() >= in_flight.retry_at {
                return Poll::Ready(());
            }
            let mut queues = self.recipients.lock();
            let Some(queue) = queues.get_mut(owner) else { return Poll::Ready(()) };
            if queue.state.delivery == DeliveryPhase::Due {
                return Poll::Ready(());
            }
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Delivers until no messages are stored or pending, or no resource accepts messages any more.
    async fn deliver_pages(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        in_flight: &mut Option<InFlightBatch>,
    ) -> Result<(), StoreError> {
        let Some(account) = node.routing_table.find(owner.as_ref()) else { return Ok(()) };
        let wait = |waiting| account.with(|state| state.may_have_offline_messages = waiting);
        // Numbers of backups, and the last one of a page that has nothing else.
        let (mut skipped, mut skipped_through) = (Vec::new(), 0);
        loop {
            // Before the store is read: a later write sets it again.
            wait(false);
            let now = node.clock.unix_millis();
            let fetched_through = in_flight.as_ref().map_or(0, |in_flight| in_flight.fetched_through);
            let after = fetched_through.max(skipped_through);
            let reading = self.backups.begin_read(owner);
            let page = node.stores.offline.fetch(account.id, Page::after(after, FETCH_PAGE), now).await;
            let mut page = page.inspect_err(|_| wait(true))?;
            let last = page.items.last().map_or(after, |message| message.seq);
            // The page may have backups whose numbers are not known yet.
            self.wait_for_backups(owner).await;
            let (held, removed) = (self.backups.numbers(owner), reading.removed());
            drop(reading);
            page.items.retain(|message| {
                let is_held = held.binary_search(&message.seq).is_ok();
                skipped.extend(is_held.then_some(message.seq));
                !is_held && removed.binary_search(&message.seq).is_err()
            });
            if page.items.is_empty() {
                skipped_through = last;
            }
            // If some messages are in a session's queue already, further ones must go to the same session.
            let session = match in_flight {
                Some(in_flight) => Some(in_flight.session.clone()),
                None => account.with(|state| preferred_resource(&state.sessions)),
            };
            let Some(session) = session.filter(accepts_messages) else {
                wait(true);
                return Ok(());
            };
            if !page.items.is_empty() {
                // The receipts of pending messages must not depend on a client that is slow or may never come back.
                let stop_draining = || {
                    self.update(node, owner, |queue, _, then| {
                        queue.on(QueueEvent::DrainStopped, then);
                        queue.store_pending(then);
                    });
                };
                let items = page.items;
                let outcome = enqueue_page(node, &session, account.id, items, in_flight, stop_draining).await;
                if let Some(in_flight) = in_flight {
                    in_flight.skipped.append(&mut skipped);
                    // Pages after this one may end before the last of them, and read it again.
                    in_flight.skipped.sort_unstable();
                    in_flight.skipped.dedup();
                }
                match outcome {
                    PageOutcome::Enqueued => {}
                    PageOutcome::Blocked => {
                        // The store still has the messages in that session's queue: another resource gets them, too.
                        if account
                            .with(|state| preferred_resource(&state.sessions))
                            .is_some_and(|s| !s.outbox.is_detached())
                        {
                            self.abandon_batch(node, owner, in_flight);
                            skipped_through = 0;
                        } else {
                            self.wait_for_resumption(node, owner, &session).await;
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
                // A session that ended meanwhile has left its backups: they are read when the present messages are
                // delivered.
                let held = self.backups.numbers(owner);
                let in_flight = in_flight.as_ref().map_or(&[][..], |in_flight| &in_flight.skipped[..]);
                if skipped.iter().chain(in_flight).any(|number| held.binary_search(number).is_err()) {
                    wait(true);
                }
                return Ok(());
            }
        }
    }

    /// Waits until a detached session is resumed and its queue is empty, until it ends, or until another resource is
    /// available.
    async fn wait_for_resumption(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid, session: &Arc<Session>) {
        std::future::poll_fn(|cx| {
            if has_queue_space(session, cx) {
                return Poll::Ready(());
            }
            let mut queues = self.recipients.lock();
            let Some(queue) = queues.get_mut(owner) else { return Poll::Ready(()) };
            if queue.state.delivery == DeliveryPhase::ReadingAgain {
                return Poll::Ready(());
            }
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.update(node, owner, |queue, _, then| queue.on(QueueEvent::ReadRestarts, then));
    }

    /// The last page is queued: pending messages are queued after it. True if no messages are left, or the session does
    /// not accept them any more.
    async fn drain_tail(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        account: &Arc<Account>,
        session: &Arc<Session>,
    ) -> bool {
        self.update(node, owner, |queue, _, then| queue.on(QueueEvent::LastPageQueued, then));
        self.wait_until(owner, |queue| queue.state.store == StorePhase::Idle).await;
        for round in 1_u32.. {
            let step = self.update(node, owner, |queue, _, then| {
                if account.with(|state| state.may_have_offline_messages) {
                    // The batch that the store task had begun is in the store now.
                    return DrainStep::ReadStore;
                }
                if !queue.pending.has_messages() {
                    // Backups are stored when the round has ended.
                    queue.on(QueueEvent::Drained, then);
                    return DrainStep::Done;
                }
                // All or none: if some messages are only in a queue and later ones only in the store, losing the
                // session would change their order.
                let bytes = queue.pending.bytes();
                if accepts_messages(session) && session.outbox.has_room_for(bytes, &node.limits().outbox()) {
                    return DrainStep::Queue(queue.pending.take_messages());
                }
                queue.on(QueueEvent::DrainStopped, then);
                queue.store_pending(then);
                DrainStep::Store
            });
            match step {
                DrainStep::ReadStore => return false,
                DrainStep::Done => return true,
                DrainStep::Queue(messages) => {
                    let rest = queue_messages(node, account, session, messages);
                    if rest.is_empty() {
                        // More may have arrived meanwhile. Other tasks have their turn if that goes on.
                        if round % MAX_DRAIN_ROUNDS == 0 {
                            yield_once().await;
                        }
                        continue;
                    }
                    self.update(node, owner, |queue, _, then| {
                        queue.pending.put_back(rest);
                        queue.on(QueueEvent::DrainStopped, then);
                        queue.store_pending(then);
                    });
                }
                DrainStep::Store => {}
            }
            // Pending messages are stored after all, and delivered with a later page.
            if !accepts_messages(session) {
                return true;
            }
            self.wait_until(owner, |queue| {
                queue.state.delivery == DeliveryPhase::ReadingAgain || queue.state.store == StorePhase::Idle
            })
            .await;
            return false;
        }
        false
    }

    /// Waits until the numbers of the backups are known that the store task is writing.
    async fn wait_for_backups(&self, owner: &Jid) {
        // More may follow without end; a page that was read has none of them.
        let mut begun = None;
        self.wait_until(owner, |queue| {
            queue.finished_backup_batches >= *begun.get_or_insert(queue.backup_batches)
        })
        .await;
    }

    /// Waits, in the delivery task, until a condition holds.
    async fn wait_until(&self, owner: &Jid, mut is_ready: impl FnMut(&mut RecipientQueue) -> bool) {
        std::future::poll_fn(|cx| {
            let mut queues = self.recipients.lock();
            let Some(queue) = queues.get_mut(owner) else { return Poll::Ready(()) };
            if is_ready(queue) {
                return Poll::Ready(());
            }
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Next step after the last page.
enum DrainStep {
    /// The store has more messages.
    ReadStore,
    /// These messages fit into the session's queue.
    Queue(VecDeque<QueuedMessage>),
    /// Pending messages are stored.
    Store,
    /// No message is pending.
    Done,
}

/// Puts messages into a session's queue, without the lock, because the `deliver` chain runs. Returns the rest if the
/// session does not accept them any more.
fn queue_messages(
    node: &Arc<Node>,
    account: &Arc<Account>,
    session: &Arc<Session>,
    mut messages: VecDeque<QueuedMessage>,
) -> VecDeque<QueuedMessage> {
    let mut awaited = Vec::new();
    while let Some(mut queued) = messages.pop_front() {
        let message = &mut queued.message;
        if node.peers().is_some_and(|peers| peers.was_read_from_store(account, &message.frame)) {
            // It has run twice, because a node crashed.
            if let Some(issuer) = message.issuer.take() {
                issuer.settle(Ok(()));
            }
            continue;
        }
        let tracked = message.tracks_delivery && message.frame.track_delivery(node.clock.now());
        let accepted_by = if accepts_messages(session) {
            node.deliver_if_first_accepts(account, &message.frame, session)
        } else {
            SmallVec::new()
        };
        if accepted_by.is_empty() {
            messages.push_front(queued);
            break;
        }
        if tracked {
            // Any of them may be the last one that holds it.
            accepted_by.iter().for_each(|session| node.watch_delivery(session));
        }
        match message.issuer.take() {
            Some(issuer) if tracked => awaited.push((Receipt::of_delivery(&message.frame), issuer)),
            Some(issuer) => issuer.settle(Ok(())),
            None => {}
        }
    }
    if !awaited.is_empty() {
        node.spawner.spawn("offline receipts", Box::pin(settle_when_delivered(awaited)));
    }
    messages
}

/// Fulfils the receipts of messages in a session's queue, in order.
async fn settle_when_delivered(awaited: Vec<(Receipt, ReceiptIssuer)>) {
    for (delivery, issuer) in awaited {
        let outcome = std::future::poll_fn(|cx| delivery.poll_outcome(cx)).await;
        issuer.settle(outcome);
    }
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Resets the recipient queue when a task panics or is dropped.
struct RecipientGuard<'a> {
    delivery: &'a Arc<OfflineDelivery>,
    node: &'a Arc<Node>,
    owner: &'a Jid,
    storing: bool,
}

impl Drop for RecipientGuard<'_> {
    fn drop(&mut self) {
        let lost = self.delivery.update(self.node, self.owner, |queue, account, then| {
            let lost = if self.storing {
                queue.finish_backups(then);
                queue.on(QueueEvent::StoreTaskLost, then);
                // Dropping their issuers reports the failure to senders whose message was not written.
                queue.writes_messages = false;
                Some(queue.pending.take_all())
            } else {
                queue.on(QueueEvent::DeliveryTaskLost, then);
                queue.store_pending(then);
                None
            };
            if let Some(account) = account {
                account.with(|state| state.may_have_offline_messages = true);
            }
            lost
        });
        drop(lost);
    }
}

/// The store is slower than messages arrive.
fn storage_busy() -> StanzaError {
    StanzaError::new(StanzaCondition::ResourceConstraint).text("too many messages are being stored")
}

/// The sender's bare address.
fn sender_of(frame: &SharedStanza) -> &str {
    let from = frame.head().raw_from(frame.bytes());
    // Neither localpart nor domain has characters that are escaped in an attribute.
    from.map(|from| from.split_once('/').map_or(from, |(bare, _)| bare)).unwrap_or_default()
}
