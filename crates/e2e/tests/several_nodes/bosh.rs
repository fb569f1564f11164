//! BOSH on several nodes, whose clients reach any node with each request: XEP-0124, sections 14 and 17.
//!
//! The sessions are at node 0, and every node has streams, a table of BOSH sessions and HTTP without sockets.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster::NodeId;
use features::registry::ALL;
use net::bosh::{BoshSessionTable, BoshSettings, PendingResponse, RequestSource};
use net::http::{HttpConnection, HttpHandler, HttpSettings, HttpShared, RemoteClient};
use net::{ConnectionPermit, Stream};
use streams::{C2sConnection, connect_bosh_sessions};
use testkit::server::{TestServerConfig, TestServers, run_until_idle};

const NS: &str = "http://jabber.org/protocol/httpbind";
const BIND: &str = "<iq type='set' id='b' xmlns='jabber:client'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
     <resource>web</resource></bind></iq>";

struct BoshCluster {
    servers: TestServers,
    tables: Vec<Arc<BoshSessionTable>>,
}

impl BoshCluster {
    async fn new(count: usize) -> BoshCluster {
        let setup = TestServerConfig { features: ALL.to_vec(), ..TestServerConfig::default() };
        let servers = setup.start_cluster(count);
        for user in ["romeo", "juliet"] {
            servers.nodes[0].create_user(user).await;
        }
        let tables = servers.nodes.iter().map(|server| {
            let (service, limiter) = (server.context.clone(), server.connection_limiter.clone());
            let start = Box::new(move |stream: Stream| {
                let Ok(permit) = limiter.try_acquire(stream.info().peer.ip()) else { return false };
                tokio::runtime::Handle::current().spawn(C2sConnection::new(stream, permit, service.clone()));
                true
            });
            // The clock stands still.
            let settings =
                BoshSettings { requests_per_second: 0, polling_seconds: 0, ..BoshSettings::default() };
            let table = BoshSessionTable::new(settings, server.clock.clone(), start);
            connect_bosh_sessions(&server.node, &table);
            table
        });
        let tables = tables.collect();
        BoshCluster { servers, tables }
    }

    fn post(&self, node: usize, body: &str) -> PendingResponse {
        let origin = RequestSource {
            peer: SocketAddr::from(([192, 0, 2, 1], 4711)),
            listener: self.servers.nodes[node].port.clone(),
            secure: true,
        };
        self.tables[node].handle_request(origin, body.as_bytes())
    }

    async fn settle(&self) {
        self.servers.settle().await;
        self.servers.settle().await;
    }

    async fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            self.servers.advance(1).await;
            self.tables.iter().for_each(|table| table.sweep());
        }
        self.settle().await;
    }

    /// A node ends without notice, and the others notice it.
    async fn crash(&self, node: usize) {
        self.servers.bus.crash(NodeId::new(&format!("node-{node}")).expect("a name"));
        for _ in 0..64 {
            self.settle().await;
        }
    }

    async fn open(&self, user: &str) -> BoshClient<'_> {
        let body = format!(
            "<body to='example.com' wait='60' hold='1' ver='1.6' rid='1000' xmpp:version='1.0' xmlns='{NS}' \
             xmlns:xmpp='urn:xmpp:xbosh'/>"
        );
        let mut first = self.post(0, &body);
        self.settle().await;
        let created = fetch(&mut first).expect("an answer");
        first.response_sent();
        let sid = created.split("sid='").nth(1).expect("a session")[..32].to_owned();
        BoshClient {
            cluster: self,
            user: user.to_owned(),
            sid,
            rid: 1000,
            next: 0,
            held: Vec::new(),
            after_login: String::new(),
        }
    }

    /// A client that has logged in and is available. Each request went to another node than the one before.
    async fn login(&self, user: &str) -> BoshClient<'_> {
        let mut client = self.open(user).await;
        // The password of all accounts of the test kit.
        let plain = match user {
            "romeo" => "AHJvbWVvAHIwbTMwbXlyMG0zMA==",
            _ => "AGp1bGlldAByMG0zMG15cjBtMzA=",
        };
        let auth = format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>");
        assert!(client.ask(&auth).await.contains("<success"));
        client.send_with("to='example.com' xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'", "");
        assert!(client.receive().await.contains("<bind"));
        let bound = client.ask(BIND).await;
        assert!(bound.contains(&format!("<jid>{user}@example.com/web</jid>")), "{bound}");
        client.after_login = client.ask("<presence xmlns='jabber:client'/>").await;
        client
    }
}

