//! Changes of one node on their way to the store, and the answers that wait for them.
//!
//! A write that only adds and removes plain subscriptions of users who are online changes their sets by number, together with those
//! of other nodes in one transaction: `SubscriptionSets::change_many`.
//!
//! One write runs at a time, and takes all changes that wait, so their number decides its size: the answers of many requests
//! cost one commit.
//!
//! # Pitfalls
//!
//! After a failed write the node in memory is ahead of the store. Everything that waits fails, too, and the node must be read
//! again ([`WriteQueue::take_failure`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::lock::LeafMutex;
use jid::Jid;
use queues::answer_channel::{AnswerSender, answer_channel};
use stanza::{StanzaCondition, StanzaError};
use store::subscription_sets::MAX_PAIRS;
use store::{NodeNumber, PubSubChange, StoreError, SubscriptionSetChange};
use throng_core::Node;
use throng_core::iq::IqAnswer;
use throng_core::server_error::store_error;

use crate::graph_lock::GraphGuard;
use crate::pubsub_shared::PubSubShared;
use crate::requester_facts::account_number;
use crate::reservations::Reservation;

/// Requests whose changes are in one write.
const MAX_BATCH: usize = 512;
/// Requests that may wait; then the node's task waits.
const MAX_WAITING: usize = 2_048;
/// Bytes that may wait of one node and of all nodes of a domain; then the tasks wait, and with them the senders of requests.
const MAX_WAITING_BYTES: usize = 2 << 20;
const MAX_ALL_BYTES: usize = 64 << 20;
/// Bytes that a change counts besides its payload.
const CHANGE_BYTES: usize = 128;

/// What is sent when the changes are stored.
pub(crate) enum AfterWrite {
    Nothing,
    Answer(AnswerSender<IqAnswer>, IqAnswer),
    Done(AnswerSender<bool>),
}

struct WriteStep {
    changes: Vec<PubSubChange>,
    after: AfterWrite,
    held: HeldByWrite,
}

/// What a change holds until it is stored.
#[derive(Debug)]
pub(crate) struct HeldByWrite {
    /// Bytes of the request.
    pub(crate) bytes: usize,
    /// What the user has then.
    pub(crate) reservation: Option<Reservation>,
    /// No other change of the graph is made meanwhile.
    pub(crate) graph: Option<Arc<GraphGuard>>,
    /// The change is of a client. Others are the result of a conversion and are not converted.
    pub(crate) is_of_client: bool,
}

impl Default for HeldByWrite {
    fn default() -> HeldByWrite {
        HeldByWrite { bytes: 0, reservation: None, graph: None, is_of_client: true }
    }
}

#[derive(Default)]
struct WriteState {
    waiting: Vec<WriteStep>,
    /// Bytes of what waits and of what is being written.
    bytes: usize,
    is_running: bool,
    has_failed: bool,
    /// The task ends when everything is stored.
    ends_when_idle: bool,
    /// The number of the node, if it is known.
    number: Option<NodeNumber>,
}

/// Tells the task of a node that everything is stored.
pub(crate) type WakeTask = Arc<dyn Fn(&Arc<Node>) + Send + Sync>;

/// The changes of one node.
#[derive(Clone)]
pub(crate) struct WriteQueue {
    node: Jid,
    state: Arc<LeafMutex<WriteState>>,
    wake: WakeTask,
    shared: Arc<PubSubShared>,
}

impl AfterWrite {
    fn send(self, written: &Result<(), StanzaError>) {
        match self {
            AfterWrite::Nothing => {}
            AfterWrite::Answer(reply, answer) => reply.send(match written {
                Ok(()) => answer,
                Err(error) => answer.and(Err(error.clone())),
            }),
            AfterWrite::Done(reply) => reply.send(written.is_ok()),
        }
    }
}

impl WriteQueue {
    pub(crate) fn new(node: Jid, wake: WakeTask, shared: Arc<PubSubShared>) -> WriteQueue {
        WriteQueue { node, state: Arc::new(LeafMutex::new(WriteState::default())), wake, shared }
    }

    /// The number of the node in the store.
    pub(crate) fn set_number(&self, number: Option<NodeNumber>) {
        self.state.lock().number = number;
    }

    /// The same, from the store if it is not known; `None` if the node is not in the store.
    pub(crate) async fn number(&self, node: &Arc<Node>) -> Result<Option<NodeNumber>, StoreError> {
        let known = self.state.lock().number;
        if known.is_some() {
            return Ok(known);
        }
        let found = node.stores.pubsub.number(self.node.as_ref()).await?.map(NodeNumber);
        self.set_number(found);
        Ok(found)
    }

