//! Content of a stanza copied under a different start tag: error replies (RFC 6120, section 8.3.1) and stored requests.
//!
//! Not implemented: attributes of the original.
//!
//! # Pitfalls
//!
//! The content may use prefixes declared by the original start tag (Namespaces in XML 1.0, section 6.1), and without
//! them the stanza would not be well-formed, so they are declared again. The default namespace is always the content
//! namespace.

use xml::{Limits, Reader, Writer};

use crate::head::Head;

/// Writes the content of the stanza in `bytes` if it has at most `most` bytes, including the declarations that it may
/// need. Otherwise writes nothing and returns false. Call it after the attributes of the new start tag and before other
/// content.
pub fn write(writer: &mut Writer<'_>, head: &Head, bytes: &[u8], most: usize) -> bool {
    let inner = head.inner_xml(bytes);
    if inner.is_empty() {
        return true;
    }
    if inner.len() > most {
        return false;
    }
    let tag = bytes.get(..usize::from(head.tag_end)).unwrap_or_default();
    let Ok(tag) = Reader::open_tag(tag, &Limits::CEILING) else { return false };
    let prefixes = || tag.declarations().filter(|declared| declared.prefix.is_some());
    let declarations: usize = prefixes().map(|d| " xmlns:=''".len() + d.name.len() + d.raw.len()).sum();
    if inner.len() + declarations > most {
        return false;
    }
    for declared in prefixes() {
        writer.attr_raw(&format!("xmlns:{}", declared.name), declared.raw);
    }
    writer.raw(inner);
    true
}
