//! The program with its data on real servers of PostgreSQL, MariaDB and MySQL: setup, a node that is killed, and a database
//! that is killed while users are online. `faults.rs` has the other ways in which a database fails, under load.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

mod faults;
mod load;

use std::fs;
use std::time::Instant;

use test_databases::{Server, ServerKind};
use throng_e2e::text_client::{DOMAIN, TextClient};
use throng_e2e::{NodeProcess, describe_output, ports};

/// A node that is not started, with its data on a server, and its port.
fn node_on(server: &Server, name: &str) -> (NodeProcess, u16) {
    let [port] = ports::free();
    let node = NodeProcess::new(&format!("{name}-{:?}", server.kind()));
    let encoded = format!(":{}@", server.password().replace(' ', "%20"));
    let url = server.default_url().replacen(&encoded, "@", 1);
    assert!(!url.contains("correct"), "{url}");
    fs::write(node.folder.join("password"), format!("{}\n", server.password())).expect("a file");
    node.configure(&format!(
        "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
         [storage]\nurl = '{url}'\npassword_file = 'password'\n\
         [limits]\nnew_connections_per_second = 0\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\n"
    ));
    (node, port)
}

/// Output of a check that must succeed.
fn check(node: &NodeProcess) -> String {
    let output = node.run(&["check"]);
    let text = describe_output(&output);
    assert!(output.status.success(), "{text}");
    text
}

fn add_accounts(node: &NodeProcess, users: &[&str]) {
    for user in users {
        node.add_account(&format!("{user}@{DOMAIN}"), throng_e2e::text_client::PASSWORD);
    }
}

fn message(to: &str, body: &str) -> String {
    format!("<message to='{to}@{DOMAIN}' type='chat' id='{body}'><body>{body}</body></message>")
}

/// Sends a message to an account that is offline, and waits until the node answers for it (XEP-0198).
fn send_acknowledged(client: &mut TextClient, to: &str, body: &str, count: u32) {
    client.send(&message(to, body));
    client.send("<r xmlns='urn:xmpp:sm:3'/>");
    client.read_to(&format!("h='{count}'/>"));
}

/// The bodies of the stored messages, up to this one.
fn stored_messages(port: u16, user: &str, last: &str) -> Vec<String> {
    let mut client = TextClient::login(port, user);
    client.send("<presence/>");
    let mut bodies = Vec::new();
    while bodies.last().is_none_or(|body| body != last) {
        client.read_to("<body>");
        bodies.push(client.read_to("</body>"));
    }
    bodies
}

fn keeps_data_when_a_node_is_killed(kind: ServerKind) {
    let server = Server::start(kind);
    let (mut node, port) = node_on(&server, "database");
    let text = check(&node);
    assert!(text.contains("is empty; its tables will be created"), "{kind:?}: {text}");
    assert!(!text.contains(server.password()), "{kind:?}: {text}");
    add_accounts(&node, &["romeo", "juliet"]);
    let text = check(&node);
    assert!(text.contains(", schema "), "{kind:?}: {text}");
    node.start();
    let mut romeo = TextClient::login_managed(port, "romeo", "");
    romeo.read_to("h='1'/>");
    send_acknowledged(&mut romeo, "juliet", "one", 2);
    node.kill();
    node.start();
    // In another data directory nothing would be missing: everything is in the database.
    assert_eq!(stored_messages(port, "juliet", "one"), ["one"], "{kind:?}");
    node.stop();
    assert!(!node.log().contains(server.password()), "{kind:?}");
    assert!(
        fs::read_dir(node.folder.join("data")).expect("the directory").all(|entry| !entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .contains(".db")),
        "{kind:?}"
    );
}

fn serves_online_users_without_a_database(kind: ServerKind) {
    let server = Server::start(kind);
    let (mut node, port) = node_on(&server, "database-gone");
    add_accounts(&node, &["romeo", "juliet", "nurse", "tybalt"]);
    node.start();
    let mut romeo = TextClient::login_managed(port, "romeo", "");
    romeo.read_to("h='1'/>");
    let mut juliet = TextClient::login(port, "juliet");
    juliet.send("<presence/>");
    send_acknowledged(&mut romeo, "nurse", "before", 2);
    server.kill();
    romeo.send(&message("juliet", "online"));
    juliet.read_to("<body>online</body>");
    juliet.send(&message("romeo", "reply"));
    romeo.read_to("<body>reply</body>");
    let failure = TextClient::try_login(port, "tybalt").err();
    assert!(
        failure.as_ref().is_some_and(|failure| failure.contains("<temporary-auth-failure")),
        "{kind:?}: {failure:?}"
    );
    // A message that cannot be stored is returned, and its sender can send it again.
    romeo.send(&message("nurse", "lost"));
    let error = romeo.read_to("</error>");
    assert!(error.contains("id='lost'") && error.contains("type='wait'"), "{kind:?}: {error}");
    server.run();
    // Nothing has to be restarted.
    let mut tybalt = TextClient::login(port, "tybalt");
    tybalt.send("<presence/>");
    romeo.send(&message("nurse", "after"));
    romeo.send("<r xmlns='urn:xmpp:sm:3'/>");
    romeo.read_to("h='5'/>");
    assert_eq!(stored_messages(port, "nurse", "after"), ["before", "after"], "{kind:?}");
    node.stop_in_order();
}

