//! Memory amplification in the XML parser.
//!
//! Done: before a login, on three hundred concurrent connections: elements of only short children, attributes,
//! declarations, deep nesting or references, each up to the limit and without end, over TCP and WebSocket.
//!
//! Rule: CVE-2026-43507 (Prosody: disproportionate allocation in the XML parser before a login); RFC 6120, section
//! 13.12.
//!
//! Right: an unfinished element costs no more than the bytes received, and other clients are served.

use crate::support::{ProgramUnderAttack, RawSocket, frame};

const AT_A_TIME: usize = 300;

#[test]
fn memory_of_an_element_is_proportional_to_its_bytes() {
    let limits = "[limits]\nlogin_failures_per_address = 1000000\nlogin_failures_per_address_and_account = 1000000\nlogin_failures_per_account = 1000000\n";
    let program = ProgramUnderAttack::start("parsing", limits, "");
    let header = "<stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
    let fill = |piece: &str| piece.repeat(15_000 / piece.len());
    let numbered = |piece: &dyn Fn(usize) -> String, count: usize| (0..count).map(piece).collect::<String>();
    let start = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'";
    let attacks = [
        format!("{start}>{}", fill("<a/>")),
        format!("{start}>{}", fill("<a b=''/>")),
        format!("{start}>{}", fill("<a xmlns='b'/>")),
        format!("{start}{}", numbered(&|n| format!(" a{n}=''"), 1_500)),
        format!("{start}{}", numbered(&|n| format!(" xmlns:a{n}='b'"), 900)),
        format!("{start}>{}", fill("<a>")),
        format!("{start}>{}", fill("&amp;")),
        format!("{start}>{}", fill("<![CDATA[]]>")),
        format!("{start}>{}", "A".repeat(15_000)),
    ];
    drop(program.connect(program.c2s));
    let before = program.resident();
    for attack in &attacks {
        let all: Vec<RawSocket> = (0..AT_A_TIME)
            .map(|n| {
                if n % 10 == 0 {
                    let mut connection = program.websocket("");
                    let open =
                        "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='localhost' version='1.0'/>";
                    connection.send(frame(0x81, open.len() as u64, open.as_bytes()));
                    connection.send(frame(0x01, attack.len() as u64, attack.as_bytes()));
                    return connection;
                }
                let mut connection = program.connect(program.c2s);
                connection.send(format!("{header}{attack}"));
                connection
            })
            .collect();
        // Another client is served meanwhile; its response shows that the node has read the input before it.
        drop(program.login("romeo", "x"));
        let grown = program.resident().saturating_sub(before);
        let sent = AT_A_TIME * attack.len();
        // Each socket and stream costs a few kilobytes in addition.
        let most = 3 * sent + AT_A_TIME * 24_000 + (16 << 20);
        assert!(
            grown < most as u64,
            "{} kB are resident for {} kB: {}",
            grown >> 10,
            sent >> 10,
            &attack[..90]
        );
        drop(all);
    }
}
