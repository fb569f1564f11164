//! Tests of whole conversations over BOSH (XEP-0124, XEP-0206) with the engine: login, chat, undelivered messages,
//! stream management, ends of sessions. The clock is injected; requests are passed without HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::clock::Clock;
use feature_api::feature::{Feature, FeatureBuilder};
use jid::Jid;
use net::bosh::{BoshSessionTable, BoshSettings, PendingResponse, RequestSource};
use testkit::server::{StreamClient, TestServer, TestServerConfig, run_until_idle};
use throng_core::message_backup::{BeginBackups, MessageBackup};
use throng_core::session::StreamManagementConfig;
use throng_core::{Account, Node, SharedStanza};
use throng_streams::{C2sConnection, TlsPolicy};

static SM: Feature = Feature {
    name: "sm",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management =
            StreamManagementConfig { resume_seconds: 300, unacked_bytes: 20_000, location: String::new() };
        builder.provide(management);
        builder.message_backup(Arc::new(NoBackup));
    },
    ..Feature::EMPTY
};

/// Messages are tracked, and never stored.
struct NoBackup;

impl MessageBackup for NoBackup {
    fn back_up(&self, _: &Arc<Node>, _: &Arc<Account>, _: BeginBackups<'_>) {}
    fn remove_backups(&self, _: &Arc<Node>, _: &Arc<Account>, _: Vec<SharedStanza>) {}
    fn abandon_backup(&self, _: &Arc<Node>, _: &Arc<Account>, _: &SharedStanza) {}

    fn row_of(&self, _: &Jid, _: &SharedStanza) -> Option<u64> {
        None
    }

    fn adopt_backup(&self, _: &Node, _: &Jid, _: &SharedStanza, _: u64) {}
    fn release_backup(&self, _: &Jid, _: &SharedStanza) {}
}

const NS: &str = "http://jabber.org/protocol/httpbind";

struct BoshFixture {
    server: TestServer,
    sessions: Arc<BoshSessionTable>,
}

impl BoshFixture {
    async fn new(change: impl FnOnce(&mut TestServerConfig)) -> BoshFixture {
        let mut setup = TestServerConfig { features: vec![&SM], ..TestServerConfig::default() };
        change(&mut setup);
        let server = setup.start();
        server.create_user("juliet").await;
        server.create_user("romeo").await;
        let (service, gate) = (server.context.clone(), server.connection_limiter.clone());
        let start = Box::new(move |stream: net::Stream| {
            let Ok(pass) = gate.try_acquire(stream.info().peer.ip()) else { return false };
            tokio::runtime::Handle::current().spawn(C2sConnection::new(stream, pass, service.clone()));
            true
        });
        let sessions = BoshSessionTable::new(BoshSettings::default(), server.clock.clone(), start);
        BoshFixture { server, sessions }
    }

    fn origin(&self, secure: bool) -> RequestSource {
        RequestSource {
            peer: SocketAddr::from(([192, 0, 2, 1], 4711)),
            listener: self.server.port.clone(),
            secure,
        }
    }

    async fn pass(&self, seconds: u32) {
        for _ in 0..seconds {
            self.server.advance(1).await;
            self.sessions.sweep();
        }
        run_until_idle().await;
    }

    /// Opens a session and reads its features.
    async fn open(&self, to: &str, secure: bool) -> Web<'_> {
        self.open_with(to, secure, "wait='60' hold='1'").await
    }

    async fn open_with(&self, to: &str, secure: bool, held: &str) -> Web<'_> {
        let body = format!(
            "<body to='{to}' {held} ver='1.6' rid='1000' xml:lang='en' xmpp:version='1.0' xmlns='{NS}' \
             xmlns:xmpp='urn:xmpp:xbosh'/>"
        );
        let mut first = self.sessions.handle_request(self.origin(secure), body.as_bytes());
        run_until_idle().await;
        let created = poll(&mut first).expect("an answer");
        let sid = created.split("sid='").nth(1).map(|rest| rest[..32].to_owned()).unwrap_or_default();
        Web { fixture: self, secure, sid, rid: 1000, held: Vec::new(), created }
    }

    /// Logs in, binds a resource and becomes available.
    async fn login(&self, user: &str) -> Web<'_> {
        let mut web = self.open("example.com", true).await;
        assert!(web.created.contains("<mechanism>PLAIN</mechanism>"), "{}", web.created);
        web.authenticate(user).await;
        let bound = web
            .ask("<iq type='set' id='b' xmlns='jabber:client'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>web</resource></bind></iq>")
            .await;
        assert!(bound.contains(&format!("<jid>{user}@example.com/web</jid>")), "{bound}");
        assert_eq!(web.ask("<presence/>").await, "", "the request is held");
        web
    }
}

