//! Tests that everything admitted at the limits arrives in a form that independent parsers accept, or is refused to its
//! sender: RFC 6120, sections 8, 11 and 13.12, XML 1.0, Namespaces in XML 1.0.
//!
//! The parser is expat, through `testkit::expat`.
//!
//! # Pitfalls
//!
//! The clients of the testkit use the server's own parser, so nothing is proven valid until expat has parsed it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking"
)]

// The stream generator belongs to the tests of the parser and uses this name.
extern crate xml as throng_xml;

mod delayed_delivery;
mod delivery;
mod stanza_shapes;
mod xml_names;
