//! Log flooding by failed logins.
//!
//! Done: a hundred wrong passwords from one address, for names that exist and for names that are passwords typed
//! into the wrong field; meanwhile one user logs in and out.
//!
//! Rule: RFC 6120, section 13.12, and CWE-779: failures must be logged, but not with a line for each and without
//! secrets.
//!
//! Right: one line for the first failure of an address, then one per minute with their number; a line for the login
//! with address, mechanism, transport and peer, and one for its end with reason and duration. Names without an
//! account are not logged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{PROGRAM_PASSWORD, ProgramUnderAttack};

const OPEN: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' version='1.0'>";

fn auth(program: &ProgramUnderAttack, plain: &str) -> (crate::support::RawSocket, String) {
    let mut client = program.connect(program.c2s);
    client.send(OPEN);
    client.until("</stream:features>");
    let plain = STANDARD.encode(plain);
    client.send(format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>"));
    let answer = client.until(">");
    (client, answer)
}

#[test]
fn failed_logins_are_aggregated_and_logins_are_one_line_each() {
    let program = ProgramUnderAttack::start("log-floods", "", "");
    for n in 0..100 {
        let name = if n % 2 == 0 { "juliet" } else { "my-secret-password" };
        let (_, answer) = auth(&program, &format!("\0{name}\0guess{n}"));
        assert!(answer.contains("<failure"), "{answer}");
    }
    let (mut romeo, answer) = auth(&program, &format!("\0romeo\0{PROGRAM_PASSWORD}"));
    assert!(answer.contains("<success"), "{answer}");
    romeo.send(OPEN);
    romeo.until("</stream:features>");
    romeo.send("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>balcony</resource></bind></iq>");
    romeo.until("</iq>");
    romeo.send("</stream:stream>");
    romeo.rest();
    program.wait_for_log("session ended");
    let log = program.log();
    let lines = |what: &str| log.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
    let failed = lines("login failed");
    // One line, and one for each minute that the case takes.
    assert!((1..=3).contains(&failed.len()), "{failed:#?}");
    assert!(failed[0].contains("peer=\"127.0.0.1\"") && failed[0].contains("count=1"), "{}", failed[0]);
    let opened = lines("logged in");
    assert_eq!(opened.len(), 1, "{opened:#?}");
    for part in ["jid=romeo@localhost/balcony", "mechanism=\"PLAIN\"", "transport=\"tcp\"", "peer=127.0.0.1:"]
    {
        assert!(opened[0].contains(part), "{part} in {}", opened[0]);
    }
    let ended = lines("session ended");
    assert!(ended[0].contains("reason=\"closed\"") && ended[0].contains("seconds="), "{}", ended[0]);
    for secret in ["guess1", "my-secret-password", PROGRAM_PASSWORD] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}
