//! Tests of the lifetime of connections: RFC 6120, sections 4.4 and 4.6, timeouts, shutdown, internal errors.
//!
//! The clock is manual; `advance` runs the sweep once a second, as the program does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use feature_api::feature::{Feature, FeatureBuilder};
use stanza::{StanzaKindSet, StreamCondition};
use testkit::server::{ReceivedEvent, StreamClient, TestServer, TestServerConfig, run_until_idle};
use throng_core::effect::Effects;
use throng_core::hooks::{Flow, HandlerOutcome, Interest, OutgoingCtx, Phase, StopReason};
use throng_core::provided::KeepAlivePing;
use throng_core::session::ToRewrite;
use throng_core::{NodeLimits, SharedStanza};
use throng_streams::C2sConnection;
use tokio::sync::Semaphore;

/// Sends keep-alive pings to idle clients.
static PROBE: Feature = Feature {
    name: "probe",
    build: |builder: &mut FeatureBuilder<'_>| {
        builder.provide(KeepAlivePing(|session| {
            SharedStanza::parse(format!("<iq type='get' id='alive' to='{}'/>", session.jid).as_bytes())
        }));
    },
    ..Feature::EMPTY
};

/// Messages to the domain wait until a test opens the gate; their content selects what happens then.
static SLOW: Feature = Feature {
    name: "slow",
    build: |builder: &mut FeatureBuilder<'_>| {
        builder.outgoing(
            Phase::Police,
            Interest::kinds(StanzaKindSet::MESSAGES),
            |ctx: &mut OutgoingCtx<'_>| {
                let text = String::from_utf8_lossy(ctx.stanza.bytes()).into_owned();
                if text.contains("panic later") {
                    return Flow::Wait(Box::pin(async { panic!("a test") }));
                }
                if !text.contains("slow") {
                    return Flow::Next;
                }
                Flow::Wait(Box::pin(async {
                    GATE.with(|gate| gate.clone()).acquire().await.expect("a gate").forget();
                    DONE.with(|done| done.fetch_add(1, Ordering::SeqCst));
                    HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects: Effects::default() }
                }))
            },
        );
    },
    ..Feature::EMPTY
};

thread_local! {
    // Every test has its own thread, and its runtime stays on it.
    static GATE: Arc<Semaphore> = Arc::new(Semaphore::new(0));
    static DONE: AtomicU32 = const { AtomicU32::new(0) };
}

fn done() -> u32 {
    DONE.with(|done| done.load(Ordering::SeqCst))
}

async fn start(change: impl FnOnce(&mut TestServerConfig)) -> TestServer {
    let mut setup = TestServerConfig { certificates: false, ..TestServerConfig::default() };
    change(&mut setup);
    let server = setup.start();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    server
}

fn nothing_left(server: &TestServer) {
    assert_eq!((server.node.outboxes.len(), server.node.routing_table.sessions()), (0, 0));
    assert_eq!(server.connection_limiter.counts().connections, 0);
}

