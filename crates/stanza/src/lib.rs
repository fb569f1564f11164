//! Stanzas as values: heads, types, error conditions, stream headers and small payloads (RFC 6120, sections 4 and 8;
//! RFC 6121, sections 3 to 5).
//!
//! A stanza stays the bytes that arrived; a [`Head`] is the result of one pass over them. This crate knows neither
//! sessions nor sockets nor storage.
//!
//! # Pitfalls
//!
//! Spans in a [`Head`] point into one particular buffer. Code that rewrites the bytes must move the spans too;
//! [`rewrite_addresses`] does both.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod condition;
pub mod error;
pub mod head;
pub mod kind;
pub mod message_traits;
pub mod payload;
pub mod payload_set;
pub mod rewrite;
pub mod stream;

pub use condition::{ErrorType, StanzaCondition, StreamCondition};
pub use error::{StanzaError, StreamError};
pub use head::{Child, Element, Head, Span};
pub use kind::{IqType, MessageType, PresenceType, StanzaKind, StanzaKindSet};
pub use message_traits::MessageTraits;
pub use payload_set::{PayloadNs, PayloadSet};
pub use rewrite::{NewAddresses, append_child, append_child_in_place, rewrite_addresses};
