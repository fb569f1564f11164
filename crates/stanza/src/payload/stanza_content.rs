//! The content of a stanza inside a start tag that is written anew: error replies (RFC 6120 section 8.3.1) and stored requests.
//!
//! Left out: attributes of the original.
//!
//! The trap: the content may use prefixes that the start tag of the original declares (Namespaces in XML 1.0 section 6.1), and
//! without them the whole stanza is not well-formed. So they are declared again. The default namespace needs nothing: a
//! stanza has the content namespace in any case.

use xml::{Limits, Reader, Writer};

use crate::head::Head;

/// Writes what is between the tags of the stanza in `bytes`, if it has at most `most` bytes with the declarations that it may
/// need. False if it is longer, and nothing was written. Only between the attributes of the new start tag and its content.
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