fn keeps_accounts_apart(auth: ServerKind, data: ServerKind) {
    let (auth, data) = (Server::start(auth), Server::start(data));
    let [port] = ports::free();
    let mut node = NodeProcess::new(&format!("database-auth-{:?}", auth.kind()));
    let (auth_url, data_url) = (auth.default_url(), data.default_url());
    node.configure(&format!(
        "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\nurl = '{auth_url}'\n\
         [storage]\nurl = '{data_url}'\n[limits]\nnew_connections_per_second = 0\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\n"
    ));
    add_accounts(&node, &["romeo", "juliet"]);
    let text = check(&node);
    assert_eq!(text.matches(", schema ").count(), 2, "{text}");
    node.start();
    let mut romeo = TextClient::login_managed(port, "romeo", "");
    romeo.read_to("h='1'/>");
    send_acknowledged(&mut romeo, "juliet", "one", 2);
    assert_eq!(stored_messages(port, "juliet", "one"), ["one"]);
    // Logins need it, and nothing else does.
    auth.kill();
    let failure = TextClient::try_login(port, "juliet").err();
    assert!(
        failure.as_ref().is_some_and(|failure| failure.contains("<temporary-auth-failure")),
        "{failure:?}"
    );
    send_acknowledged(&mut romeo, "juliet", "two", 3);
    auth.run();
    assert_eq!(stored_messages(port, "juliet", "two"), ["two"]);
    drop(romeo);
    let removed = describe_output(&node.run(&["account", "remove", &format!("juliet@{DOMAIN}")]));
    assert!(removed.contains("juliet"), "{removed}");
    assert!(TextClient::try_login(port, "juliet").is_err());
    node.stop_in_order();
}

#[test]
fn accounts_are_on_postgresql_and_messages_on_mariadb() {
    keeps_accounts_apart(ServerKind::Postgres, ServerKind::MariaDb);
}

#[test]
fn accounts_are_on_mariadb_and_messages_on_postgresql() {
    keeps_accounts_apart(ServerKind::MariaDb, ServerKind::Postgres);
}

/// Creates accounts with rosters of 50 contacts, twice; returns the seconds of the first time.
fn create_in_bulk(kind: ServerKind, count: u32) -> f64 {
    let server = Server::start(kind);
    let (node, _) = node_on(&server, "bulk");
    let count = count.to_string();
    let words = ["account", "bulk", "--create", "--prefix", "user", "--count", &count, "--roster", "ring:50"];
    let words = [&words[..], &["--password", throng_e2e::text_client::PASSWORD]].concat();
    let run = |added: &str| {
        let begun = Instant::now();
        let output = node.run(&words);
        let text = describe_output(&output);
        assert!(output.status.success() && text.contains(added), "{kind:?}: {text}");
        begun.elapsed().as_secs_f64()
    };
    let seconds = run(&format!("{count} accounts added, 0 already existed"));
    // It can be repeated, as after an interruption.
    run(&format!("0 accounts added, {count} already existed"));
    for user in [0, 7, 199] {
        let text = describe_output(&node.run(&["account", "show", &format!("user{user}@{DOMAIN}")]));
        assert!(text.contains("contacts  50"), "{kind:?}: {text}");
    }
    seconds
}

#[test]
fn accounts_with_rosters_are_created_in_bulk_on_each_server() {
    for kind in ServerKind::ALL {
        create_in_bulk(kind, 1000);
    }
}

/// With a release build of the program: `cargo test --release -p throng-e2e --test databases -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement of some minutes"]
fn a_million_accounts_with_rosters_are_created_within_ten_minutes_on_postgresql() {
    let seconds = create_in_bulk(ServerKind::Postgres, 1_000_000);
    println!("a million accounts with 50 contacts each in {seconds:.0} s");
    assert!(seconds < 600.0, "{seconds:.0} s");
}

#[test]
fn accounts_and_messages_are_on_postgresql_and_survive_a_killed_node() {
    keeps_data_when_a_node_is_killed(ServerKind::Postgres);
}

#[test]
fn accounts_and_messages_are_on_mariadb_and_survive_a_killed_node() {
    keeps_data_when_a_node_is_killed(ServerKind::MariaDb);
}

#[test]
fn accounts_and_messages_are_on_mysql_and_survive_a_killed_node() {
    keeps_data_when_a_node_is_killed(ServerKind::MySql);
}

#[test]
fn users_exchange_messages_while_postgresql_is_gone_and_logins_fail_temporarily_until_it_is_back() {
    serves_online_users_without_a_database(ServerKind::Postgres);
}

#[test]
fn users_exchange_messages_while_mariadb_is_gone_and_logins_fail_temporarily_until_it_is_back() {
    serves_online_users_without_a_database(ServerKind::MariaDb);
}