#[tokio::test]
async fn every_step_of_negotiation_has_a_timeout() {
    let server = start(|_| {}).await;
    let seconds = server.node.limits().negotiation_timeout_seconds;
    let mut silent = server.connect();
    let mut opened = server.connect();
    opened.open().await;
    let mut challenged = server.connect();
    challenged.open().await;
    challenged.auth(sasl::Mechanism::ScramSha1, b"n,,n=juliet,r=abcdefghijklmnop").await;
    challenged.element().await;
    let mut authenticated = server.connect();
    authenticated.open().await;
    authenticated
        .authenticate(sasl::Mechanism::ScramSha1, "juliet", testkit::server::PASSWORD)
        .await
        .unwrap();
    authenticated.open().await;
    server.advance(seconds - 1).await;
    opened.send(" ").await;
    server.advance(1).await;
    for client in [&mut silent, &mut opened, &mut challenged, &mut authenticated] {
        client.expect_stream_error(StreamCondition::ConnectionTimeout).await;
    }
    drop((silent, opened, challenged, authenticated));
    run_until_idle().await;
    nothing_left(&server);
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.6.4
//= type=test
//# At the time of writing, it is RECOMMENDED that any such check be performed not more than once every 5 minutes
//# and that, ideally, such checks will be initiated by clients rather than servers.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.3.4
//= type=test
//# That behavior is no longer recommended; instead, the error SHOULD be used only if the connected client or peer
//# server has not responded to data sent over the stream.
//= https://xmpp.org/extensions/xep-0198.html#intro
//= type=test
//# To check TCP connectivity underneath a given stream, it is RECOMMENDED to use whitespace keepalives (see RFC
//# 6120), XEP-0199, or TCP keepalives.
#[tokio::test]
async fn section_4_6_4_a_silent_client_is_pinged_and_then_closed() {
    let server = start(|setup| setup.features = vec![&PROBE]).await;
    let (idle, ping) = (server.node.limits().idle_ping_seconds, server.node.limits().ping_timeout_seconds);
    let mut juliet = server.login("juliet", "balcony").await;
    for _ in 0..3 {
        server.advance(idle - 1).await;
        server.advance(1).await;
        assert_eq!(juliet.element().await.attr("id").as_deref(), Some("alive"));
        // Any stanza shows that the client is alive.
        server.advance(ping - 1).await;
        juliet.send("<iq type='result' id='alive'/>").await;
        run_until_idle().await;
    }
    server.advance(idle).await;
    juliet.element().await;
    // White space shows that the connection is alive, not that the stream is.
    juliet.send(" ").await;
    server.advance(ping - 1).await;
    assert_eq!(server.node.routing_table.sessions(), 1);
    server.advance(1).await;
    juliet.expect_stream_error(StreamCondition::ConnectionTimeout).await;
}

#[tokio::test]
async fn stanzas_postpone_the_keep_alive_ping() {
    let server = start(|setup| setup.features = vec![&PROBE]).await;
    let idle = server.node.limits().idle_ping_seconds;
    let mut juliet = server.login("juliet", "balcony").await;
    for _ in 0..5 {
        server.advance(idle - 1).await;
        assert_eq!(juliet.sync().await, [], "not asked");
    }
}

#[tokio::test]
async fn without_a_keep_alive_ping_idle_clients_stay_connected() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    server.advance(server.node.limits().idle_ping_seconds * 3).await;
    assert_eq!(juliet.sync().await, []);
}

#[tokio::test]
async fn section_4_4_responses_are_sent_before_the_stream_closes() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let mut all = String::new();
    for n in 0..300 {
        all.push_str(&format!("<iq type='get' id='{n}'><x xmlns='u:x'/></iq>"));
    }
    juliet.send(all + "</stream:stream>").await;
    for n in 0..300 {
        assert_eq!(juliet.element().await.attr("id"), Some(n.to_string()));
    }
    juliet.expect_end().await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9
//= type=test
//# The error child SHALL be sent by a compliant entity if it perceives that a stream-level error has occurred.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.1.1
//= type=test
//# Therefore, if an error occurs at the level of the stream, the entity that detects the error MUST send an
//# <error/> element with an appropriate child element specifying the error condition and then immediately close the
//# stream as described under Section 4.4.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stream-error-generate. Description: Generate a stream error (followed by a closing stream tag and
//# termination of the TCP connection) upon detecting a stream-related error condition. Section: Section 4.9. Roles:
//# Client MUST, Server MUST.
#[tokio::test]
async fn section_4_9_1_1_responses_are_sent_before_an_error() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send("<iq type='get' id='1'><x xmlns='u:x'/></iq><!-- found by the scanner -->").await;
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("1"));
    juliet.expect_stream_error(StreamCondition::RestrictedXml).await;
    // The error is detected by the reader.
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send("<iq type='get' id='1'><x xmlns='u:x'/></iq><iq></presence>").await;
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("1"));
    juliet.expect_stream_error(StreamCondition::NotWellFormed).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.4
//= type=test
//# If the parties are using either two streams over a single TCP connection or two streams over two TCP
//# connections, the entity that sends the closing stream tag MUST behave as follows:
#[tokio::test]
async fn section_4_4_queued_messages_are_delivered_before_the_stream_ends() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let mut romeo = server.login("romeo", "orchard").await;
    romeo.send("<message to='juliet@example.com/balcony' id='1'/>").await;
    romeo.sync().await;
    juliet.send("</stream:stream>").await;
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("1"));
    juliet.expect_end().await;
}