/// The response, which is not sent yet.
fn fetch(pending: &mut PendingResponse) -> Option<String> {
    match Pin::new(pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(String::from_utf8(answer.body.to_vec()).expect("text")),
        Poll::Pending => None,
    }
}

struct BoshClient<'c> {
    cluster: &'c BoshCluster,
    user: String,
    sid: String,
    rid: u64,
    /// Node of the next request.
    next: usize,
    held: Vec<PendingResponse>,
    /// Responses to the first presence.
    after_login: String,
}

impl BoshClient<'_> {
    fn body(&self, rid: u64, attributes: &str, payload: &str) -> String {
        format!("<body rid='{rid}' sid='{}' {attributes} xmlns='{NS}'>{payload}</body>", self.sid)
    }

    /// Sends the next request to the next node.
    fn send_with(&mut self, attributes: &str, payload: &str) {
        self.rid += 1;
        self.next = (self.next + 1) % self.cluster.tables.len();
        let body = self.body(self.rid, attributes, payload);
        self.held.push(self.cluster.post(self.next, &body));
    }

    fn send(&mut self, payload: &str) {
        self.send_with("", payload);
    }

    /// Responses that arrive until nothing is under way, joined.
    async fn receive(&mut self) -> String {
        let mut received = String::new();
        loop {
            self.cluster.settle().await;
            let before = received.len();
            self.held.retain_mut(|pending| match fetch(pending) {
                Some(text) => {
                    pending.response_sent();
                    received.push_str(&text);
                    false
                }
                None => true,
            });
            if received.len() == before {
                return received;
            }
        }
    }

    async fn ask(&mut self, payload: &str) -> String {
        self.send(payload);
        self.receive().await
    }

    /// Receives, with a request of the next node held afterwards.
    async fn poll(&mut self) -> String {
        let mut received = self.receive().await;
        if self.held.is_empty() {
            self.send("");
            received += &self.receive().await;
        }
        received
    }

    fn message_to(&self, to: &str, number: usize) -> String {
        format!(
            "<message to='{to}@example.com/web' type='chat' id='{}-{number}' xmlns='jabber:client'><body>x</body></message>",
            self.user
        )
    }
}

/// Ids of the messages of a user.
fn ids(text: &str, of: &str) -> Vec<String> {
    let is_message = |part: &&str| part.starts_with("<message ");
    let parts = text.split_inclusive('>').filter(is_message);
    let id =
        |part: &str| part.split("id='").nth(1).and_then(|rest| rest.split('\'').next()).map(str::to_owned);
    parts.filter_map(id).filter(|id| id.starts_with(of)).collect()
}

fn all(of: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{of}-{number}")).collect()
}

#[tokio::test]
async fn requests_of_a_session_reach_it_through_all_nodes_in_turn() {
    for nodes in [2, 3] {
        let cluster = BoshCluster::new(nodes).await;
        let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
        let (mut of_romeo, mut of_juliet) = (String::new(), String::new());
        for number in 0..30 {
            let (to_juliet, to_romeo) =
                (romeo.message_to("juliet", number), juliet.message_to("romeo", number));
            romeo.send(&to_juliet);
            if number % 3 > 0 {
                of_juliet += &romeo.receive().await;
            }
            juliet.send(&to_romeo);
            of_romeo += &juliet.poll().await;
            of_juliet += &romeo.poll().await;
        }
        for _ in 0..3 {
            of_romeo += &juliet.poll().await;
            of_juliet += &romeo.poll().await;
        }
        assert_eq!(ids(&of_romeo, "romeo"), all("romeo", 30), "{nodes}");
        assert_eq!(ids(&of_juliet, "juliet"), all("juliet", 30), "{nodes}");
        let counts: Vec<_> = cluster.tables.iter().map(|table| table.counts()).collect();
        assert_eq!(counts[0].sessions, 2);
        assert!(counts[1..].iter().all(|counts| counts.forwarded > 20 && counts.unknown_session == 0));
    }
}

/// Requests overtake one another on their way through different nodes.
#[tokio::test]
async fn section_14_2_requests_that_arrive_out_of_order_are_handled_in_order() {
    let cluster = BoshCluster::new(2).await;
    let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    romeo.poll().await;
    juliet.ask(&juliet.message_to("romeo", 0)).await;
    assert_eq!(ids(&romeo.receive().await, "juliet"), all("juliet", 1));
    assert!(romeo.held.is_empty());
    let (first, second) = (romeo.message_to("juliet", 0), romeo.message_to("juliet", 1));
    // The one through node 1 takes longer.
    let slow = cluster.post(1, &romeo.body(romeo.rid + 1, "", &first));
    let fast = cluster.post(0, &romeo.body(romeo.rid + 2, "", &second));
    romeo.rid += 2;
    romeo.held.extend([slow, fast]);
    romeo.receive().await;
    assert_eq!(ids(&juliet.poll().await, "romeo"), all("romeo", 2));
}

