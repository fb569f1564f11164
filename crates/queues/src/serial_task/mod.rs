//! Serial tasks: one task for each thing whose events have a common order, such as a room or a PubSub node.
//!
//! The task owns the state, so nothing iterates under a lock. Messages enter a bounded mailbox and are handled one
//! after the other, even when a handler waits. The task starts with the first message and ends when its mailbox is
//! empty and its state is idle ([`SerialState::is_idle`]); the next message starts it again.
//!
//! The contract of a service that uses serial tasks:
//!
//! * Handlers of stanzas only send a message to the task. A handler whose message found a full mailbox returns
//!   `Flow::Wait` with [`SerialTasks::send`], which holds back the source of that stanza and no
//!   other one, or refuses the stanza with `resource-constraint`.
//! * A state whose handler panics is dropped, and created again for the next message. What its message held is dropped
//!   too, so keep a reply that must always be sent in a value that sends it when dropped.
//! * What must survive the end of the task is in the store before it is acknowledged.
//!
//! # Pitfalls
//!
//! A state that sends a message to its own task and waits for capacity waits for itself: use [`SerialTasks::try_send`] there.
//! Two states that wait for capacity of each other wait permanently: one of them must use [`SerialTasks::send_forced`].

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::future::poll_fn;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::spawn::{BoxFuture, Spawner, yield_now};

use crate::keyed_queues::{KeyedPushOutcome, KeyedQueueLimits, KeyedQueues};

/// Messages that a task handles before it yields.
const YIELD_EVERY: usize = 64;

/// State of a serial task.
pub trait SerialState: Send + 'static {
    /// What other tasks send.
    type Message: Send + 'static;

    /// Handles a message. The next one is handled when the returned future completes.
    fn handle(&mut self, message: Self::Message) -> Option<BoxFuture<'_, ()>>;

    /// Completes what [`SerialState::handle`] has put off because more messages might wait: called when none does, and after
    /// some messages in any case. The next one is handled when the returned future completes.
    fn complete_batch(&mut self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Whether the state may be dropped while no message waits.
    fn is_idle(&self) -> bool {
        true
    }
}

/// A message that found a full mailbox.
#[derive(Debug, PartialEq, Eq)]
pub struct MailboxFull<M>(pub M);

/// Serial tasks by key, for example by the address of a room.
pub struct SerialTasks<K, S: SerialState> {
    name: &'static str,
    mailboxes: KeyedQueues<K, S::Message>,
    make: Box<dyn Fn(&K) -> S + Send + Sync>,
    panics: AtomicU64,
}

