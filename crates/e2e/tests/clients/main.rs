//! Tests with real clients against a real node: slixmpp, nbxmpp and xmpp.js over STARTTLS and direct TLS, profanity in
//! a terminal, and browser clients in `web`; all of them in rooms in `rooms`.
//!
//! Each test starts its own `throng serve` with a generated configuration, directory and ports, creates accounts by
//! `throng account add`, runs the scenarios of one client (`clients/`, where their coverage is described) and stops the
//! node by SIGTERM; it must exit with status 0. The libraries verify a certificate signed by a throw-away authority;
//! for the terminal the node has none configured and creates its own, which the user accepts.
//!
//! `interrupted_network` has its own network, whose links are set down; `space` creates it.
//!
//! Not implemented: everything that one node cannot show (clusters, federation), and timing.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first (`make test`
//! does); a stale binary is tested without warning. Missing programs are installed by `clients/setup.sh` or fail the
//! test; nothing is skipped.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

mod interrupted_network;
mod nodes;
mod rooms;
#[path = "../shared/space.rs"]
#[allow(dead_code, reason = "packets are lost in the tests of `throng load` only")]
mod space;
mod web;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use throng_e2e::clients::{install_clients, scripts_folder};
use throng_e2e::process::command_in_netns;
use throng_e2e::{TIMEOUT, poll, ports, signal};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse battery staple";
/// Users of a test: two for the scenarios, and a partner with another library.
const USERS: [&str; 3] = ["romeo", "juliet", "nurse"];

/// Time for a client to end when its scenarios are not done, before it is killed.
const CLIENT_EXIT: Duration = Duration::from_secs(10);
/// Time limit for all scenarios of one client on a busy machine.
const SCENARIOS: Duration = Duration::from_secs(900);

#[test]
fn slixmpp_over_starttls() {
    slixmpp("starttls");
}

#[test]
fn slixmpp_over_direct_tls() {
    slixmpp("tls");
}

#[test]
fn slixmpp_extensions_over_starttls() {
    slixmpp_extensions("starttls");
}

#[test]
fn slixmpp_extensions_over_direct_tls() {
    slixmpp_extensions("tls");
}

#[test]
fn nbxmpp_over_starttls() {
    nbxmpp("starttls");
}

#[test]
fn nbxmpp_over_direct_tls() {
    nbxmpp("tls");
}

#[test]
fn xmppjs_over_starttls() {
    xmppjs("starttls");
}

#[test]
fn xmppjs_over_direct_tls() {
    xmppjs("tls");
}

#[test]
fn xmppjs_extensions_over_starttls() {
    xmppjs_extensions("starttls");
}

#[test]
fn xmppjs_extensions_over_direct_tls() {
    xmppjs_extensions("tls");
}

#[test]
fn two_profanity_resources_of_one_user() {
    let node = ClientsNode::start("profanities", Certificate::OfTheNode);
    let mut client = node.client(&python(), "starttls");
    client.arg(scripts_folder().join("terminal/two.py")).env("PYTHONPATH", scripts_folder().join("slixmpp"));
    node.play(&mut client, "ok let_the_friend_speak_again\n");
    node.stop();
}

#[test]
fn profanity_over_starttls() {
    profanity("starttls");
}

#[test]
fn profanity_over_direct_tls() {
    profanity("tls");
}

fn slixmpp(transport: &str) {
    let node = ClientsNode::start(&format!("slixmpp-{transport}"), Certificate::Signed);
    let script = scripts_folder().join("slixmpp/scenarios.py");
    node.play(node.client(&python(), transport).arg(script), "ok login\n");
    node.stop();
}

fn slixmpp_extensions(transport: &str) {
    let node = ClientsNode::start(&format!("slixmpp-more-{transport}"), Certificate::Signed);
    let script = scripts_folder().join("slixmpp/extensions.py");
    node.play(node.client(&python(), transport).arg(script), "ok foreign_sessions_are_not_resumed\n");
    node.stop();
}

fn nbxmpp(transport: &str) {
    let node = ClientsNode::start(&format!("nbxmpp-{transport}"), Certificate::Signed);
    let script = scripts_folder().join("nbxmpp/scenarios.py");
    let python = install_clients().join("gvenv/bin/python");
    let last = "ok what_was_sent_in_vain_comes_after_the_resumption\n";
    node.play(node.client(&python, transport).arg(script), last);
    node.stop();
}

