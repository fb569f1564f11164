//! Predictable identifiers.
//!
//! Done: many streams, resumable sessions, BOSH sessions, generated resources, nonces, tokens and anonymous
//! accounts are created, and their identifiers are compared.
//!
//! Rule: RFC 6120, sections 4.7.3 and 7.6, XEP-0198, section 10, XEP-0124, section 19, XEP-0484, section 6;
//! ejabberd's tokens came from a predictable generator (release 26.07).
//!
//! Right: all are different, have at least 64 bits (96 if possession grants access), and share no more with one
//! another than random values do.

use std::collections::HashSet;

use sasl::Mechanism;
use testkit::server::PASSWORD;

use crate::support::{ProgramUnderAttack, start_server};

const MANY: usize = 64;

/// Characters that are equal at the same position in too many values are not random.
fn check(what: &str, all: &[String], bits: usize) {
    let different: HashSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{what}: {all:?}");
    let shortest = all.iter().map(String::len).min().unwrap();
    // Positions with many different values; each counts as at most four bits, those of a hexadecimal digit.
    let places = (0..shortest).filter(|at| {
        let seen: HashSet<u8> = all.iter().map(|one| one.as_bytes()[*at]).collect();
        seen.len() >= 8
    });
    let enough = places.count() * 4;
    assert!(enough >= bits, "{what}: {enough} bits in {:?}", &all[..3]);
}

fn attribute(text: &str, name: &str) -> String {
    text.split(&format!(" {name}='"))
        .nth(1)
        .and_then(|rest| rest.split('\'').next())
        .unwrap_or_else(|| panic!("{text}"))
        .to_owned()
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.3
//= type=test
//# Security Warning: The stream ID MUST be both unpredictable and non-repeating because it can be security-critical
//# when reused by an authentication mechanisms
//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# The SM-ID MUST NOT be reused for simultaneous or subsequent sessions (but the server need not ensure that SM-IDs
//# are unique for all time, only for as long as the server is continuously running).
#[tokio::test]
async fn stream_identifiers_are_unpredictable() {
    let server = start_server();
    let (mut streams, mut nonces, mut resources, mut sessions) = (vec![], vec![], vec![], vec![]);
    for n in 0..MANY {
        let user = format!("user{n}");
        server.create_user(&user).await;
        let mut client = server.connect();
        streams.push(client.open().await.0.attr("id").unwrap());
        client.auth(Mechanism::ScramSha1, b"n,,n=romeo,r=abcdefghijklmnop").await;
        let challenge = sasl::encoding::decode_response(&client.element().await.text()).unwrap();
        let challenge = String::from_utf8(challenge).unwrap();
        let nonce = challenge.strip_prefix("r=abcdefghijklmnop").unwrap().split(',').next().unwrap();
        nonces.push(nonce.to_owned());
        let mut client = server.connect();
        client.open().await;
        client.authenticate(Mechanism::ScramSha1, &user, PASSWORD).await.unwrap();
        client.open().await;
        resources.push(client.bind("").await.unwrap().split('/').nth(1).unwrap().to_owned());
        client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
        let id = client.element().await.attr("id").unwrap();
        // Some contain the resource, which is not secret.
        sessions.push(id);
    }
    check("stream ids", &streams, 64);
    check("nonces", &nonces, 96);
    check("resources", &resources, 48);
    check("sessions to be resumed", &sessions, 64);
}

#[test]
fn http_identifiers_are_unpredictable() {
    let program = ProgramUnderAttack::start("ids", "admins = ['romeo@localhost']\n", "");
    let body = "<body rid='1' to='localhost' wait='1' hold='1' ver='1.11' xmlns='http://jabber.org/protocol/httpbind'/>";
    let post = format!(
        "POST /bosh HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let sids: Vec<String> = (0..MANY).map(|_| attribute(&program.http(&post), "sid")).collect();
    check("BOSH sessions", &sids, 96);
    let body =
        format!("{{\"jid\":\"romeo@localhost\",\"password\":\"{}\"}}", crate::support::PROGRAM_PASSWORD);
    let cookies: Vec<String> = (0..8)
        .map(|_| {
            let answer = program.http(&format!(
                "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            ));
            let cookie = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie")).unwrap_or_else(|| panic!("{answer}"));
            cookie.split('=').nth(1).unwrap().split(';').next().unwrap().to_owned()
        })
        .collect();
    let different: HashSet<&String> = cookies.iter().collect();
    assert!(different.len() == cookies.len() && cookies[0].len() >= 22, "{cookies:?}");
}
