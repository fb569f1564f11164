//! Memory tests: bytes requested from the allocator for an idle session with its held request.

use counting_allocator::{allocations, live_bytes, requested_bytes};

use crate::harness::*;

/// Budget of docs/memory.md; the rest of the 8 kB is for the HTTP connection, the task and the XMPP session.
const IDLE: isize = 1536;

#[test]
fn an_idle_session_with_its_request_is_small() {
    let harness = BoshHarness::new();
    let mut warm: Vec<OpenSession<'_>> = (0..64).map(|_| harness.open()).collect();
    const SESSIONS: usize = 1000;
    let before = live_bytes();
    let mut idle: Vec<OpenSession<'_>> = Vec::with_capacity(SESSIONS);
    let list = (SESSIONS * size_of::<OpenSession<'_>>()) as isize;
    for _ in 0..SESSIONS {
        let mut open = harness.open();
        open.created = String::new();
        idle.push(open);
    }
    // Long enough to evict the login's responses from the cache.
    for _ in 0..3 {
        harness.advance(60);
        for open in idle.iter_mut().chain(&mut warm) {
            open.held().text();
            open.held = Some(open.post(""));
        }
    }
    let each = (live_bytes() - before - list) / SESSIONS as isize;
    // Allocated by the test: sid (32), a waker (24).
    let each = each - 56;
    println!("an idle BOSH session: {each} bytes");
    assert!(each <= IDLE, "{each} bytes");
}

/// A wrapper's prefix with a namespace of some kilobytes, used by as many elements as fit: rewritten, 266 kB are 105
/// MB.
#[test]
fn a_long_wrapper_prefix_stays_within_the_session_limit() {
    let harness = BoshHarness::new();
    let most = 2 * harness.sessions.settings().body_bytes;
    for namespace in [16, 2_400, 60_000] {
        let open = format!(
            "<body rid='1' to='example.com' ver='1.6' xmlns='{NS}' xmlns:p='{}'>",
            "n".repeat(namespace)
        );
        let room = harness.sessions.settings().body_bytes - open.len() - "</body>".len();
        let body = format!("{open}{}</body>", "<p:a/>".repeat(room / "<p:a/>".len()));
        let before = requested_bytes();
        let mut post = harness.post_from(harness.origin(), body.as_bytes());
        let text = post.text();
        let allocated = requested_bytes() - before;
        assert!(text.contains("policy-violation"), "{namespace}: {text}");
        assert!(allocated < 4 * most, "{namespace}: {allocated} bytes for a body of {}", body.len());
        assert_eq!(harness.started(), 0, "no stream began");
    }
    // Elements that fit are accepted: their own bytes are no reason to refuse them.
    let body = format!(
        "<body rid='1' to='example.com' ver='1.6' xmlns='{NS}' xmlns:p='urn:p'>{}</body>",
        "<p:a/>".repeat(100)
    );
    assert!(harness.post_from(harness.origin(), body.as_bytes()).waits());
}

#[test]
fn a_message_costs_few_allocations() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let bodies: Vec<String> =
        (1..=64).map(|n| open.body(open.rid + n, "", "<message to='a@b'><body>x</body></message>")).collect();
    let mut held = open.held.take().unwrap();
    let mut rest = bodies.iter();
    for body in rest.by_ref().take(32) {
        held = round(&harness, &mut open, held, body);
    }
    let before = allocations();
    let mut rounds = 0;
    for body in rest {
        held = round(&harness, &mut open, held, body);
        rounds += 1;
    }
    let each = (allocations() - before) / rounds;
    println!("a request with a message, and an answer with one: {each} allocations");
    // Allocated by the test: a flag, the text of the event and its list.
    assert!(each <= 3 + 7, "{each} allocations");
}

/// One request with a message, answered with another message.
fn round(
    harness: &BoshHarness,
    open: &mut OpenSession<'_>,
    mut held: PostedRequest,
    body: &str,
) -> PostedRequest {
    let post = harness.post_from(harness.origin(), body.as_bytes());
    open.server.read();
    open.server.send("<message to='c@d'><body>y</body></message>");
    assert!(held.poll());
    post
}

/// A request with a message and a response with another one, without HTTP and XMPP sessions. Run it optimised: `cargo
/// test --release -p throng-net --test bosh -- --ignored --nocapture --test-threads 1 speed`.
#[test]
#[ignore = "a measurement"]
fn speed_of_a_request() {
    use base::clock::{Clock, SystemClock};
    const ROUNDS: u64 = 200_000;
    let harness = BoshHarness::with(|s| (s.requests_per_second, s.polling_seconds) = (0, 0));
    let clock = SystemClock::new();
    let mut open = harness.open();
    let text = "<message to='romeo@example.com/orchard' id='1234567' type='chat'><body>Wherefore art thou?</body></message>";
    let mut held = open.held.take().unwrap();
    let bodies: Vec<String> = (1..=ROUNDS).map(|n| open.body(open.rid + n, "", text)).collect();
    let begin = clock.now();
    for body in &bodies {
        let post = harness.post_from(harness.origin(), body.as_bytes());
        open.server.read();
        open.server.send(text);
        assert!(held.poll());
        held = post;
    }
    let micros = clock.now().since(begin) as f64 * 1000.0 / ROUNDS as f64;
    println!("a request with a message, answered with a message: {micros:.2} microseconds");
    open.rid += ROUNDS;
    let bodies: Vec<String> = (1..=ROUNDS).map(|n| open.body(open.rid + n, "", "")).collect();
    let begin = clock.now();
    for body in &bodies {
        let post = harness.post_from(harness.origin(), body.as_bytes());
        assert!(held.poll());
        held = post;
    }
    let micros = clock.now().since(begin) as f64 * 1000.0 / ROUNDS as f64;
    println!("an empty request: {micros:.2} microseconds");
}
