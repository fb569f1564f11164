//! State machine of a recipient queue: what its store task and its delivery task do, without I/O.
//!
//! The two tasks are independent except for draining: while the delivery task takes the pending messages, the store task
//! begins no further batch.
//!
//! # Pitfalls
//!
//! [`DeliveryPhase::Draining`] lasts until the delivery task stops it, also while the store is read again: if batches
//! began in between, delivery would never end under continuous traffic.

/// What the delivery task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryPhase {
    /// There is no delivery task.
    Idle,
    /// It must read the store.
    Due,
    /// It reads the store and puts messages into the queue of a session.
    Reading,
    /// Like `Reading`; a resource became available meanwhile, or more messages were stored.
    ReadingAgain,
    /// The last page is in that queue; pending messages follow it without being stored.
    Draining,
    /// It waits until the client has the messages, to remove them from the store.
    Confirming,
}

/// What the store task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorePhase {
    /// There is no store task.
    Idle,
    /// It writes messages, batch after batch.
    Writing,
}

/// What happened to a recipient queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueEvent {
    /// Messages are pending.
    MessagesPending,
    /// The store task has nothing that it may write.
    NothingToWrite,
    /// The store task panicked or was dropped.
    StoreTaskLost,
    /// The store may hold messages, and a resource accepts them.
    DeliveryDue,
    /// The delivery task begins a round.
    RoundBegins,
    /// The delivery task reads the store from the beginning again.
    ReadRestarts,
    /// The last page is in the session's queue.
    LastPageQueued,
    /// Pending messages cannot follow the last page and must be stored.
    DrainStopped,
    /// No message is pending after the last page.
    Drained,
    /// The delivery task has ended a round, completely or not.
    RoundEnds,
    /// No message is in flight.
    AllConfirmed,
    /// The delivery task panicked or was dropped.
    DeliveryTaskLost,
}

/// What must follow a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueAction {
    /// Nothing.
    None,
    /// Start the store task.
    StartStoring,
    /// Start the delivery task.
    StartDelivery,
    /// Wake the delivery task.
    WakeDelivery,
}

/// State of a recipient queue, without its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueState {
    pub(super) store: StorePhase,
    pub(super) delivery: DeliveryPhase,
}

impl QueueState {
    /// Neither task runs.
    pub(super) const IDLE: QueueState = QueueState { store: StorePhase::Idle, delivery: DeliveryPhase::Idle };

    /// The state after an event, and what must follow.
    #[must_use = "the queue keeps its state until this one is set"]
    pub(super) fn after(self, event: QueueEvent) -> (QueueState, QueueAction) {
        let QueueState { store, delivery } = self;
        let stores = |store, action| (QueueState { store, delivery }, action);
        let delivers = |delivery, action| (QueueState { store, delivery }, action);
        let unchanged = (self, QueueAction::None);
        match (event, store, delivery) {
            (QueueEvent::MessagesPending, StorePhase::Writing, _)
            | (QueueEvent::MessagesPending, StorePhase::Idle, DeliveryPhase::Draining) => unchanged,
            (QueueEvent::MessagesPending, StorePhase::Idle, _) => {
                stores(StorePhase::Writing, QueueAction::StartStoring)
            }
            // The delivery task may wait for the end of the last batch.
            (QueueEvent::NothingToWrite | QueueEvent::StoreTaskLost, _, _) => {
                stores(StorePhase::Idle, QueueAction::WakeDelivery)
            }
            (QueueEvent::DeliveryDue, _, DeliveryPhase::Idle) => {
                delivers(DeliveryPhase::Due, QueueAction::StartDelivery)
            }
            (QueueEvent::DeliveryDue, _, DeliveryPhase::Due | DeliveryPhase::Confirming) => {
                delivers(DeliveryPhase::Due, QueueAction::WakeDelivery)
            }
            (QueueEvent::DeliveryDue, _, DeliveryPhase::Reading | DeliveryPhase::ReadingAgain) => {
                delivers(DeliveryPhase::ReadingAgain, QueueAction::WakeDelivery)
            }
            // It looks at the account before it ends.
            (QueueEvent::DeliveryDue, _, DeliveryPhase::Draining) => (self, QueueAction::WakeDelivery),
            (QueueEvent::RoundBegins, _, DeliveryPhase::Due)
            | (QueueEvent::ReadRestarts, _, DeliveryPhase::ReadingAgain)
            | (QueueEvent::DrainStopped, _, DeliveryPhase::Draining) => {
                delivers(DeliveryPhase::Reading, QueueAction::None)
            }
            (QueueEvent::LastPageQueued, _, DeliveryPhase::Reading | DeliveryPhase::ReadingAgain) => {
                delivers(DeliveryPhase::Draining, QueueAction::None)
            }
            (QueueEvent::Drained, _, DeliveryPhase::Draining)
            | (QueueEvent::RoundEnds, _, DeliveryPhase::Reading | DeliveryPhase::Draining) => {
                delivers(DeliveryPhase::Confirming, QueueAction::None)
            }
            (QueueEvent::RoundEnds, _, DeliveryPhase::ReadingAgain) => {
                delivers(DeliveryPhase::Due, QueueAction::None)
            }
            (QueueEvent::AllConfirmed, _, DeliveryPhase::Confirming)
            | (QueueEvent::DeliveryTaskLost, _, _) => delivers(DeliveryPhase::Idle, QueueAction::None),
            (
                QueueEvent::RoundBegins
                | QueueEvent::ReadRestarts
                | QueueEvent::LastPageQueued
                | QueueEvent::DrainStopped
                | QueueEvent::Drained
                | QueueEvent::RoundEnds
                | QueueEvent::AllConfirmed,
                _,
                _,
            ) => unchanged,
        }
    }

