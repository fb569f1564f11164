//! Stanzas as values: heads, types, error conditions, stream headers and small payloads.
//!
//! RFC 6120 sections 4 and 8, RFC 6121 sections 3 to 5. A stanza stays the bytes that arrived; [`Head`] is
//! what one pass over them found. Nothing here knows of sessions, sockets or storage.
//!
//! The trap: spans in a [`Head`] point into one particular buffer. Whoever rewrites the bytes must move the
//! spans as well, which is what [`rewrite_addresses`] is for.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod condition;
pub mod error;
pub mod head;
pub mod kind;
pub mod message_traits;
pub mod payload;
pub mod rewrite;
pub mod stream;

pub use condition::{ErrorType, StanzaCondition, StreamCondition};
pub use error::{StanzaError, StreamError};
pub use head::{Child, Element, Head, Span};
pub use kind::{IqType, MessageType, PresenceType, StanzaKind, StanzaKindSet};
pub use message_traits::MessageTraits;
pub use rewrite::{NewAddresses, append_child, rewrite_addresses};
