//! XML for streams (RFC 6120 sections 4.8 and 11): find elements, judge them, read them, write them.
//!
//! The order of use: a [`Scanner`] finds where an element ends, a [`Reader`] checks it and tells what is in it,
//! a [`Tree`] is built only when somebody wants to walk. Nothing here allocates but [`Tree`], [`normalise`], [`Writer`],
//! a [`NamespaceContext`] for an unusual header, and values that hold references.
//! Left out: DTDs and everything they bring, comments, processing instructions, encodings other than UTF-8: XMPP forbids
//! them. Trap: an element is not known to be well-formed before its `Reader` has answered `None`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod byte_search;
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

pub use error::{Error, Restriction, StreamErrorKind};
pub use event::{Attr, Attrs, Event, Namespace, StartTag, Text};
pub use limits::{
    Limits, MAX_ATTRIBUTE_PREFIXES, MAX_ATTRIBUTES, MAX_DEPTH, MAX_NAMESPACE_BYTES, MAX_PREFIXES,
};
pub use namespace_context::NamespaceContext;
pub use normalise::normalise;
pub use ns::{Ns, NsSet};
pub use reader::Reader;
pub use scan::{ScanOutcome, Scanner};
pub use tree::{Tree, TreeNode};
pub use write::Writer;