#[tokio::test]
async fn section_14_3_a_lost_response_is_sent_again_by_any_node() {
    let cluster = BoshCluster::new(2).await;
    let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    for number in 0..4 {
        let (lost_at, again_at) = (number % 2, number / 2);
        juliet.held.clear();
        cluster.settle().await;
        juliet.rid += 1;
        let body = juliet.body(juliet.rid, "", "");
        let mut pending = cluster.post(lost_at, &body);
        cluster.settle().await;
        romeo.ask(&romeo.message_to("juliet", number)).await;
        let text = fetch(&mut pending).expect("a message");
        assert_eq!(ids(&text, "romeo"), [format!("romeo-{number}")]);
        drop(pending);
        cluster.settle().await;
        let mut again = cluster.post(again_at, &body);
        cluster.settle().await;
        assert_eq!(fetch(&mut again).as_ref(), Some(&text), "{number}");
        again.response_sent();
        cluster.settle().await;
        juliet.send("");
        assert_eq!(ids(&juliet.receive().await, "romeo"), [""; 0], "once");
    }
}

/// The message in a response that no client has taken is treated as for an offline user, wherever the response was lost.
#[tokio::test]
async fn a_message_in_a_response_lost_elsewhere_is_not_lost() {
    for (lost_at, is_taken) in [(0, false), (1, false), (0, true), (1, true)] {
        let cluster = BoshCluster::new(2).await;
        let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
        // Without stream management of the sender, nothing waits for the client.
        assert!(romeo.ask("<enable xmlns='urn:xmpp:sm:3'/>").await.contains("<enabled"));
        juliet.held.clear();
        juliet.rid += 1;
        let mut pending = cluster.post(lost_at, &juliet.body(juliet.rid, "", ""));
        cluster.settle().await;
        romeo.ask(&romeo.message_to("juliet", 0).replace("/web", "")).await;
        assert_eq!(ids(&fetch(&mut pending).expect("a message"), "romeo"), all("romeo", 1));
        if is_taken {
            pending.response_sent();
        }
        drop(pending);
        cluster.settle().await;
        cluster.advance(130).await;
        let mut again = cluster.login("juliet").await;
        let received = again.after_login.clone() + &again.poll().await + &again.poll().await;
        let expected = all("romeo", usize::from(!is_taken));
        assert_eq!(ids(&received, "romeo"), expected, "{lost_at}, {is_taken}: {received}");
    }
}

#[tokio::test]
async fn a_client_learns_that_the_node_of_its_session_is_gone() {
    let cluster = BoshCluster::new(2).await;
    let mut juliet = cluster.login("juliet").await;
    juliet.held.clear();
    juliet.rid += 1;
    let mut held = cluster.post(1, &juliet.body(juliet.rid, "", ""));
    cluster.settle().await;
    assert_eq!(fetch(&mut held), None);
    cluster.crash(0).await;
    // It may only have been cut off, so the client asks again, each time after a moment.
    let text = fetch(&mut held).expect("an answer");
    assert!(text.contains("type='error'"), "{text}");
    let next = juliet.body(juliet.rid + 1, "", "");
    let mut held = cluster.post(1, &next);
    cluster.settle().await;
    assert_eq!(fetch(&mut held), None);
    cluster.servers.advance(10).await;
    cluster.settle().await;
    let text = fetch(&mut held).expect("an answer");
    assert!(text.contains("type='error'"), "{text}");
    let mut last = cluster.post(1, &next);
    cluster.settle().await;
    let text = fetch(&mut last).expect("an answer");
    assert!(text.contains("type='terminate'") && text.contains("condition='item-not-found'"), "{text}");
}

