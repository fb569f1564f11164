//! Clusters of real processes on one PostgreSQL and one NATS server: conversations across nodes, a node that is killed, one that
//! leaves, NATS that is gone for a while, and the API of one node about all of them; a drain (`drain`), NATS with TLS and credentials
//! (`nats_security`), and the console of one node (`console`).
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

mod console;
mod drain;
mod nats_security;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_databases::{NatsServer, Server, ServerKind};
use throng_e2e::text_client::{DOMAIN, PASSWORD, TextClient};
use throng_e2e::{NodeProcess, TIMEOUT, describe_output, ports, signal, wait};

/// A node and its ports.
struct Member {
    node: NodeProcess,
    clients: u16,
    http: u16,
}

struct Cluster {
    members: Vec<Member>,
    nats: NatsServer,
    _database: Server,
}

impl Cluster {
    /// Nodes that know one another, with these accounts.
    fn start(test: &str, count: usize, users: &[&str]) -> Cluster {
        Cluster::start_with(test, count, users, NatsServer::start(), "")
    }

    /// The same with this NATS server, and further lines of `[cluster]`.
    fn start_with(test: &str, count: usize, users: &[&str], nats: NatsServer, settings: &str) -> Cluster {
        let database = Server::start(ServerKind::Postgres);
        let members = (1..=count).map(|number| {
            let [clients, http] = ports::free();
            let node = NodeProcess::new(&format!("cluster-{test}-{number}"));
            node.configure(&format!(
                "hosts = ['{DOMAIN}']\nadmins = ['admin@{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
                 [storage]\nurl = '{}'\n[cluster]\nnats = ['{}']\nnode = 'node-{number}'\n{settings}\
                 [limits]\nnew_connections_per_second = 0\n\
                 [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'off'\n\
                 [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n",
                database.default_url(),
                nats.url()
            ));
            Member { node, clients, http }
        });
        let mut cluster = Cluster { members: members.collect(), nats, _database: database };
        for user in users {
            cluster.members[0].node.add_account(&format!("{user}@{DOMAIN}"), PASSWORD);
        }
        cluster.members.iter_mut().for_each(|member| member.node.start());
        cluster.wait_until_connected();
        cluster
    }

    fn wait_until_connected(&self) {
        let all = self.members.len().to_string();
        for member in &self.members {
            wait("the other nodes", || {
                (member.metric("throng_cluster_members") == all && member.metric("throng_ready") == "1")
                    .then_some(())
            });
        }
    }

    fn login(&self, member: usize, user: &str) -> TextClient {
        let mut client = TextClient::login(self.members[member].clients, user);
        client.send(ROSTER);
        client.send("<presence/>");
        client
    }
}

impl Member {
    /// The value of a metric without labels; empty if it is not there.
    fn metric(&self, name: &str) -> String {
        let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let mut page = String::new();
        let read = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut page)
        });
        read.expect("the metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_default().trim_end_matches(".0").to_owned()
    }
}

impl Member {
    /// Status and JSON of a response of the API.
    fn ask(&self, method: &str, path: &str, secret: &str) -> (u16, Value) {
        let request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {secret}\r\n\r\n"
        );
        let mut page = String::new();
        let read = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).and_then(|mut stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut page)
        });
        read.expect("an answer");
        let status = page.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = page.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

/// Only a resource that has requested the roster is sent changes of it.
const ROSTER: &str = "<iq type='get' id='roster'><query xmlns='jabber:iq:roster'/></iq>";

fn message(to: &str, body: &str) -> String {
    format!("<message to='{to}@{DOMAIN}' type='chat' id='{body}'><body>{body}</body></message>")
}

fn chat(from: &mut TextClient, to: &mut TextClient, user: &str, body: &str) {
    from.send(&message(user, body));
    to.read_to(&format!("<body>{body}</body>"));
}

/// Both see each other's presence.
fn befriend(one: (&mut TextClient, &str), two: (&mut TextClient, &str)) {
    let presence = |to: &str, kind: &str| format!("<presence to='{to}@{DOMAIN}' type='{kind}'/>");
    let ((one, one_name), (two, two_name)) = (one, two);
    one.send(&presence(two_name, "subscribe"));
    two.read_to("subscribe");
    two.send(&presence(one_name, "subscribed"));
    two.send(&presence(one_name, "subscribe"));
    one.read_to("subscribed");
    one.send(&presence(two_name, "subscribed"));
    two.send("<presence><status>befriended</status></presence>");
    one.read_to("<status>befriended</status>");
    one.send("<presence><status>me too</status></presence>");
    two.read_to("<status>me too</status>");
}

