//! Unique stanza ids: XEP-0359 0.7.0, section 3.

use xml::{Ns, Writer};

/// Writes `<stanza-id/>`: the id, and the bare address of the entity that assigned it.
pub fn write(writer: &mut Writer<'_>, id: &str, by: &str) {
    writer.start("stanza-id");
    writer.ns(Ns::StanzaId);
    writer.attr("id", id);
    writer.attr("by", by);
    writer.end();
}