#[tokio::test]
async fn a_session_is_used_again_through_a_node_that_was_cut_off_from_it() {
    let cluster = BoshCluster::new(2).await;
    let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    juliet.held.clear();
    juliet.rid += 1;
    let body = juliet.body(juliet.rid, "", "");
    let mut held = cluster.post(1, &body);
    cluster.settle().await;
    let nodes = ["node-0", "node-1"].map(|name| NodeId::new(name).expect("a name"));
    cluster.servers.bus.cut(nodes[0], nodes[1]);
    for _ in 0..64 {
        cluster.settle().await;
    }
    let text = fetch(&mut held).expect("an answer");
    assert!(text.contains("type='error'"), "{text}");
    let mut early = cluster.post(1, &body);
    cluster.settle().await;
    assert_eq!(fetch(&mut early), None);
    cluster.servers.bus.heal(nodes[0], nodes[1]);
    cluster.servers.advance(3).await;
    assert!(fetch(&mut early).expect("an answer").contains("type='error'"));
    let mut again = cluster.post(1, &body);
    cluster.settle().await;
    assert_eq!(fetch(&mut again), None, "the session goes on");
    romeo.next = 1;
    romeo.ask(&romeo.message_to("juliet", 0)).await;
    assert_eq!(ids(&fetch(&mut again).expect("a message"), "romeo"), all("romeo", 1));
}

