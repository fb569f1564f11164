//! XML for streams: finds the elements of a stream, validates, reads and writes them (RFC 6120, sections 4.8 and 11).
//!
//! A [`Scanner`] finds the end of an element, a [`Reader`] validates and reads it, and a [`Tree`] is built only for
//! random access. Only [`Tree`], [`normalise()`], [`Writer`], a [`NamespaceContext`] for an unusual header, and values
//! with references allocate.
//!
//! Not implemented: DTDs, comments, processing instructions, encodings other than UTF-8. XMPP forbids them.
//!
//! # Pitfalls
//!
//! An element is known to be well-formed only once its `Reader` has returned `None`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod byte_search;
mod checked_text;
mod error;
pub mod escape;
mod event;
mod limits;
mod name;
mod name_chars;
mod namespace_context;
mod narrowing;
mod normalise;
mod ns;
mod reader;
mod scan;
mod tree;
mod write;

pub use checked_text::CheckedText;
pub use error::{Error, Restriction, StreamErrorKind};
pub use event::{Attr, AttributeSpans, Attrs, Event, Namespace, Outline, StartTag, TagOutline, Text};
pub use limits::{
    Limits, MAX_ATTRIBUTE_PREFIXES, MAX_ATTRIBUTES, MAX_DEPTH, MAX_NAMESPACE_BYTES, MAX_PREFIXES,
};
pub use name::is_char;
pub use namespace_context::NamespaceContext;
pub use normalise::normalise;
pub use ns::Ns;
pub use reader::Reader;
pub use scan::{ScanOutcome, Scanner};
pub use tree::{Tree, TreeNode};
pub use write::Writer;
