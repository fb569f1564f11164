//! XML entity expansion.
//!
//! Done: a document type with nested entities is sent as the first bytes of a stream and within one, over TCP,
//! WebSocket and BOSH.
//!
//! Rule: RFC 6120, section 11.1, forbids document types and all but the five predefined entities; Prosody expanded
//! them in WebSocket frames (CVE-2022-0217), ejabberd in attributes (CVE-2013-1664 and the class of CVE-2003-1564).
//!
//! Right: the stream ends with `restricted-xml` and nothing is expanded.

use stanza::StreamCondition;

use crate::support::{ClientTransport, ProgramUnderAttack, frame, pair};

const LAUGHS: &str =
    "<!DOCTYPE lolz [<!ENTITY a 'lol'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]>";

#[tokio::test]
async fn a_document_type_before_the_header_ends_the_stream() {
    let server = ClientTransport::Tcp.start();
    let mut client = server.connect();
    client.send(format!("<?xml version='1.0'?>{LAUGHS}")).await;
    client.expect_stream_error(StreamCondition::RestrictedXml).await;
}

#[tokio::test]
async fn document_types_and_entities_within_a_stream_are_rejected() {
    for attack in [
        LAUGHS,
        "<message to='juliet@example.com'><body>&lol;</body></message>",
        "<message to='juliet@example.com'><body a='&lol;'/></message>",
        "<message to='juliet@example.com'><!DOCTYPE a><body/></message>",
    ] {
        let server = ClientTransport::Tcp.start();
        let (mut romeo, mut juliet) = pair(&server).await;
        romeo.send(attack).await;
        romeo.expect_stream_error(StreamCondition::RestrictedXml).await;
        assert_eq!(juliet.sync().await, [], "{attack}");
    }
}

#[test]
fn websocket_and_bosh_reject_document_types_and_entities() {
    let program = ProgramUnderAttack::start("laughs", "", "");
    let open = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='localhost' version='1.0'/>";
    for attack in [
        format!("{LAUGHS}{open}"),
        format!("<?xml version='1.0'?>{LAUGHS}{open}"),
        open.replace("to='localhost'", "to='&c;'"),
        open.replace("/>", "><!--x--></open>"),
        open.replace("/>", ">&c;</open>"),
    ] {
        let mut connection = program.websocket("");
        connection.send(frame(0x81, attack.len() as u64, attack.as_bytes()));
        let answer = connection.rest();
        assert!(
            answer.contains("restricted-xml")
                || answer.contains("not-well-formed")
                || answer.contains("bad-format"),
            "{attack}: {answer}"
        );
        assert!(!answer.contains("<stream:features") && !answer.contains("lollol"), "{attack}: {answer}");
    }
    let body = "<body rid='1' to='localhost' wait='1' hold='1' ver='1.11' xmlns='http://jabber.org/protocol/httpbind'/>";
    for attack in [
        format!("{LAUGHS}{body}"),
        format!("<?xml version='1.0'?>{LAUGHS}{body}"),
        body.replace("to='localhost'", "to='&c;'"),
        body.replace("/>", "><message><body>&c;</body></message></body>"),
        body.replace("/>", "><!DOCTYPE x></body>"),
    ] {
        let answer = program.http(&format!(
            "POST /bosh HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{attack}",
            attack.len()
        ));
        assert!(answer.contains("terminate") || answer.starts_with("HTTP/1.1 4"), "{attack}: {answer}");
        assert!(!answer.contains("lollol"), "{attack}: {answer}");
    }
}
