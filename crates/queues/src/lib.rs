//! Bounded queues by key, each emptied by one owner at a time, and serial tasks over them.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod keyed_queues;
pub mod serial_task;
