//! BOSH body that expands four hundred times when it is parsed.
//!
//! Done: before a login, a BOSH request whose wrapper binds a prefix to a namespace of some kilobytes, with as many
//! elements using that prefix as fit; first as a session request, then within a session.
//!
//! Rule: XEP-0124, section 7 (payloads inherit the namespaces of the wrapper) lets a server write them out; RFC
//! 6120, section 13.12, requires bounded resources. One request of 266 kB cost 105 MB.
//!
//! Right: `policy-violation`, and no more memory than a session may use; other sessions continue.

use crate::support::ProgramUnderAttack;

const NS: &str = "http://jabber.org/protocol/httpbind";

fn post(program: &ProgramUnderAttack, body: &str) -> String {
    program.http(&format!(
        "POST /bosh HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

fn swollen(attributes: &str, namespace: usize) -> String {
    let open = format!("<body {attributes} xmlns='{NS}' xmlns:p='{}'>", "n".repeat(namespace));
    let room = 262_144 - open.len() - "</body>".len();
    format!("{open}{}</body>", "<p:a/>".repeat(room / "<p:a/>".len()))
}

#[test]
fn a_namespace_prefix_of_the_wrapper_does_not_amplify_a_request() {
    let program = ProgramUnderAttack::start("bosh-prefix", "", "");
    let creation = "rid='1' to='localhost' ver='1.6' wait='1' hold='1' xml:lang='en'";
    let begun = post(&program, &format!("<body {creation} xmlns='{NS}'/>"));
    let sid =
        begun.split("sid='").nth(1).and_then(|rest| rest.split('\'').next()).expect("a session").to_owned();
    let before = program.resident();
    for namespace in [2_400, 60_000] {
        let answer = post(&program, &swollen(creation, namespace));
        assert!(answer.contains("policy-violation"), "{namespace}: {answer:.600}");
    }
    let answer = post(&program, &swollen(&format!("rid='2' sid='{sid}'"), 2_400));
    assert!(answer.contains("policy-violation"), "{answer:.600}");
    let grown = program.resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
    assert!(post(&program, &format!("<body {creation} xmlns='{NS}'/>")).contains("sid='"), "others go on");
}
