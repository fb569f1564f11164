//! The bounded outgoing queue of a connection and its stream management (XEP-0198), without a session or an account.
//!
//! A stanza in a queue is a [`SharedStanza`]: bytes and head in one allocation that all recipients share. It enters an
//! [`Outbox`] through `admission.rs`, is counted in the node's [`Backlog`] while its client does not read, and leaves
//! through [`Outbox::dequeue`]. With stream management it is retained until the client acknowledges it
//! ([`stream_management`]).

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod ack_request;
mod admission;
pub mod backlog;
mod bit_field;
mod closing;
pub mod delay_generation;
pub mod delivery_sampling;
mod delivery_state;
mod delivery_waiters;
mod delivery_watch;
mod ended_streams;
mod outbox;
pub mod outbox_registry;
pub mod outstanding;
mod pending_requests;
pub mod presence_batching;
pub mod receipt;
mod roster_version;
pub mod shared_stanza;
mod signals;
pub mod stream_management;
mod unsettled;

pub use admission::is_iq_response;
pub use backlog::{AdmissionContext, Backlog, ExceededLimit, sender_address};
pub use delay_generation::DelayToken;
pub use delivery_sampling::LatencySample;
pub use delivery_waiters::AwaitedDelivery;
pub use delivery_watch::{DeliveryWatch, OVERDUE_MILLIS};
pub use ended_streams::{EndedStreams, ResumptionRecord};
pub use limits::{self, OutboxLimits};
pub use outbox::{
    DeliveryProgress, DequeueOutcome, MAX_DELAYED_BYTES, Outbox, PushOutcome, QUEUE_FULL_CONDITION,
    QueuedBatch, QueuedStanza, RefusedPush, ToRewrite, Urgency, queued_size,
};
pub use outbox_registry::OutboxRegistry;
pub use pending_requests::PendingRequests;
pub use presence_batching::PresenceBatcher;
pub use receipt::{Receipt, ReceiptIssuer, Receipts};
pub use shared_stanza::{QueueClass, SharedStanza};
pub use stream_management::{
    OutboxSnapshot, StreamManagementConfig, StreamManagementTerms, UndeliveredStanza,
};
pub use unsettled::{UnsettledCheck, WrittenMessages};