#[tokio::test]
async fn section_4_4_what_comes_after_the_closing_tag_is_ignored() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let mut romeo = server.login("romeo", "orchard").await;
    juliet.send("</stream:stream><message to='romeo@example.com/orchard'/>").await;
    assert_eq!(juliet.receive().await, ReceivedEvent::Close);
    assert_eq!(romeo.sync().await, []);
}

#[tokio::test]
async fn section_4_6_1_a_connection_that_is_cut_ends_the_session() {
    let server = start(|_| {}).await;
    for over_tcp in [false, true] {
        let mut juliet = if over_tcp { server.connect_tcp().await } else { server.connect() };
        juliet.login("juliet", "balcony").await;
        let mut watch = server.login("romeo", "orchard").await;
        drop(juliet);
        // A request to the lost resource is answered only once the session has ended.
        loop {
            watch.send("<iq type='get' id='1' to='juliet@example.com/balcony'><x xmlns='u:x'/></iq>").await;
            watch.element().await;
            if server.node.routing_table.sessions() == 1 {
                break;
            }
            run_until_idle().await;
        }
        watch.send("</stream:stream>").await;
        watch.expect_end().await;
        drop(watch);
        run_until_idle().await;
        nothing_left(&server);
    }
}

#[tokio::test]
async fn a_peer_that_does_not_close_its_direction_is_disconnected_after_a_timeout() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    run_until_idle().await;
    assert_eq!(
        (server.node.outboxes.len(), server.node.routing_table.sessions()),
        (1, 0),
        "the session ends at once"
    );
    server.advance(3).await;
    nothing_left(&server);
    assert!(juliet.read_to_end().await.ends_with("</stream:stream>"));
}

/// Fills romeo's queue while he does not read. Returns the number of messages sent.
async fn flood(juliet: &mut StreamClient, count: u32, body: usize) {
    let body = "x".repeat(body);
    for n in 0..count {
        juliet
            .send(format!("<message to='romeo@example.com/orchard' id='{n}'><body>{body}</body></message>"))
            .await;
    }
    juliet.sync().await;
}

#[tokio::test]
async fn a_client_that_pauses_reading_loses_nothing() {
    let server = start(|setup| setup.limits.queue_sender_percent = 100).await;
    let mut romeo = server.connect_with(1024);
    romeo.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    // 900 kB in total: less than the queue may hold, more than a transport may.
    flood(&mut juliet, 800, 1000).await;
    server.advance(server.node.limits().write_stall_timeout_seconds - 1).await;
    for n in 0..800 {
        assert_eq!(romeo.element().await.attr("id"), Some(n.to_string()));
    }
    romeo.sync().await;
}

#[tokio::test]
async fn a_receiver_that_never_reads_is_closed_and_one_that_reads_slowly_is_not() {
    let server = start(|_| {}).await;
    let timeout_seconds = server.node.limits().write_stall_timeout_seconds;
    let mut romeo = server.connect_with(1024);
    romeo.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    flood(&mut juliet, 200, 200).await;
    let mut read = 0;
    while read < 60 {
        server.advance(timeout_seconds / 2).await;
        assert_eq!(server.node.routing_table.sessions(), 2, "after {read}");
        for _ in 0..5 {
            assert_eq!(romeo.element().await.attr("id"), Some(read.to_string()));
            read += 1;
        }
        run_until_idle().await;
    }
    server.advance(timeout_seconds).await;
    assert_eq!(server.node.routing_table.sessions(), 1, "not read for {timeout_seconds} s");
    juliet.sync().await;
}

/// Larger than a client's stanza may be: stanzas that the server makes itself, such as a large roster.
#[tokio::test]
async fn a_response_larger_than_a_client_stanza_fits_the_queue() {
    let server = start(|_| {}).await;
    let mut juliet = server.connect_with(1024);
    juliet.login("juliet", "balcony").await;
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    let session = account.session("balcony").unwrap();
    let text = format!("<iq type='result' id='1'><x xmlns='u:x'>{}</x></iq>", "x".repeat(900_000));
    for _ in 0..2 {
        let frame = SharedStanza::parse(text.as_bytes()).unwrap();
        assert!(server.node.enqueue(&session, frame, ToRewrite::Full));
    }
    for _ in 0..2 {
        assert!(juliet.element().await.0.len() > 900_000);
    }
    juliet.sync().await;
}