fn poll(exchange: &mut PendingResponse) -> Option<String> {
    let answer = fetch(exchange)?;
    exchange.response_sent();
    Some(answer)
}

/// The response, which is not sent yet.
fn fetch(exchange: &mut PendingResponse) -> Option<String> {
    match pin!(exchange).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(String::from_utf8(answer.body.to_vec()).unwrap()),
        Poll::Pending => None,
    }
}

/// BOSH client.
struct Web<'w> {
    fixture: &'w BoshFixture,
    secure: bool,
    sid: String,
    rid: u64,
    held: Vec<PendingResponse>,
    created: String,
}

impl Web<'_> {
    fn send_with(&mut self, attributes: &str, payload: &str) {
        self.rid += 1;
        let body =
            format!("<body rid='{}' sid='{}' {attributes} xmlns='{NS}'>{payload}</body>", self.rid, self.sid);
        self.held
            .push(self.fixture.sessions.handle_request(self.fixture.origin(self.secure), body.as_bytes()));
    }

    fn send(&mut self, payload: &str) {
        self.send_with("", payload);
    }

    /// Answers available now, concatenated.
    async fn receive(&mut self) -> String {
        run_until_idle().await;
        let mut got = String::new();
        self.held.retain_mut(|exchange| match poll(exchange) {
            Some(text) => {
                got.push_str(&text);
                false
            }
            None => true,
        });
        got
    }

    async fn ask(&mut self, payload: &str) -> String {
        self.send(payload);
        self.receive().await
    }

    async fn authenticate(&mut self, user: &str) {
        // The password of all accounts of the test kit.
        let plain = match user {
            "romeo" => "AHJvbWVvAHIwbTMwbXlyMG0zMA==",
            _ => "AGp1bGlldAByMG0zMG15cjBtMzA=",
        };
        let done = self
            .ask(&format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>"))
            .await;
        assert!(done.contains("<success"), "{done}");
        self.send_with("to='example.com' xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'", "");
        let features = self.receive().await;
        assert!(features.contains("<stream:features><bind"), "{features}");
    }
}

#[tokio::test]
async fn a_bosh_user_exchanges_messages_with_a_tcp_user() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = fixture.server.login("juliet", "balcony").await;
    let mut romeo = fixture.login("romeo").await;
    assert!(!romeo.created.contains("starttls"), "encryption is HTTP's: {}", romeo.created);
    let got =
        romeo.ask("<message to='juliet@example.com/balcony' type='chat'><body>hi</body></message>").await;
    assert_eq!(got, format!("<body xmlns='{NS}'/>"), "the older request is answered, the newer one is held");
    let message = juliet.element().await;
    assert_eq!(
        (message.attr("from"), message.name()),
        (Some("romeo@example.com/web".into()), "message".into())
    );
    juliet.send("<message to='romeo@example.com/web' type='chat'><body>thou</body></message>").await;
    let got = romeo.receive().await;
    assert!(got.starts_with(&format!("<body xmlns='{NS}'><message xmlns='jabber:client'")), "{got}");
    assert!(got.contains("<body>thou</body>"));
    // Two stanzas that arrive between two requests are delivered together.
    for _ in 0..2 {
        juliet.send("<message to='romeo@example.com/web' type='chat'><body>again</body></message>").await;
    }
    run_until_idle().await;
    assert_eq!(romeo.ask("").await.matches("again").count(), 2);
}

#[tokio::test]
async fn a_client_that_disappears_leaves_no_session() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut romeo = fixture.login("romeo").await;
    assert_eq!(fixture.server.node.routing_table.sessions(), 1);
    romeo.send_with("type='terminate'", "<presence type='unavailable'/>");
    let got = romeo.receive().await;
    assert!(got.starts_with("<body type='terminate' xmlns"), "{got}");
    assert!(romeo.held.is_empty(), "all requests are answered");
    assert_eq!((fixture.server.node.routing_table.sessions(), fixture.sessions.counts().sessions), (0, 0));
}

