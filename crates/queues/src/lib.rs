//! Bounded queues by key, each emptied by one owner at a time, serial tasks (actors) over them, and a semaphore.
//!
//! Not implemented: the outgoing queue of a connection, which is in `outbox`; priorities and deadlines of items.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod answer_channel;
pub mod keyed_queues;
pub mod semaphore;
pub mod serial_task;