    /// Whether everything is stored.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        !state.is_running && state.waiting.is_empty()
    }

    /// Whether the task can end; if not yet, it is woken when it can.
    pub(crate) fn can_end(&self) -> bool {
        let mut state = self.state.lock();
        state.ends_when_idle = state.is_running || !state.waiting.is_empty();
        !state.ends_when_idle
    }

    /// Whether a write has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// What the node has in memory is not what it should be: as after a failed write.
    pub(crate) fn fail(&self) {
        self.state.lock().has_failed = true;
    }

    /// Whether a write has failed since the last call.
    pub(crate) fn take_failure(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_failed)
    }

    /// Whether the task must wait for writes, because their number or size is the limit.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.waiting.len() >= MAX_WAITING
            || state.bytes >= MAX_WAITING_BYTES
            || state.bytes > 0 && self.shared.unwritten.load(Ordering::Relaxed) >= MAX_ALL_BYTES
    }

    /// Stores changes in the background, then sends an answer.
    pub(crate) fn push(&self, node: &Arc<Node>, changes: Vec<PubSubChange>, after: AfterWrite) {
        self.push_held(node, changes, after, HeldByWrite::default());
    }

    /// The same, with what is held until then.
    pub(crate) fn push_held(
        &self,
        node: &Arc<Node>,
        changes: Vec<PubSubChange>,
        after: AfterWrite,
        mut held: HeldByWrite,
    ) {
        held.bytes = held.bytes.max(changes.iter().map(change_bytes).sum());
        let starts = {
            let mut state = self.state.lock();
            if state.has_failed {
                drop(state);
                // They are based on changes that were not stored.
                return after.send(&Err(StanzaCondition::ResourceConstraint.into()));
            }
            state.bytes += held.bytes;
            self.shared.unwritten.fetch_add(held.bytes, Ordering::Relaxed);
            state.waiting.push(WriteStep { changes, after, held });
            !std::mem::replace(&mut state.is_running, true)
        };
        if starts {
            let (queue, of) = (self.clone(), node.clone());
            node.spawner.spawn("pubsub-write", Box::pin(async move { queue.run(&of).await }));
        }
    }

    /// Waits until everything is stored; false if that failed.
    pub(crate) async fn flush(&self, node: &Arc<Node>) -> bool {
        if self.is_idle() {
            return !self.has_failed();
        }
        let (sender, receiver) = answer_channel();
        self.push(node, Vec::new(), AfterWrite::Done(sender));
        receiver.receive().await.unwrap_or(false)
    }

    async fn run(&self, node: &Arc<Node>) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                let count = state.waiting.len().min(MAX_BATCH);
                if count == 0 {
                    state.is_running = false;
                    let wakes = std::mem::take(&mut state.ends_when_idle);
                    drop(state);
                    if wakes {
                        (self.wake)(node);
                    }
                    return;
                }
                state.waiting.drain(..count).collect::<Vec<_>>()
            };
            let (mut changes, mut afters) = (Vec::new(), Vec::with_capacity(batch.len()));
            let is_item_change = |change: &PubSubChange| {
                matches!(
                    change,
                    PubSubChange::PutItem(_) | PubSubChange::RemoveItem(_) | PubSubChange::RemoveItems
                )
            };
            let (mut bytes, mut reservations, mut guards) = (0, Vec::new(), Vec::new());
            let changes_items =
                batch.iter().any(|step| step.held.is_of_client && step.changes.iter().any(is_item_change));
            let mut end = |step: WriteStep, changes: &mut Vec<PubSubChange>| {
                changes.extend(step.changes);
                bytes += step.held.bytes;
                reservations.extend(step.held.reservation);
                guards.extend(step.held.graph);
                step.after
            };
            afters.extend(batch.into_iter().map(|step| end(step, &mut changes)));
            let written = match changes.is_empty() {
                true => Ok(()),
                false => self.write(node, changes).await,
            };
            if let Err(error) = &written {
                tracing::error!(node = %self.node, %error, "changes of a node were not stored");
                let mut state = self.state.lock();
                state.has_failed = true;
                afters.extend(state.waiting.drain(..).map(|step| end(step, &mut Vec::new())));
            }
            // Before the answers: who has one may begin the next change.
            drop((reservations, guards));
            self.state.lock().bytes -= bytes;
            self.shared.unwritten.fetch_sub(bytes, Ordering::Relaxed);
            if changes_items && written.is_ok() {
                self.shared.host.items_stored(node, &self.node);
            }
            let outcome = written.map_err(store_error);
            afters.into_iter().for_each(|after| after.send(&outcome));
        }
    }

    async fn write(&self, node: &Arc<Node>, changes: Vec<PubSubChange>) -> Result<(), StoreError> {
        if let Some(changes) = self.subscription_changes(node, &changes).await? {
            return node.stores.subscription_sets.change_many(changes).await.map(drop);
        }
        let is_replaced =
            changes.iter().any(|change| matches!(change, PubSubChange::Put(_) | PubSubChange::Remove));
        let written = node.stores.pubsub.apply(self.node.as_ref(), changes).await;
        if is_replaced {
            self.set_number(None);
        }
        written
    }

    /// The changes by number, if they are all of plain subscriptions whose numbers are known.
    async fn subscription_changes(
        &self,
        node: &Arc<Node>,
        changes: &[PubSubChange],
    ) -> Result<Option<Vec<SubscriptionSetChange>>, StoreError> {
        let mut by_user = Vec::with_capacity(changes.len());
        for change in changes {
            let (user, is_added) = match change {
                PubSubChange::Subscribe(user) => (user, true),
                PubSubChange::Unsubscribe(user) => (user, false),
                _ => return Ok(None),
            };
            let Some(subscriber) = account_number(node, user) else { return Ok(None) };
            by_user.push((subscriber, is_added));
        }
        if by_user.len() > MAX_PAIRS {
            return Ok(None);
        }
        let Some(number) = self.number(node).await? else { return Ok(None) };
        let change = |(subscriber, is_added)| SubscriptionSetChange { node: number, subscriber, is_added };
        Ok(Some(by_user.into_iter().map(change).collect()))
    }
}

fn change_bytes(change: &PubSubChange) -> usize {
    CHANGE_BYTES
        + match change {
            PubSubChange::Put(record) => record.config.len(),
            PubSubChange::PutItem(item) => item.payload.len() + item.head.id.len(),
            PubSubChange::PutSpecial(one) => one.state.len(),
            _ => 0,
        }
}