#[tokio::test]
async fn undelivered_messages_survive_the_end_of_the_session() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = fixture.server.login("juliet", "balcony").await;
    let mut romeo = fixture.login("romeo").await;
    // The connection breaks.
    romeo.held.clear();
    juliet
        .send("<message to='romeo@example.com/web' type='chat' id='1'><body>art thou</body></message>")
        .await;
    run_until_idle().await;
    fixture.pass(59).await;
    assert_eq!(fixture.server.node.routing_table.sessions(), 2);
    fixture.pass(3).await;
    assert_eq!(fixture.server.node.routing_table.sessions(), 1, "the session is over");
    // There is no offline storage in this test, so the sender receives an error.
    let bounce = juliet.element().await;
    assert_eq!(
        (bounce.attr("type"), bounce.attr("id")),
        (Some("error".into()), Some("1".into())),
        "{bounce:?}"
    );
}

#[tokio::test]
async fn presence_is_batched_and_nothing_else_is_delayed() {
    let fixture = BoshFixture::new(|_| {}).await;
    let gather = &fixture.server.node.presence_batcher;
    gather.set_delay(500);
    let mut juliet = fixture.server.login("juliet", "balcony").await;
    let mut romeo = fixture.login("romeo").await;
    let to = "to='romeo@example.com/web'";
    for text in ["<show>away</show>", "<show>dnd</show>"] {
        juliet.send(&format!("<presence {to}>{text}</presence>")).await;
        assert_eq!(romeo.receive().await, "");
    }
    fixture.server.advance(1).await;
    gather.flush_due(fixture.server.clock.now());
    let got = romeo.receive().await;
    assert!(got.contains("dnd") && got.matches("<presence").count() == 1, "only the newest counts: {got}");
    romeo.send("");
    // Presence leaves in order with a message, and with the reply to a stanza of its receiver.
    juliet.send(&format!("<presence {to}><show>xa</show></presence>")).await;
    juliet.send(&format!("<message {to} type='chat'><body>thou</body></message>")).await;
    let got = romeo.receive().await;
    assert!(got.find("xa").unwrap() < got.find("thou").unwrap(), "{got}");
    romeo.send("");
    juliet.send(&format!("<presence {to}/>")).await;
    assert_eq!(romeo.receive().await, "");
    let got = romeo.ask("<message to='juliet@example.com' type='chat'><body>hi</body></message>").await;
    assert!(got.contains("<presence"), "{got}");
    // Errors, rooms, and presence of the user's own clients.
    juliet.send(&format!("<presence {to} type='error'><error type='cancel'/></presence>")).await;
    assert!(romeo.receive().await.contains("type='error'"));
    romeo.send("");
    juliet.send(&format!("<presence {to}><x xmlns='http://jabber.org/protocol/muc#user'/></presence>")).await;
    assert!(romeo.receive().await.contains("muc#user"));
    romeo.send("");
    let mut other = fixture.server.login("romeo", "phone").await;
    other.send("<presence to='romeo@example.com/web'/>").await;
    assert!(romeo.receive().await.contains("from='romeo@example.com/phone'"));
    // Presence that was already delivered is not due again.
    fixture.server.advance(1).await;
    gather.flush_due(fixture.server.clock.now());
    assert_eq!(romeo.ask("").await, "");
}

#[tokio::test]
async fn an_idle_client_is_not_pinged() {
    let fixture = BoshFixture::new(|setup| {
        setup.limits.idle_ping_seconds = 20;
        setup.limits.ping_timeout_seconds = 5;
    })
    .await;
    let mut romeo = fixture.login("romeo").await;
    for _ in 0..3 {
        fixture.pass(60).await;
        assert_eq!(romeo.receive().await, format!("<body xmlns='{NS}'/>"));
        romeo.send("");
    }
    assert_eq!(fixture.server.node.routing_table.sessions(), 1);
}

/// XEP-0198 over BOSH, and from BOSH to TCP.
#[tokio::test]
async fn a_lost_session_is_resumed_elsewhere() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = fixture.server.login("juliet", "balcony").await;
    let mut romeo = fixture.login("romeo").await;
    let enabled = romeo.ask("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    let id = enabled.split(" id='").nth(1).expect("an identifier").split('\'').next().unwrap().to_owned();
    juliet.send("<message to='romeo@example.com/web' type='chat'><body>wherefore</body></message>").await;
    run_until_idle().await;
    fixture.pass(62).await;
    assert_eq!(fixture.sessions.counts().sessions, 0, "the BOSH session is over");
    assert_eq!(fixture.server.node.routing_table.sessions(), 2, "the XMPP session is not");
    let mut web = fixture.open("example.com", true).await;
    web.authenticate("romeo").await;
    let resumed = web.ask(&format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='0'/>")).await;
    assert!(resumed.contains("<resumed") && resumed.contains("wherefore"), "{resumed}");
}