/// A client can send requests faster than the other node handles them.
#[tokio::test]
async fn forwarded_requests_leave_room_for_messages_in_the_queue_between_the_nodes() {
    let cluster = BoshCluster::new(2).await;
    let (romeo, juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    let mut refused = 0;
    for _ in 0..20 {
        for client in [&romeo, &juliet] {
            let long = client.message_to("romeo", 0).replace(">x<", &format!(">{}<", "x".repeat(200_000)));
            let mut pending = cluster.post(1, &client.body(client.rid + 1, "", &long));
            refused += usize::from(fetch(&mut pending).is_some_and(|text| text.contains("type='error'")));
        }
    }
    assert!(refused >= 20, "{refused} of 40");
    let node = &cluster.servers.nodes[1].node;
    let deliver = |_| {
        let (own, to) = ("node-1", "node-0");
        let own = NodeId::new(own).expect("a name");
        let (kind, class) = (cluster::EnvelopeKind::Engine(22), cluster::EnvelopeClass::Control);
        let envelope = cluster::Envelope::new(kind, class, own, Vec::new(), vec![0; 100_000]);
        node.cluster.deliver(NodeId::new(to).expect("a name"), envelope).is_ok()
    };
    assert_eq!((0..10).filter(|number| deliver(*number)).count(), 10);
}

/// Each of them could occupy the nodes until the client has read all.
#[tokio::test]
async fn of_a_request_that_is_sent_many_times_the_last_one_is_answered() {
    let cluster = BoshCluster::new(2).await;
    let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    juliet.held.clear();
    cluster.settle().await;
    juliet.rid += 1;
    let body = juliet.body(juliet.rid, "", "");
    let mut first = cluster.post(0, &body);
    romeo.ask(&romeo.message_to("juliet", 0)).await;
    let text = fetch(&mut first).expect("a message");
    let mut many: Vec<PendingResponse> = (0..100).map(|_| cluster.post(1, &body)).collect();
    cluster.settle().await;
    let answers: Vec<String> = many.iter_mut().filter_map(fetch).collect();
    assert_eq!(answers.last(), Some(&text));
    many.last_mut().expect("one").response_sent();
    cluster.settle().await;
    let repeated = answers.iter().filter(|answer| **answer == text).count();
    assert!(answers.len() == 100 && repeated < 100, "{repeated} of {}", answers.len());
}

#[tokio::test]
async fn section_17_3_a_client_repeats_what_was_not_answered_in_time_or_before_a_shutdown() {
    for shuts_down in [false, true] {
        let cluster = BoshCluster::new(2).await;
        let mut juliet = cluster.login("juliet").await;
        juliet.held.clear();
        cluster.settle().await;
        juliet.rid += 1;
        let body = juliet.body(juliet.rid, "", "");
        let mut held = cluster.post(1, &body);
        cluster.settle().await;
        if shuts_down {
            cluster.tables[1].close_all();
            cluster.settle().await;
        } else {
            // Node 0 sweeps no sessions: it does not answer.
            cluster.servers.advance(71).await;
        }
        let text = fetch(&mut held).expect("an answer");
        assert!(text.contains("type='error'"), "{shuts_down}: {text}");
        cluster.settle().await;
        assert_eq!(cluster.tables[0].counts().held, 0, "the session has learnt it");
        held = cluster.post(0, &body);
        cluster.settle().await;
        assert_eq!(fetch(&mut held), None, "the session goes on");
    }
}

#[tokio::test]
async fn bodies_above_one_envelope_arrive_in_both_directions() {
    let cluster = BoshCluster::new(2).await;
    let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    // His next request and the one that she has sent are at node 1.
    for (client, node) in [(&mut romeo, 0), (&mut juliet, 1)] {
        if client.next != node {
            client.ask("").await;
        }
    }
    let long = romeo.message_to("juliet", 0).replace(">x<", &format!(">{}<", "x".repeat(261_950)));
    assert!(romeo.body(romeo.rid, "", &long).len() > 256 << 10, "above one part");
    romeo.ask(&long).await;
    let received = juliet.receive().await;
    assert!(received.len() > 256 << 10, "{}", received.len());
    assert_eq!(ids(&received, "romeo"), all("romeo", 1));
}

#[tokio::test]
async fn an_envelope_that_is_no_request_ends_nothing() {
    let cluster = BoshCluster::new(2).await;
    let mut juliet = cluster.login("juliet").await;
    let nonsense = [&b""[..], b"1", &[0; 12], &[0xff; 13], &[0xff; 40]];
    for kind in [20, 21, 22] {
        for octets in nonsense {
            let own = NodeId::new("node-1").expect("a name");
            let kind = cluster::EnvelopeKind::Engine(kind);
            let envelope =
                cluster::Envelope::new(kind, cluster::EnvelopeClass::Control, own, Vec::new(), octets);
            let to = NodeId::new("node-0").expect("a name");
            cluster.servers.nodes[1].node.cluster.deliver(to, envelope).expect("it is sent");
        }
    }
    cluster.settle().await;
    assert!(
        juliet
            .ask("<iq type='get' id='p' xmlns='jabber:client'><ping xmlns='urn:xmpp:ping'/></iq>")
            .await
            .contains("id='p'")
    );
}

/// HTTP of one node without sockets.
struct HttpOfNode {
    http: Arc<HttpShared>,
    table: Arc<BoshSessionTable>,
}

impl HttpHandler for HttpOfNode {
    type ResponseFuture = PendingResponse;

    fn shared(&self) -> &HttpShared {
        &self.http
    }

    fn needs_tls(&self) -> bool {
        false
    }

    fn bosh_request(&self, origin: RequestSource, body: &[u8]) -> PendingResponse {
        self.table.handle_request(RequestSource { secure: true, ..origin }, body)
    }

    fn response_sent(&self, response: &mut PendingResponse) {
        response.response_sent();
    }

    fn acquire_permit(&self, _: &RemoteClient) -> Option<ConnectionPermit> {
        None
    }

    fn websocket(&self, _: Stream, _: ConnectionPermit) {}
    fn passthrough(&self, _: Stream, _: ConnectionPermit) {}
}

/// XEP-0124, section 18: pipelined requests, of two sessions, at the node that has neither.
#[tokio::test]
async fn responses_leave_a_kept_connection_in_the_order_of_the_requests() {
    let cluster = BoshCluster::new(2).await;
    let (mut romeo, mut juliet) = (cluster.login("romeo").await, cluster.login("juliet").await);
    romeo.held.clear();
    juliet.held.clear();
    cluster.settle().await;
    let server = &cluster.servers.nodes[1];
    let http = HttpShared::new(HttpSettings::default(), server.clock.clone());
    let handler = Arc::new(HttpOfNode { http, table: cluster.tables[1].clone() });
    let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
    let (stream, mut pipe) = Stream::memory_with_peer(server.port.clone(), 1 << 16, peer);
    let permit = server.connection_limiter.try_acquire(peer.ip()).expect("room");
    tokio::runtime::Handle::current().spawn(HttpConnection::new(stream, permit, handler));
    let mut write = |body: &str| {
        let request =
            format!("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let written = pipe.poll_write(&mut Context::from_waker(Waker::noop()), request.as_bytes());
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == request.len()));
    };
    // Juliet's is held, and romeo's, which is answered first, waits behind it.
    let ping = "<iq type='get' id='ping' xmlns='jabber:client'><ping xmlns='urn:xmpp:ping'/></iq>";
    write(&juliet.body(juliet.rid + 1, "", ""));
    write(&romeo.body(romeo.rid + 1, "", ping));
    romeo.rid += 1;
    cluster.settle().await;
    let mut read = || {
        let mut buffer = [0; 1 << 16];
        match pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(count) => String::from_utf8_lossy(&buffer[..count]).into_owned(),
            Poll::Pending => String::new(),
        }
    };
    assert_eq!(read(), "");
    romeo.next = 1;
    romeo.ask(&romeo.message_to("juliet", 0)).await;
    run_until_idle().await;
    let text = read();
    let (message, pong) =
        (text.find("romeo-0").expect("the message"), text.find("id='ping'").expect("the result"));
    assert!(message < pong, "{text}");
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
}