fn xmppjs(transport: &str) {
    let node = ClientsNode::start(&format!("xmppjs-{transport}"), Certificate::Signed);
    // The partner leaves when its standard input is closed: at the latest when this process ends.
    let mut partner = node
        .client(&python(), transport)
        .arg(scripts_folder().join("slixmpp/peer.py"))
        .env("XMPP_USER_A", USERS[2])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(node.file("partner.log"))
        .spawn()
        .expect("start the partner");
    let mut ready = String::new();
    BufReader::new(partner.stdout.take().expect("piped"))
        .read_line(&mut ready)
        .expect("read from the partner");
    let Some(address) = ready.strip_prefix("ready ") else {
        end(&mut partner, TIMEOUT);
        panic!("the partner did not log in: {ready}{}", node.scenario_args());
    };
    let mut client = node.client(&install_clients().join("bin/node"), transport);
    client.arg(scripts_folder().join("xmppjs/scenarios.js"));
    client.env("XMPP_PEER", address.trim()).env("XMPP_MODULES", install_clients().join("xmppjs"));
    node.play(&mut client, "ok friends_and_chat_with_slixmpp\n");
    drop(partner.stdin.take());
    let status = wait(&mut partner, TIMEOUT).unwrap_or_else(|| end(&mut partner, TIMEOUT));
    assert!(status.success(), "the partner ended with {status}{}", node.scenario_args());
    node.stop();
}

fn xmppjs_extensions(transport: &str) {
    let node = ClientsNode::start(&format!("xmppjs-more-{transport}"), Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), transport);
    client
        .arg(scripts_folder().join("xmppjs/extensions.js"))
        .env("XMPP_MODULES", install_clients().join("xmppjs"));
    node.play(&mut client, "ok profile_and_storage\n");
    node.stop();
}

fn profanity(transport: &str) {
    let node = ClientsNode::start(&format!("profanity-{transport}"), Certificate::OfTheNode);
    let mut client = node.client(&python(), transport);
    client
        .arg(scripts_folder().join("terminal/profanity.py"))
        .env("PYTHONPATH", scripts_folder().join("slixmpp"));
    node.play(&mut client, "ok log_out\n");
    node.stop();
}

/// Source of the node's certificate.
#[derive(Clone, Copy, PartialEq)]
enum Certificate {
    /// Files signed by an authority of the test, which the client trusts.
    Signed,
    /// None is configured: the node creates a self-signed one.
    OfTheNode,
}

/// A node for all clients, with its listeners.
struct ClientsNode {
    node: throng_e2e::NodeProcess,
    certificate: Certificate,
    address: Ipv4Addr,
    starttls: u16,
    tls: u16,
    http: u16,
    https: u16,
}

impl ClientsNode {
    fn start(name: &str, certificate: Certificate) -> Self {
        Self::start_in(None, Ipv4Addr::LOCALHOST, name, certificate)
    }

    /// Starts a node in a network namespace, at an address there.
    fn start_in(space: Option<String>, address: Ipv4Addr, name: &str, certificate: Certificate) -> Self {
        let mut node = throng_e2e::NodeProcess::new_in_netns(space, name);
        let folder = &node.folder;
        let [starttls, tls, http, https, proxy] = ports::free();
        let files = match certificate {
            Certificate::Signed => {
                sign_certificate(folder);
                format!(
                    "[[tls.certificates]]\ncertificate = '{0}/cert.pem'\nkey = '{0}/key.pem'\n",
                    folder.display()
                )
            }
            Certificate::OfTheNode => String::new(),
        };
        let text = format!(
            "hosts = ['{DOMAIN}']\nadmins = ['{1}@{DOMAIN}']\ndata_dir = '{0}/data'\n\n[storage]\nurl = 'sqlite:{0}/data/throng.db'\n\n\
             [[listen]]\nkind = 'c2s'\naddress = '{address}:{starttls}'\ntls = 'required'\n\n\
             [[listen]]\nkind = 'c2s-tls'\naddress = '{address}:{tls}'\n\n\
             [[listen]]\nkind = 'http'\naddress = '{address}:{http}'\n\n\
             [[listen]]\nkind = 'https'\naddress = '{address}:{https}'\n\n\
             [[listen]]\nkind = 'socks5-proxy'\naddress = '{address}:{proxy}'\n\n[modules]\nproxy65 = true\nupload = true\n\n\
             [http]\npublic_url = 'https://{address}:{https}'\n\n{files}",
            folder.display(),
            USERS[0]
        );
        node.configure(&text);
        for user in USERS {
            node.run_ok_with(
                &["account", "add", "--create", &format!("{user}@{DOMAIN}")],
                &format!("{PASSWORD}\n"),
            );
        }
        node.start();
        Self { node, certificate, address, starttls, tls, http, https }
    }