#[tokio::test]
async fn stream_errors_end_the_session() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut web = fixture.open("nowhere.example", true).await;
    assert!(web.created.contains("type='terminate' condition='host-unknown'"), "{}", web.created);
    web = fixture.open("example.com", true).await;
    let got = web.ask("<message to='juliet@example.com'/>").await;
    assert!(got.contains("condition='remote-stream-error'") && got.contains("<not-authorized"), "{got}");
    // A second session with the same resource replaces the first.
    let mut first = fixture.login("romeo").await;
    let _second = fixture.login("romeo").await;
    let got = first.receive().await;
    assert!(got.contains("condition='remote-stream-error'") && got.contains("<conflict"), "{got}");
}

#[tokio::test]
async fn where_tls_is_required_a_plaintext_client_cannot_log_in() {
    let fixture = BoshFixture::new(|setup| setup.policy.tls = TlsPolicy::Required).await;
    let web = fixture.open("example.com", false).await;
    assert!(!web.created.contains("<mechanism>"), "{}", web.created);
    assert!(fixture.open("example.com", true).await.created.contains("<mechanism>PLAIN"));
}

#[tokio::test]
async fn a_draining_node_notifies_its_clients() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut romeo = fixture.login("romeo").await;
    fixture.server.node.outboxes.close_all(&stanza::StreamCondition::SystemShutdown.into());
    let got = romeo.receive().await;
    assert!(got.contains("type='terminate' condition='system-shutdown'"), "{got}");
}

/// XEP-0124, section 12: each answer comes immediately, with the results of its own request.
#[tokio::test]
async fn a_polling_client_logs_in_and_receives() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = fixture.server.login("juliet", "balcony").await;
    let mut romeo = fixture.open_with("example.com", true, "wait='0' hold='0'").await;
    romeo.authenticate("romeo").await;
    let bind = "<iq type='set' id='b' xmlns='jabber:client'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
                <resource>web</resource></bind></iq>";
    let bound = romeo.ask(bind).await;
    assert!(bound.contains("<jid>romeo@example.com/web</jid>"), "{bound}");
    assert_eq!(romeo.ask("<presence/>").await, format!("<body xmlns='{NS}'/>"));
    juliet.send("<message to='romeo@example.com/web' type='chat'><body>thou</body></message>").await;
    fixture.pass(30).await;
    assert!(romeo.ask("").await.contains("<body>thou</body>"), "it waited for the next request");
    fixture.pass(30).await;
    assert_eq!(romeo.ask("").await, format!("<body xmlns='{NS}'/>"));
    assert_eq!(fixture.server.node.routing_table.sessions(), 2);
}

const MESSAGE: &str =
    "<message to='romeo@example.com/web' type='chat' id='1'><body>art thou</body></message>";
const ACK_REQUEST: &str = "<r xmlns='urn:xmpp:sm:3'/>";

/// juliet over TCP with stream management, who needs to know when her messages are safe.
async fn managed_sender(fixture: &BoshFixture) -> StreamClient {
    let mut juliet = fixture.server.login("juliet", "balcony").await;
    juliet.send("<enable xmlns='urn:xmpp:sm:3'/>").await;
    assert_eq!(juliet.element().await.name(), "enabled");
    juliet
}

#[tokio::test]
async fn a_message_is_safe_when_the_kernel_has_taken_its_response() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = managed_sender(&fixture).await;
    let mut romeo = fixture.login("romeo").await;
    for count in 1..4 {
        juliet.send(format!("{MESSAGE}{ACK_REQUEST}")).await;
        juliet.expect(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", count - 1)).await;
        run_until_idle().await;
        let response = &mut romeo.held[0];
        assert!(fetch(response).unwrap().contains("art thou"));
        run_until_idle().await;
        assert_eq!(juliet.try_receive().await, None, "it would be lost with the process");
        response.response_sent();
        juliet.expect(&format!("<a xmlns='urn:xmpp:sm:3' h='{count}'/>")).await;
        romeo.held.clear();
        romeo.send("");
    }
}

