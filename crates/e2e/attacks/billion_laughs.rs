//! Entities that expand into entities.
//!
//! Done: a document type with nested entities is sent as the first bytes of a stream, and in the middle of one.
//!
//! Rule: RFC 6120 section 11.1 forbids document types and entities other than the five predefined ones; Prosody expanded
//! them in WebSocket frames (CVE-2022-0217), ejabberd and others over TCP (CVE-2003-1564 is the class).
//!
//! Right: the stream ends with `restricted-xml` and nothing is expanded.

use stanza::StreamCondition;

use crate::support::{Way, pair};

const LAUGHS: &str =
    "<!DOCTYPE lolz [<!ENTITY a 'lol'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]>";

#[tokio::test]
async fn a_document_type_before_the_header_ends_the_stream() {
    let wire = Way::Tcp.wire();
    let mut client = wire.connect();
    client.send(format!("<?xml version='1.0'?>{LAUGHS}")).await;
    client.ends_with(StreamCondition::RestrictedXml).await;
}

#[tokio::test]
async fn neither_types_nor_entities_are_taken_within_a_stream() {
    for attack in [
        LAUGHS,
        "<message to='juliet@example.com'><body>&lol;</body></message>",
        "<message to='juliet@example.com'><body a='&lol;'/></message>",
        "<message to='juliet@example.com'><!DOCTYPE a><body/></message>",
    ] {
        let wire = Way::Tcp.wire();
        let (mut romeo, mut juliet) = pair(&wire).await;
        romeo.send(attack).await;
        romeo.ends_with(StreamCondition::RestrictedXml).await;
        assert_eq!(juliet.sync().await, [], "{attack}");
    }
}
