//! External authentication with the program: tokens as passwords and with OAUTHBEARER, an HTTP service that fails, and what
//! stays in the database of the node.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use throng_e2e::text_client::TextClient;
use throng_e2e::{NodeProcess, describe_output, ports};

struct ProvidedNode {
    process: NodeProcess,
    port: u16,
}

impl ProvidedNode {
    /// Starts a node for `a.test` with a provider in its configuration.
    fn start(name: &str, files: &[(&str, &str)], auth: &str) -> ProvidedNode {
        let [port] = ports::free();
        let mut process = NodeProcess::new(name);
        process.configure(&format!(
            "data_dir = 'data'\nhosts = ['a.test', 'b.test']\n{auth}\n[[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\n\
             tls = 'off'\nallow_plain_without_tls = true\n"
        ));
        for (file, content) in files {
            fs::write(process.folder.join(file), content).expect("a file");
        }
        process.start();
        ProvidedNode { process, port }
    }

    /// Logs in and returns the client, or the condition of the failure.
    fn login(&self, mechanism: &str, message: &str) -> Result<TextClient, String> {
        let mut client = TextClient::connect(self.port, "a.test");
        let features = client.read_to("</stream:features>");
        assert!(features.contains(&format!("<mechanism>{mechanism}<")), "{features}");
        assert!(!features.contains("SCRAM"), "{features}");
        client.authenticate(mechanism, message)?;
        Ok(client)
    }

    fn plain(&self, user: &str, password: &str) -> Result<TextClient, String> {
        self.login("PLAIN", &format!("\0{user}\0{password}"))
    }

    fn bearer(&self, token: &str) -> Result<TextClient, String> {
        self.login("OAUTHBEARER", &format!("n,,\x01auth=Bearer {token}\x01\x01"))
    }
}