#[tokio::test]
async fn a_message_whose_response_was_not_sent_is_rerouted_when_the_session_ends() {
    for fetched in [false, true] {
        let fixture = BoshFixture::new(|_| {}).await;
        let mut juliet = managed_sender(&fixture).await;
        let mut romeo = fixture.login("romeo").await;
        juliet.send(MESSAGE).await;
        run_until_idle().await;
        if fetched {
            assert!(fetch(&mut romeo.held[0]).unwrap().contains("art thou"));
        }
        // The connection breaks before it has taken the response, and the client does not come back.
        romeo.held.clear();
        fixture.pass(62).await;
        assert_eq!(fixture.server.node.routing_table.sessions(), 1, "the session is over");
        let bounce = juliet.element().await;
        assert_eq!(bounce.attr("type"), Some("error".into()), "{fetched}: {bounce:?}");
    }
}

#[tokio::test]
async fn a_message_whose_response_was_sent_again_is_not_rerouted() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = managed_sender(&fixture).await;
    let mut romeo = fixture.login("romeo").await;
    juliet.send(MESSAGE).await;
    run_until_idle().await;
    romeo.held.clear();
    romeo.rid -= 1;
    assert!(romeo.ask("").await.contains("art thou"), "the client sends its request again");
    romeo.send_with("type='terminate'", "");
    assert!(romeo.receive().await.contains("type='terminate'"));
    assert_eq!(fixture.server.node.routing_table.sessions(), 1);
    assert_eq!(juliet.try_receive().await, None);
}

/// The final response is sent when the session has ended, so nobody could reroute them then.
#[tokio::test]
async fn messages_that_wait_when_the_client_ends_its_session_are_rerouted() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = managed_sender(&fixture).await;
    let mut romeo = fixture.login("romeo").await;
    romeo.held.clear();
    juliet.send(MESSAGE).await;
    run_until_idle().await;
    romeo.send_with("type='terminate'", "");
    let last = romeo.receive().await;
    assert!(last.contains("type='terminate'") && !last.contains("art thou"), "{last}");
    assert_eq!(juliet.element().await.attr("type"), Some("error".into()));
}

/// No limit counts what was written, so it must not grow: messages stay in the outbox, which has limits.
#[tokio::test]
async fn messages_stay_in_the_outbox_while_the_client_receives_one_response_slowly() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = managed_sender(&fixture).await;
    let mut romeo = fixture.login("romeo").await;
    let body = "m".repeat(1000);
    let message = |id: u32| {
        format!("<message to='romeo@example.com/web' type='chat' id='{id}'><body>{body}</body></message>")
    };
    juliet.send(message(0)).await;
    run_until_idle().await;
    let mut slow = romeo.held.remove(0);
    assert!(fetch(&mut slow).unwrap().contains("id='0'"));
    let mut received = String::new();
    for id in 1..100 {
        juliet.send(message(id)).await;
        if romeo.held.is_empty() {
            romeo.send("");
        }
        received += &romeo.receive().await;
    }
    let count = received.matches("<message").count();
    assert!((20..40).contains(&count), "{count}");
    slow.response_sent();
    for _ in 0..4 {
        received += &romeo.receive().await;
        romeo.send("");
    }
    let ids: Vec<&str> = received.split(" id='").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
    assert_eq!(ids, (1..100).map(|id| id.to_string()).collect::<Vec<_>>());
}

/// XEP-0124, section 14.3.
#[tokio::test]
async fn a_message_in_a_lost_response_is_rerouted_if_the_client_goes_on_without_it() {
    let fixture = BoshFixture::new(|_| {}).await;
    let mut juliet = managed_sender(&fixture).await;
    let mut romeo = fixture.login("romeo").await;
    juliet.send(MESSAGE).await;
    run_until_idle().await;
    romeo.held.clear();
    let iq = "<iq type='get' id='i' xmlns='jabber:client'><unknown xmlns='urn:x'/></iq>";
    for _ in 0..4 {
        assert!(romeo.ask(iq).await.contains("<iq"));
        assert_eq!(juliet.try_receive().await, None);
    }
    assert!(romeo.ask(iq).await.contains("condition='item-not-found'"));
    assert_eq!(fixture.server.node.routing_table.sessions(), 1, "the session is over");
    assert_eq!(juliet.element().await.attr("type"), Some("error".into()));
}