impl<K, S> SerialTasks<K, S>
where
    K: Hash + Eq + Clone + Display + Send + Sync + 'static,
    S: SerialState,
{
    /// No tasks. `name` is that of the tasks in logs and metrics; `limits` are those of the mailboxes; `make` makes the
    /// state of a task and must not block: state from the store is loaded by the first message.
    pub fn new(
        name: &'static str,
        limits: KeyedQueueLimits,
        make: impl Fn(&K) -> S + Send + Sync + 'static,
    ) -> Arc<SerialTasks<K, S>> {
        Arc::new(SerialTasks {
            name,
            mailboxes: KeyedQueues::new(limits),
            make: Box::new(make),
            panics: AtomicU64::new(0),
        })
    }

    /// Sends a message of `size` bytes to a task, which is started if it does not run.
    ///
    /// # Errors
    /// The message, if the mailbox is full.
    pub fn try_send(
        self: &Arc<Self>,
        spawner: &dyn Spawner,
        key: &K,
        message: S::Message,
        size: usize,
    ) -> Result<(), MailboxFull<S::Message>> {
        let outcome = self.mailboxes.push(key.clone(), message, size);
        self.sent(spawner, key, outcome)
    }

    /// Like [`SerialTasks::try_send`], for a message that something else bounds: it also enters a full mailbox.
    ///
    /// # Errors
    /// The message, if all forced messages together reach their bound ([`KeyedQueueLimits::forced_bytes`]).
    pub fn send_forced(
        self: &Arc<Self>,
        spawner: &dyn Spawner,
        key: &K,
        message: S::Message,
        size: usize,
    ) -> Result<(), MailboxFull<S::Message>> {
        let outcome = self.mailboxes.push_forced(key.clone(), message, size);
        self.sent(spawner, key, outcome)
    }

    /// Starts the task of a mailbox that did not exist.
    fn sent(
        self: &Arc<Self>,
        spawner: &dyn Spawner,
        key: &K,
        outcome: KeyedPushOutcome<S::Message>,
    ) -> Result<(), MailboxFull<S::Message>> {
        match outcome {
            KeyedPushOutcome::Owner(first) => {
                let mailbox = OwnedMailbox { tasks: self.clone(), key: key.clone(), ended: false };
                spawner.spawn(self.name, Box::pin(mailbox.run(first)));
                Ok(())
            }
            KeyedPushOutcome::Queued => Ok(()),
            KeyedPushOutcome::Full(message) => Err(MailboxFull(message)),
        }
    }

    /// Like [`SerialTasks::try_send`], but waits until the mailbox has capacity.
    pub async fn send(
        self: Arc<Self>,
        spawner: Arc<dyn Spawner>,
        key: K,
        mut message: S::Message,
        size: usize,
    ) {
        while let Err(MailboxFull(back)) = self.try_send(&spawner, &key, message, size) {
            message = back;
            poll_fn(|cx| self.mailboxes.poll_capacity(&key, size, cx)).await;
        }
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.mailboxes.len()
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.mailboxes.is_empty()
    }

    /// Number of messages whose handling panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// The mailbox of a running task. If the task is dropped, the messages are dropped with it and a later message starts
/// another task.
struct OwnedMailbox<K, S>
where
    K: Hash + Eq + Clone + Display + Send + Sync + 'static,
    S: SerialState,
{
    tasks: Arc<SerialTasks<K, S>>,
    key: K,
    ended: bool,
}

impl<K, S> OwnedMailbox<K, S>
where
    K: Hash + Eq + Clone + Display + Send + Sync + 'static,
    S: SerialState,
{
    /// There is one for each key in use: while it waits it keeps the state, and little else.
    async fn run(mut self, first: S::Message) {
        let mut state = None;
        let mut next = Some(first);
        let mut handled = 0;
        while let Some(message) = next.take() {
            let is_sound = match self.step(&mut state, |state| state.handle(message)) {
                Ok(Some(later)) => base::spawn::catch_unwind(later).await.is_some(),
                started => started.is_ok(),
            };
            self.end_unless(is_sound, &mut state);
            handled += 1;
            if handled % YIELD_EVERY != 0 {
                next = self.tasks.mailboxes.next_waiting(&self.key);
                if next.is_some() {
                    continue;
                }
            }
            if state.is_some() {
                let is_sound = match self.step(&mut state, S::complete_batch) {
                    Ok(Some(later)) => base::spawn::catch_unwind(later).await.is_some(),
                    started => started.is_ok(),
                };
                self.end_unless(is_sound, &mut state);
            }
            if handled % YIELD_EVERY == 0 {
                yield_now().await;
            }
            let idle = match &state {
                Some(state) => catch_unwind(AssertUnwindSafe(|| state.is_idle())).unwrap_or(true),
                None => true,
            };
            next = poll_fn(|cx| self.tasks.mailboxes.poll_next(&self.key, idle, cx)).await;
        }
        self.ended = true;
    }

    /// Begins a step of the state; an error if that panicked.
    fn step<'a>(
        &self,
        state: &'a mut Option<Box<S>>,
        step: impl FnOnce(&'a mut S) -> Option<BoxFuture<'a, ()>>,
    ) -> std::thread::Result<Option<BoxFuture<'a, ()>>> {
        catch_unwind(AssertUnwindSafe(move || {
            step(state.get_or_insert_with(|| Box::new((self.tasks.make)(&self.key))))
        }))
    }

    /// Drops a state that panicked.
    fn end_unless(&self, is_sound: bool, state: &mut Option<Box<S>>) {
        if is_sound {
            return;
        }
        self.tasks.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            task = self.tasks.name,
            key = %self.key,
            "the handling of a message panicked; the state is created again"
        );
        *state = None;
    }
}

impl<K, S> Drop for OwnedMailbox<K, S>
where
    K: Hash + Eq + Clone + Display + Send + Sync + 'static,
    S: SerialState,
{
    fn drop(&mut self) {
        if !self.ended {
            drop(self.tasks.mailboxes.close(&self.key));
        }
    }
}

impl<K, S: SerialState> std::fmt::Debug for SerialTasks<K, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SerialTasks({}, {:?})", self.name, self.mailboxes)
    }
}