    fn file(&self, name: &str) -> File {
        File::create(self.folder.join(name)).expect("make a log")
    }

    /// A command with the settings shared by the clients; `clients/slixmpp/harness.py` explains them.
    fn client(&self, program: &Path, transport: &str) -> Command {
        let port = if transport == "tls" { self.tls } else { self.starttls };
        let mut command = command_in_netns(self.netns(), program);
        command
            .env("XMPP_HOST", self.address.to_string())
            .env("XMPP_PORT", port.to_string())
            .env("XMPP_TRANSPORT", transport)
            .env("XMPP_DOMAIN", DOMAIN)
            .env("XMPP_USER_A", USERS[0])
            .env("XMPP_USER_B", USERS[1])
            .env("XMPP_PASSWORD", PASSWORD)
            .env("XMPP_MECHANISMS", "SCRAM-SHA-1 SCRAM-SHA-256 SCRAM-SHA-512")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null());
        if self.certificate == Certificate::Signed {
            let authority = self.folder.join("authority.pem");
            command.env("XMPP_CA", &authority).env("SSL_CERT_FILE", &authority);
            command.env("NODE_EXTRA_CA_CERTS", authority);
        }
        command
    }

    /// Runs a client's scenarios; they must succeed and print the line `last`.
    fn play(&self, command: &mut Command, last: &str) {
        let log = self.file("client.log");
        command.stdout(log.try_clone().expect("share the log")).stderr(log);
        let mut client = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let Some(status) = wait(&mut client, SCENARIOS) else {
            end(&mut client, CLIENT_EXIT);
            panic!("the client is not done after {SCENARIOS:?}{}", self.scenario_args());
        };
        let said = fs::read_to_string(self.folder.join("client.log")).expect("read the client's log");
        assert!(
            status.success() && said.contains(last),
            "the client ended with {status}{}",
            self.scenario_args()
        );
        println!("{said}");
    }

    /// Output of all processes for the message of a failure; the failed one comes last.
    fn scenario_args(&self) -> String {
        let mut words = String::new();
        for name in ["log", "partner.log", "client.log"] {
            let path = self.folder.join(name);
            if let Ok(text) = fs::read(&path) {
                words += &format!("\n--- {}\n{}", path.display(), String::from_utf8_lossy(&text));
            }
        }
        words
    }

    /// Stops the node as an operator does.
    fn stop(mut self) {
        self.node.stop();
    }
}

impl Deref for ClientsNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

fn wait(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    poll(timeout, || child.try_wait().expect("look at a child"))
}

/// Sends SIGTERM, waits, then sends SIGKILL.
fn end(child: &mut Child, timeout: Duration) -> ExitStatus {
    signal(child.id(), "TERM");
    wait(child, timeout).unwrap_or_else(|| {
        child.kill().expect("kill a child");
        child.wait().expect("wait for a child")
    })
}

/// Creates an authority and a certificate for the domain and the address used by the clients (xmpp.js verifies the
/// former over STARTTLS and the latter over direct TLS).
fn sign_certificate(folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "An authority of the tests");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate().expect("make a key");
    let root = authority.self_signed(&authority_key).expect("sign the authority");

    let names = [DOMAIN, "localhost", "127.0.0.1"].map(String::from);
    let mut server = CertificateParams::new(names).expect("names of a certificate");
    server.distinguished_name.push(DnType::CommonName, DOMAIN);
    server.use_authority_key_identifier_extension = true; // Python from 3.13 on insists.
    let key = KeyPair::generate().expect("make a key");
    let issuer = Issuer::new(authority, authority_key);
    let certificate = server.signed_by(&key, &issuer).expect("sign the certificate");

    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("write a certificate");
    write("authority.pem", root.pem());
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
}

fn python() -> PathBuf {
    install_clients().join("venv/bin/python")
}