/// Numbers of the messages in a client's input up to its end, or up to the last one.
fn numbers(client: &mut TextClient, last: Option<usize>) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut buffer = [0; 65_536];
    loop {
        while let Some((_, rest)) = client.input.split_once("<body>number ") {
            let Some((number, rest)) = rest.split_once("</body>") else { break };
            seen.insert(number.parse().expect("a number"));
            client.input = rest.to_owned();
        }
        if last.is_some_and(|last| seen.contains(&last)) {
            return seen;
        }
        match client.stream.read(&mut buffer) {
            Ok(count @ 1..) => client.input.push_str(std::str::from_utf8(&buffer[..count]).expect("ASCII")),
            _ => return seen,
        }
    }
}

#[test]
fn users_on_two_nodes_chat_and_nothing_acknowledged_is_lost_when_one_is_killed() {
    let mut cluster = Cluster::start("two", 2, &["romeo", "juliet"]);
    let checked = describe_output(&cluster.members[0].node.run(&["check"]));
    assert!(checked.contains("the name of this node is node-1"), "{checked}");
    let mut romeo = TextClient::login_managed(cluster.members[0].clients, "romeo", "");
    romeo.send(ROSTER);
    let mut juliet = cluster.login(1, "juliet");
    chat(&mut romeo, &mut juliet, "juliet", "to juliet");
    chat(&mut juliet, &mut romeo, "romeo", "to romeo");
    befriend((&mut romeo, "romeo"), (&mut juliet, "juliet"));
    // Messages that are under way when the node is killed.
    const COUNT: usize = 200;
    for number in 0..COUNT {
        romeo.send(&message("juliet", &format!("number {number}")));
        if number == COUNT / 2 {
            cluster.members[1].node.kill();
        }
    }
    let killed = Instant::now();
    romeo.read_to("type='unavailable'");
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    // All stanzas until here, acknowledged: presence, roster, message, three for the subscriptions.
    let before = 1 + 1 + 1 + 3;
    let all = format!("h='{}'", before + COUNT);
    wait("the acknowledgement", || {
        romeo.send("<r xmlns='urn:xmpp:sm:3'/>");
        romeo.read_to("<a ");
        romeo.read_to("/>").contains(&all).then_some(())
    });
    // What the kernel of the killed node had taken still arrives.
    let mut received = numbers(&mut juliet, None);
    let mut again = cluster.login(0, "juliet");
    romeo.send(&message("juliet", &format!("number {COUNT}")));
    received.extend(numbers(&mut again, Some(COUNT)));
    let missing: Vec<usize> = (0..COUNT).filter(|number| !received.contains(number)).collect();
    assert!(missing.is_empty(), "{missing:?} were acknowledged and are lost");
    // The node returns, and so do its users.
    drop(again);
    cluster.members[1].node.start();
    cluster.wait_until_connected();
    let mut juliet = cluster.login(1, "juliet");
    romeo.read_to("from='juliet");
    chat(&mut romeo, &mut juliet, "juliet", "welcome back");
    cluster.members.iter_mut().for_each(|member| member.node.stop_in_order());
}

#[test]
fn three_nodes_carry_a_conversation_while_one_leaves_and_nats_is_gone_for_a_while() {
    let mut cluster = Cluster::start("three", 3, &["romeo", "juliet", "nurse"]);
    let mut romeo = cluster.login(0, "romeo");
    let mut juliet = cluster.login(1, "juliet");
    let mut nurse = cluster.login(2, "nurse");
    befriend((&mut romeo, "romeo"), (&mut juliet, "juliet"));
    befriend((&mut juliet, "juliet"), (&mut nurse, "nurse"));
    chat(&mut romeo, &mut nurse, "nurse", "one");
    chat(&mut nurse, &mut juliet, "juliet", "two");
    chat(&mut juliet, &mut romeo, "romeo", "three");
    // An orderly departure is known at once.
    let begun = Instant::now();
    cluster.members[2].node.stop_in_order();
    juliet.read_to("type='unavailable'");
    let all = cluster.members.split_off(2);
    cluster.wait_until_connected();
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    chat(&mut romeo, &mut juliet, "juliet", "four");
    cluster.members.extend(all);
    cluster.members[2].node.start();
    cluster.wait_until_connected();
    let mut nurse = cluster.login(2, "nurse");
    juliet.read_to("from='nurse");
    chat(&mut romeo, &mut nurse, "nurse", "five");
    // Without NATS each node serves its own users, and contacts on other nodes are not shown for long.
    let mut tybalt = cluster.login(0, "romeo");
    cluster.nats.kill();
    romeo.read_to("type='unavailable'");
    for member in &cluster.members {
        wait("not ready", || (member.metric("throng_ready") == "0").then_some(()));
    }
    chat(&mut tybalt, &mut romeo, "romeo", "on the same node");
    let begun = Instant::now();
    cluster.nats.run();
    cluster.wait_until_connected();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    romeo.read_to("<status>me too</status>");
    chat(&mut romeo, &mut nurse, "nurse", "six");
    chat(&mut nurse, &mut juliet, "juliet", "seven");
}