    /// Whether messages are on their way into the store or out of it, so that newer ones must follow them.
    pub(super) fn has_older_messages(self) -> bool {
        self.store == StorePhase::Writing
            || !matches!(self.delivery, DeliveryPhase::Idle | DeliveryPhase::Confirming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELIVERY: [DeliveryPhase; 6] = [
        DeliveryPhase::Idle,
        DeliveryPhase::Due,
        DeliveryPhase::Reading,
        DeliveryPhase::ReadingAgain,
        DeliveryPhase::Draining,
        DeliveryPhase::Confirming,
    ];

    /// For each event and state of the store task: the next state of the store task, and for each state of the delivery
    /// task its next one and the action. `s` starts the store task, `d` the delivery task, `w` wakes the latter.
    #[rustfmt::skip]
    const TABLE: [(QueueEvent, [&str; 2]); 12] = [
        // Store task:                  idle                                 writing
        // Delivery task:               idle  due again reading…             in the order of DELIVERY
        (QueueEvent::MessagesPending,  ["writing 0s 1s 2s 3s !4 5s",         "writing 0 1 2 3 4 5"]),
        (QueueEvent::NothingToWrite,   ["idle 0w 1w 2w 3w 4w 5w",            "idle 0w 1w 2w 3w 4w 5w"]),
        (QueueEvent::StoreTaskLost,    ["idle 0w 1w 2w 3w 4w 5w",            "idle 0w 1w 2w 3w 4w 5w"]),
        (QueueEvent::DeliveryDue,      ["idle 1d 1w 3w 3w 4w 1w",            "writing 1d 1w 3w 3w 4w 1w"]),
        (QueueEvent::RoundBegins,      ["idle 0 2 2 3 4 5",                  "writing 0 2 2 3 4 5"]),
        (QueueEvent::ReadRestarts,     ["idle 0 1 2 2 4 5",                  "writing 0 1 2 2 4 5"]),
        (QueueEvent::LastPageQueued,   ["idle 0 1 4 4 4 5",                  "writing 0 1 4 4 4 5"]),
        (QueueEvent::DrainStopped,     ["idle 0 1 2 3 2 5",                  "writing 0 1 2 3 2 5"]),
        (QueueEvent::Drained,          ["idle 0 1 2 3 5 5",                  "writing 0 1 2 3 5 5"]),
        (QueueEvent::RoundEnds,        ["idle 0 1 5 1 5 5",                  "writing 0 1 5 1 5 5"]),
        (QueueEvent::AllConfirmed,     ["idle 0 1 2 3 4 0",                  "writing 0 1 2 3 4 0"]),
        (QueueEvent::DeliveryTaskLost, ["idle 0 0 0 0 0 0",                  "writing 0 0 0 0 0 0"]),
    ];

    #[test]
    fn every_event_in_every_state() {
        for (event, rows) in TABLE {
            for (store, row) in [StorePhase::Idle, StorePhase::Writing].into_iter().zip(rows) {
                let mut cells = row.split(' ');
                let next_store = match cells.next() {
                    Some("idle") => StorePhase::Idle,
                    _ => StorePhase::Writing,
                };
                for (delivery, cell) in DELIVERY.into_iter().zip(cells.by_ref()) {
                    // `!`: the store task stays as it is.
                    let (kept, cell) = cell.strip_prefix('!').map_or((false, cell), |cell| (true, cell));
                    let action = match &cell[1..] {
                        "s" => QueueAction::StartStoring,
                        "d" => QueueAction::StartDelivery,
                        "w" => QueueAction::WakeDelivery,
                        _ => QueueAction::None,
                    };
                    let next = QueueState {
                        store: if kept { store } else { next_store },
                        delivery: DELIVERY[cell[..1].parse::<usize>().unwrap()],
                    };
                    let state = QueueState { store, delivery };
                    assert_eq!(state.after(event), (next, action), "{event:?} in {state:?}");
                }
                assert_eq!(cells.next(), None);
            }
        }
    }

    #[test]
    fn only_an_idle_queue_and_one_that_awaits_confirmation_let_newer_messages_pass() {
        for delivery in DELIVERY {
            let passes = matches!(delivery, DeliveryPhase::Idle | DeliveryPhase::Confirming);
            let state = |store| QueueState { store, delivery };
            assert_eq!(state(StorePhase::Idle).has_older_messages(), !passes);
            assert!(state(StorePhase::Writing).has_older_messages());
        }
    }
}
