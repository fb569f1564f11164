//! What is admitted at the limits arrives in a form that independent parsers read, or is refused to its sender: RFC 6120
//! sections 8, 11 and 13.12, XML 1.0, Namespaces in XML 1.0.
//!
//! The parser is expat, through `testkit::expat`. The trap: the test kit's clients read with the server's own parser, so nothing
//! is known to be good before expat has read it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking"
)]

// The generator of streams belongs to the tests of the parser, which know it by this name.
extern crate xml as throng_xml;

mod delayed_delivery;
mod delivery;
mod stanza_shapes;
mod xml_names;