#[tokio::test]
async fn a_close_request_reaches_a_connection_that_cannot_write() {
    let server = start(|_| {}).await;
    let mut romeo = server.connect_with(1024);
    romeo.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    flood(&mut juliet, 200, 1000).await;
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    run_until_idle().await;
    assert_eq!(server.node.routing_table.sessions(), 0);
    // A client that resumes reading still receives the output buffer, then the reason; the sender may receive errors
    // for the rest.
    for client in [&mut juliet, &mut romeo] {
        let mut count = 0;
        loop {
            match client.receive().await {
                ReceivedEvent::Element(seen) if seen.name() == "message" => count += 1,
                ReceivedEvent::Element(error) => {
                    assert_eq!(error.condition().as_deref(), Some("system-shutdown"));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(count < 200, "{count}");
    }
    drop((romeo, juliet));
    run_until_idle().await;
    nothing_left(&server);
}

#[tokio::test]
async fn a_connection_that_cannot_write_is_closed_after_a_timeout() {
    let server = start(|_| {}).await;
    let mut romeo = server.connect_with(1024);
    romeo.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    flood(&mut juliet, 200, 1000).await;
    drop(juliet);
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    run_until_idle().await;
    server.advance(3).await;
    nothing_left(&server);
    drop(romeo);
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-10.1
//= type=test
//# it MUST suspend processing of subsequent data until it has processed the request.
#[tokio::test]
async fn input_is_not_read_while_a_stanza_waits() {
    let server = start(|setup| setup.features = vec![&SLOW]).await;
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send("<message to='example.com'><body>slow</body></message>").await;
    juliet.send("<iq type='get' id='after'><x xmlns='u:x'/></iq>").await;
    run_until_idle().await;
    assert_eq!(done(), 0);
    GATE.with(|gate| gate.add_permits(1));
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("after"));
    assert_eq!(done(), 1);
}

#[tokio::test]
async fn a_waiting_stanza_is_completed_although_its_stream_ends() {
    let server = start(|setup| setup.features = vec![&SLOW]).await;
    let slow = "<message to='example.com'><body>slow</body></message>";
    // The client closes its stream after the stanza.
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(format!("{slow}</stream:stream>")).await;
    run_until_idle().await;
    assert_eq!((server.node.routing_table.sessions(), done()), (1, 0));
    GATE.with(|gate| gate.add_permits(1));
    juliet.expect_end().await;
    assert_eq!(done(), 1);
    drop(juliet);
    // The client's connection breaks.
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(slow).await;
    run_until_idle().await;
    drop(juliet);
    GATE.with(|gate| gate.add_permits(1));
    run_until_idle().await;
    assert_eq!(done(), 2);
    // The server ends the stream.
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(slow).await;
    run_until_idle().await;
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    juliet.expect_stream_error(StreamCondition::SystemShutdown).await;
    assert_eq!(done(), 2);
    GATE.with(|gate| gate.add_permits(1));
    run_until_idle().await;
    assert_eq!(done(), 3);
    drop(juliet);
    run_until_idle().await;
    nothing_left(&server);
}

#[tokio::test]
async fn a_panic_after_a_wait_refuses_the_stanza_and_ends_no_stream() {
    let server = start(|setup| setup.features = vec![&SLOW]).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let mut romeo = server.login("romeo", "orchard").await;
    juliet.send("<message to='romeo@example.com/orchard'><body>panic later</body></message>").await;
    assert!(juliet.element().await.0.contains("<internal-server-error"));
    juliet.sync().await;
    romeo.sync().await;
}

/// Counts polls and wake-ups.
struct Counting {
    connection: C2sConnection,
    polls: Arc<AtomicU32>,
}

impl Future for Counting {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.connection).poll(cx)
    }
}

#[tokio::test]
async fn an_idle_connection_is_not_polled() {
    let server = start(|setup| setup.features = vec![&PROBE]).await;
    let (connection, there) = server.connection(testkit::server::PIPE_BYTES);
    let polls = Arc::new(AtomicU32::new(0));
    tokio::runtime::Handle::current().spawn(Counting { connection, polls: polls.clone() });
    let mut juliet = server.client_over(there);
    juliet.login("juliet", "balcony").await;
    juliet.sync().await;
    run_until_idle().await;
    let before = polls.load(Ordering::SeqCst);
    server.advance(server.node.limits().idle_ping_seconds - 1).await;
    assert_eq!(polls.load(Ordering::SeqCst), before, "599 sweeps, and nobody woke up");
    juliet.send("<message to='juliet@example.com/balcony'/>").await;
    juliet.element().await;
    run_until_idle().await;
    let after = polls.load(Ordering::SeqCst);
    assert!(after - before <= 3, "{} polls for one stanza in and one out", after - before);
    // A receiver that does not read is polled at most once a second, and only when a deadline has elapsed.
    let mut romeo = server.login("romeo", "orchard").await;
    for _ in 0..300 {
        romeo
            .send(format!("<message to='juliet@example.com/balcony'>{}</message>", "<x/>".repeat(250)))
            .await;
    }
    romeo.sync().await;
    run_until_idle().await;
    let before = polls.load(Ordering::SeqCst);
    server.advance(server.node.limits().write_stall_timeout_seconds - 1).await;
    assert_eq!(polls.load(Ordering::SeqCst), before);
}

struct Woken(AtomicU32);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One poll handles a bounded number of stanzas, then yields to other tasks and schedules another poll.
#[tokio::test]
async fn a_flood_yields_to_other_tasks() {
    let server = start(|_| {}).await;
    let (mut connection, there) = server.connection(1 << 20);
    let mut juliet = server.client_over(there);
    let woken = Arc::new(Woken(AtomicU32::new(0)));
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    // Driven manually up to a bound resource.
    {
        let mut login = Box::pin(juliet.login("juliet", "balcony"));
        let mut task = Context::from_waker(Waker::noop());
        while login.as_mut().poll(&mut task).is_pending() {
            assert!(Pin::new(&mut connection).poll(&mut cx).is_pending());
        }
    }
    let stanza = "<iq type='get' id='1'><x xmlns='u:x'/></iq>";
    juliet.send(stanza.repeat(1000)).await;
    let mut answered = Vec::new();
    let before = woken.0.load(Ordering::SeqCst);
    for _ in 0..1000 {
        assert!(Pin::new(&mut connection).poll(&mut cx).is_pending());
        let mut count = 0;
        while let Some(ReceivedEvent::Element(_)) = juliet.try_receive().await {
            count += 1;
        }
        answered.push(count);
        if answered.iter().sum::<u32>() == 1000 {
            break;
        }
    }
    assert_eq!(answered.iter().sum::<u32>(), 1000);
    assert!(answered.iter().all(|n| *n <= 128), "{answered:?}");
    assert!(woken.0.load(Ordering::SeqCst) - before >= 7, "it asked to be polled again each time");
}

#[tokio::test]
async fn a_dropped_task_leaves_no_session() {
    let server = start(|_| {}).await;
    let (connection, there) = server.connection(testkit::server::PIPE_BYTES);
    let task = tokio::runtime::Handle::current().spawn(connection);
    let mut juliet = server.client_over(there);
    juliet.login("juliet", "balcony").await;
    task.abort();
    run_until_idle().await;
    nothing_left(&server);
    let (connection, _there) = server.connection(testkit::server::PIPE_BYTES);
    drop(connection);
    nothing_left(&server);
}

#[tokio::test]
async fn an_account_that_is_removed_ends_its_streams() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let host = server.node.host("example.com").unwrap();
    server.node.account_removed(&host, server.address("juliet").as_ref(), Vec::new());
    juliet.expect_stream_error(StreamCondition::NotAuthorized).await;
}

#[tokio::test]
async fn many_sessions_start_and_end_without_a_leak() {
    let limits = NodeLimits { sessions_per_account: 500, ..NodeLimits::default() };
    let server = start(|setup| setup.limits = limits).await;
    let mut clients = Vec::new();
    for n in 0..200 {
        clients.push(server.login("juliet", &format!("r{n}")).await);
    }
    for (n, client) in clients.iter_mut().enumerate() {
        match n % 3 {
            0 => client.send("</stream:stream>").await,
            1 => client.half_close().await,
            _ => client.send("<").await,
        }
    }
    drop(clients);
    run_until_idle().await;
    run_until_idle().await;
    nothing_left(&server);
}