/// An HS256 token (RFC 7515, appendix A.1) that does not expire while the test runs.
fn token(secret: &str, user: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!("{{\"sub\":\"{user}\",\"exp\":4102444800}}");
    let signed = format!("{}.{}", part("{\"alg\":\"HS256\"}"), part(&claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

const ROSTER: &str = "<query xmlns='jabber:iq:roster'/>";

const EARLIER: &str = "the secret of the first test of all";
const LATER: &str = "another secret, which is as long as it";

#[test]
fn tokens_log_in_until_their_key_is_replaced_and_the_account_keeps_its_roster() {
    let auth = "[auth.jwt]\nsecret_file = 'secret'\nas_password = true";
    let node = ProvidedNode::start("accounts-jwt", &[("secret", EARLIER)], auth);
    let mut romeo = node.bearer(&token(EARLIER, "romeo")).expect("a login");
    let item = "<query xmlns='jabber:iq:roster'><item jid='juliet@a.test' name='Juliet'/></query>";
    romeo.request("set", item);
    let mut again = node.plain("romeo", &token(EARLIER, "romeo")).expect("a login");
    assert!(again.request("get", ROSTER).contains("Juliet"));
    for refused in [
        node.plain("juliet", &token(EARLIER, "romeo")),
        node.plain("romeo", "password"),
        node.bearer(&token(LATER, "romeo")),
        node.bearer(&token(EARLIER, "romeo@b.test")),
    ] {
        let condition = refused.expect_err("no login");
        assert!(condition.contains("<not-authorized"), "{condition}");
    }

    // Only the content of the file changes.
    fs::write(node.process.folder.join("secret"), LATER).expect("a file");
    let report = node.process.run_ok(&["reload"]);
    assert!(report.contains("account provider of a.test"), "{report}");
    assert!(node.bearer(&token(EARLIER, "romeo")).is_err());
    assert!(node.bearer(&token(LATER, "romeo")).is_ok());
    assert!(!node.process.run_ok(&["reload"]).contains("account provider"));
    // Connected users are not affected.
    assert!(romeo.request("get", ROSTER).contains("Juliet"));

    // What the provider cannot do is refused with the reason.
    for command in [
        &["account", "add", "--password", "0rchard garden", "juliet@a.test"][..],
        &["account", "passwd", "--password", "0rchard garden", "romeo@a.test"],
    ] {
        let output = node.process.run(command);
        assert!(!output.status.success(), "{command:?}");
        let text = describe_output(&output);
        assert!(text.contains("kept by an identity provider"), "{text}");
    }
    // Nobody but the operator can remove the data of a name that is given to another person.
    node.process.run_ok(&["account", "remove", "romeo@a.test"]);
    let mut next = node.bearer(&token(LATER, "romeo")).expect("a login");
    assert!(!next.request("get", ROSTER).contains("Juliet"));
}

/// A service with one password, which can stop to answer.
struct PasswordService {
    address: SocketAddr,
    silent: Arc<AtomicBool>,
}

impl PasswordService {
    fn start() -> PasswordService {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let silent = Arc::new(AtomicBool::new(false));
        let shared = silent.clone();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let silent = shared.clone();
                thread::spawn(move || PasswordService::serve(socket, &silent));
            }
        });
        PasswordService { address, silent }
    }

    fn serve(mut socket: TcpStream, silent: &AtomicBool) {
        let mut request = String::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            request.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if !request.ends_with('}') || silent.load(Ordering::SeqCst) {
                continue;
            }
            let valid =
                request.contains("\"user\":\"romeo\"") && request.contains("\"password\":\"0rchard\"");
            let body = format!("{{\"valid\":{valid}}}");
            request.clear();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if socket.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}

#[test]
fn a_service_that_does_not_answer_delays_logins_only() {
    let service = PasswordService::start();
    let auth =
        format!("[auth.http]\nurl = 'http://{}'\ndeadline_ms = 300\ncache_seconds = 0", service.address);
    let node = ProvidedNode::start("accounts-http", &[], &auth);
    let mut romeo = node.plain("romeo", "0rchard").expect("a login");
    let condition = node.plain("romeo", "orchard").expect_err("no login");
    assert!(condition.contains("<not-authorized"), "{condition}");
    service.silent.store(true, Ordering::SeqCst);
    let condition = node.plain("romeo", "0rchard").expect_err("no login");
    assert!(condition.contains("<temporary-auth-failure"), "{condition}");
    romeo.request("get", ROSTER);
    node.process.wait_for_log("timeout: http://");
    service.silent.store(false, Ordering::SeqCst);
    assert!(node.plain("romeo", "0rchard").is_ok(), "without a restart");
}

#[test]
fn a_domain_whose_service_is_dead_delays_no_other_domain() {
    let (dead, alive) = (PasswordService::start(), PasswordService::start());
    dead.silent.store(true, Ordering::SeqCst);
    let auth = format!(
        "[host.'a.test'.auth.http]\nurl = 'http://{}'\ndeadline_ms = 60000\nconnections = 4\n\
         [host.'b.test'.auth.http]\nurl = 'http://{}'\ncache_seconds = 0\n\
         [limits]\nnew_connections_per_second = 0\n",
        dead.address, alive.address
    );
    let node = ProvidedNode::start("accounts-dead", &[], &auth);
    let waiting: Vec<TextClient> = (0..40)
        .map(|n| {
            let mut client = TextClient::connect(node.port, "a.test");
            client.read_to("</stream:features>");
            client.send_auth("PLAIN", format!("\0user{n}\00rchard").as_bytes());
            client
        })
        .collect();
    for _ in 0..5 {
        TextClient::login_plain(node.port, "romeo@b.test", "0rchard").expect("a login");
    }
    for client in waiting {
        client.stream.set_nonblocking(true).expect("a socket");
        let answer = client.stream.peek(&mut [0]).expect_err("nothing to read");
        assert_eq!(answer.kind(), std::io::ErrorKind::WouldBlock, "all of them wait meanwhile");
    }
}
