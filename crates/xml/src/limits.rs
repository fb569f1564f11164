//! Bounds on the cost of one element. RFC 6120, section 13.12, requires them; the values are this server's.
//!
//! A server adds to what it received: addresses, ids, times, an element around it. [`Limits::DEFAULT`] bounds what a
//! peer may send, [`Limits::CEILING`] what can be read. The difference leaves room for such additions, so that an
//! admitted element can be read again in every form that the server gives it.
//!
//! Not implemented: rates and totals per stream, which belong to the transport.
//!
//! # Pitfalls
//!
//! `depth` and `prefixes` have hard ceilings because the reader stores them in arrays on the stack. Limits of input
//! must stay below the ceilings by the size of later additions.

/// Maximum number of open elements in a reader; caps [`Limits::depth`].
pub const MAX_DEPTH: u8 = 72;
/// Maximum number of namespace declarations in scope in a reader; caps [`Limits::prefixes`].
pub const MAX_PREFIXES: u16 = 40;
/// Maximum number of attributes per tag in a reader; caps [`Limits::attributes`].
pub const MAX_ATTRIBUTES: u16 = 72;
/// Maximum number of distinct prefixes, other than `xml` and `xmlns`, on the attributes of one tag.
pub const MAX_ATTRIBUTE_PREFIXES: usize = 4;
/// Maximum length in bytes of a namespace name as written, with references unexpanded.
pub const MAX_NAMESPACE_BYTES: usize = 1024;

/// Bounds on one element. Exceeding one is `policy-violation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one first-level element, from `<` to `>`. RFC 6120, section 13.12, requires at least 10 000.
    pub element_bytes: u32,
    /// Open elements, the first-level one included; at most [`MAX_DEPTH`].
    pub depth: u8,
    /// Attributes of one element, namespace declarations included; at most [`MAX_ATTRIBUTES`].
    pub attributes: u16,
    /// Namespace declarations in scope, those of the stream header excluded; at most [`MAX_PREFIXES`].
    pub prefixes: u16,
    /// Bytes of one qualified name.
    pub name_bytes: u16,
    /// Bytes of the start tag of a first-level element. Positions in it are stored in 16 bits.
    pub start_tag_bytes: u16,
}

impl Limits {
    /// Limits for authenticated peers: 256 kB, 64 deep, 64 attributes, 32 declarations, names of 256 bytes, a start tag
    /// of 32 kB.
    pub const DEFAULT: Limits = Limits {
        element_bytes: 262_144,
        depth: 64,
        attributes: 64,
        prefixes: 32,
        name_bytes: 256,
        start_tag_bytes: 32_768,
    };

    /// The maximum that a reader supports: for elements admitted within lower limits and rewritten since.
    pub const CEILING: Limits = Limits {
        element_bytes: u32::MAX,
        depth: MAX_DEPTH,
        attributes: MAX_ATTRIBUTES,
        prefixes: MAX_PREFIXES,
        name_bytes: u16::MAX,
        start_tag_bytes: u16::MAX,
    };

    pub(crate) const fn depth_max(&self) -> usize {
        if self.depth < MAX_DEPTH { self.depth as usize } else { MAX_DEPTH as usize }
    }

    pub(crate) const fn prefixes_max(&self) -> usize {
        if self.prefixes < MAX_PREFIXES { self.prefixes as usize } else { MAX_PREFIXES as usize }
    }

    pub(crate) const fn attributes_max(&self) -> usize {
        if self.attributes < MAX_ATTRIBUTES { self.attributes as usize } else { MAX_ATTRIBUTES as usize }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