#[test]
fn the_api_of_one_node_lists_the_sessions_of_three_and_ends_that_of_another_node() {
    let mut cluster = Cluster::start("administration", 3, &["romeo", "juliet", "nurse"]);
    let _romeo = cluster.login(0, "romeo");
    let mut juliet = cluster.login(1, "juliet");
    let _nurse = cluster.login(2, "nurse");
    let first = &cluster.members[0];
    let secret = first.node.run_ok(&["token", "add", "admin", "--scope", "admin"]).trim().to_owned();
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let nodes_of = |list: &Value, key: &str| -> BTreeSet<(String, String)> {
        let user = |item: &Value| text(item, key).split('@').next().unwrap_or_default().to_owned();
        list.as_array().expect("a list").iter().map(|item| (user(item), text(item, "node"))).collect()
    };
    let expected = |pairs: &[(&str, &str)]| -> BTreeSet<(String, String)> {
        pairs.iter().map(|(user, node)| ((*user).to_owned(), (*node).to_owned())).collect()
    };
    let (status, sessions) = first.ask("GET", "/sessions", &secret);
    assert_eq!(
        (status, &sessions["total"], &sessions["missing"]),
        (200, &json!(3), &json!([])),
        "{sessions}"
    );
    assert_eq!(
        nodes_of(&sessions["items"], "jid"),
        expected(&[("romeo", "node-1"), ("juliet", "node-2"), ("nurse", "node-3")])
    );
    let transports: BTreeSet<String> =
        sessions["items"].as_array().expect("a list").iter().map(|item| text(item, "transport")).collect();
    assert_eq!(transports, ["tcp".to_owned()].into(), "each node asks its connections");
    let (_, nodes) = first.ask("GET", "/nodes", &secret);
    let list = nodes["nodes"].as_array().expect("a list");
    assert_eq!((list.len(), &nodes["totals"]["sessions"]), (3, &json!(3)), "{nodes}");
    assert!(list.iter().all(|node| node["ready"] == true && node["memory_bytes"].as_u64() > Some(1 << 20)));
    let table = first.node.run_ok(&["command", "get-nodes-list", "--json"]);
    assert!(["node-1", "node-2", "node-3"].iter().all(|name| table.contains(name)), "{table}");
    let (_, log) = first.ask("GET", "/log?limit=2000", &secret);
    let writers: BTreeSet<String> =
        log["lines"].as_array().expect("lines").iter().map(|line| text(line, "node")).collect();
    assert_eq!(writers.len(), 3, "{writers:?}");
    wait("samples of all nodes", || {
        let (_, overview) = first.ask("GET", "/overview", &secret);
        let last = overview["series"]["sessions"].as_array()?.last()?.clone();
        (last == 3).then_some(())
    });
    // A session of another node.
    let of_juliet =
        sessions["items"].as_array().expect("a list").iter().find(|item| item["node"] == "node-2");
    let address = text(of_juliet.expect("a session"), "jid").replace('/', "%2F");
    let (status, shown) = first.ask("GET", &format!("/sessions/{address}"), &secret);
    assert_eq!((status, &shown["node"]), (200, &json!("node-2")));
    assert_eq!(first.ask("DELETE", &format!("/sessions/{address}"), &secret).0, 204);
    juliet.read_to("policy-violation");
    assert_eq!(first.ask("GET", &format!("/sessions/{address}"), &secret).0, 404);
    // A process that is held up is named, and the others answer.
    signal(cluster.members[2].node.pid(), "STOP");
    let (status, sessions) = first.ask("GET", "/sessions", &secret);
    assert_eq!(
        (status, &sessions["missing"]),
        (200, &json!([{ "node": "node-3", "reason": "no-answer" }])),
        "{sessions}"
    );
    assert_eq!(nodes_of(&sessions["items"], "jid"), expected(&[("romeo", "node-1")]));
    signal(cluster.members[2].node.pid(), "CONT");
    cluster.members.iter_mut().for_each(|member| member.node.stop());
}
