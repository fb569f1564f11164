//! Delayed delivery: XEP-0203 2.0, section 3.

use xml::{Ns, Writer};

/// Writes `<delay/>`: the entity that delayed the stanza, and the original send time in milliseconds since the Unix
/// epoch.
pub fn write(writer: &mut Writer<'_>, from: &str, stamp_millis: u64) {
    writer.start("delay");
    writer.ns(Ns::Delay);
    writer.attr("from", from);
    writer.attr("stamp", &super::datetime::format_utc(stamp_millis, true));
    writer.end();
}

#[cfg(test)]
mod tests {
    #[test]
    fn has_namespace_origin_and_stamp() {
        let mut out = Vec::new();
        super::write(&mut xml::Writer::new(&mut out), "capulet.com", 1_031_699_305_000);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "<delay xmlns='urn:xmpp:delay' from='capulet.com' stamp='2002-09-10T23:08:25.000Z'/>"
        );
    }
}
