//! Tests of hostile input: RFC 6120, sections 4.9.3, 11 and 13.12. Every case asserts the condition that the RFC names,
//! a bound on memory, and that two other clients keep chatting undisturbed.
//!
//! Memory is counted by the allocator of this program, per thread. Each test has its thread, and its pipes and clients
//! are counted with the server. The bounds are stated where they are asserted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

use counting_allocator::{live_bytes, peak_bytes, reset_peak};
use net::Pipe;
use stanza::StreamCondition as C;
use testkit::server::{
    PASSWORD, ReceivedEvent, STREAM_HEADER, StreamClient, TestServer, TestServerConfig, TlsClientSettings,
    run_until, run_until_idle,
};
use throng_core::NodeLimits;
use throng_streams::NegotiationPolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Peak of live bytes since `reset_peak`, which returned `then`.
fn peak_since(then: isize) -> usize {
    (peak_bytes() - then).max(0) as usize
}

/// Two clients that chat while others misbehave.
struct Chat {
    server: TestServer,
    romeo: StreamClient,
    nurse: StreamClient,
    sent: u32,
}

impl Chat {
    async fn start(change: impl FnOnce(&mut TestServerConfig)) -> Chat {
        let mut setup = TestServerConfig::default();
        change(&mut setup);
        let server = setup.start();
        for user in ["juliet", "romeo", "nurse"] {
            server.create_user(user).await;
        }
        let (romeo, nurse) = (server.login("romeo", "orchard").await, server.login("nurse", "kitchen").await);
        let mut chat = Chat { server, romeo, nurse, sent: 0 };
        chat.assert_still_works().await;
        chat
    }

    /// Exchanges a message in each direction.
    async fn assert_still_works(&mut self) {
        self.sent += 1;
        let id = self.sent.to_string();
        let (romeo, nurse) = (&mut self.romeo, &mut self.nurse);
        romeo
            .send(format!("<message to='nurse@example.com/kitchen' id='{id}'><body>a</body></message>"))
            .await;
        assert_eq!(nurse.element().await.attr("id").as_ref(), Some(&id));
        nurse
            .send(format!("<message to='romeo@example.com/orchard' id='{id}'><body>b</body></message>"))
            .await;
        assert_eq!(romeo.element().await.attr("id").as_ref(), Some(&id));
    }

    /// A stream before the choice of a mechanism. Small pipes, so that they count little.
    async fn unauthenticated_client(&self) -> StreamClient {
        let mut client = self.server.connect_with(4096);
        client.open().await;
        client
    }

    /// A stream with a bound resource.
    async fn juliet(&self) -> StreamClient {
        let mut client = self.server.connect_with(4096);
        client.login("juliet", "balcony").await;
        client
    }

    /// Asserts that the input ends the stream with the condition, and costs at most `bytes` of memory.
    async fn refuses(&mut self, mut client: StreamClient, input: &[u8], condition: C, bytes: usize) {
        let shown = String::from_utf8_lossy(&input[..input.len().min(60)]).into_owned();
        let then = reset_peak();
        // The server may stop reading a long input.
        let _ = client.try_send(input).await;
        let error = client.expect_stream_error(condition).await;
        let used = peak_since(then);
        assert!(used <= bytes, "{used} bytes of memory for {shown}");
        assert!(error.0.len() < 1024, "a short answer");
        drop(client);
        run_until_idle().await;
        self.assert_still_works().await;
    }

    /// As `refuses`, before login and with a bound resource. The bound for unauthenticated clients is lower.
    async fn refuses_everywhere(&mut self, input: &[u8], condition: C) {
        self.refuses(self.unauthenticated_client().await, input, condition, 160 * 1024).await;
        self.refuses(self.juliet().await, input, condition, 160 * 1024).await;
    }
}

fn message(inner: &str) -> Vec<u8> {
    format!("<message to='romeo@example.com'><body>{inner}</body></message>").into_bytes()
}

#[tokio::test]
async fn section_11_1_restricted_xml() {
    let mut chat = Chat::start(|_| {}).await;
    for input in [
        message("<!-- comment -->"),
        message("<?php phpinfo() ?>"),
        message("&nbsp;"),
        message("&custom;"),
        b"<message to='&custom;'/>".to_vec(),
        message("<!DOCTYPE x>"),
        message("<!ENTITY x 'y'>"),
        b"<!-- comment -->".to_vec(),
        b"<?xml version='1.0'?>".to_vec(),
        b"<?xml-stylesheet href='x'?>".to_vec(),
        b"<!DOCTYPE lolz [<!ENTITY lol 'lol'><!ENTITY lol2 '&lol;&lol;'>]><lolz>&lol2;</lolz>".to_vec(),
        b"<!DOCTYPE x SYSTEM 'file:///etc/passwd'>".to_vec(),
        b"<!ELEMENT x ANY>".to_vec(),
    ] {
        chat.refuses_everywhere(&input, C::RestrictedXml).await;
    }
    // Also before the stream header: an XML entity bomb comes first.
    for input in [
        "<!DOCTYPE lolz [<!ENTITY lol 'lol'>]>",
        "<?xml version='1.0'?><!DOCTYPE lolz [<!ENTITY lol 'lol'>]>",
        "<?xml version='1.0'?><!-- x --><stream:stream>",
        "<?php x ?>",
        "<stream:stream to='&x;' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
    ] {
        let client = chat.server.connect_with(4096);
        chat.refuses(client, input.as_bytes(), C::RestrictedXml, 160 * 1024).await;
    }
}

#[tokio::test]
async fn section_11_3_not_well_formed() {
    let mut chat = Chat::start(|_| {}).await;
    for input in [
        "<message></presence>",
        "<message><a><b></a></b></message>",
        "<message a=1/>",
        "<message a='1' a='2'/>",
        "<message a='<'/>",
        "<message a='1'b='2'/>",
        "<message a/>",
        "<message><body>a & b</body></message>",
        "<message><body>&amp</body></message>",
        "<message><body>]]></body></message>",
        "<1/>",
        "< message/>",
        "<message/ ></message>",
        "text between stanzas",
        "<![CDATA[text between stanzas]]>",
        "&amp;",
        "</message>",
        "</stream:flow>",
        // Namespaces in XML
        "<message><x:y/></message>",
        "<message x:y='1'/>",
        "<message xmlns:x=''/>",
        "<message xmlns:xml='urn:x'/>",
        "<message xmlns:xmlns='urn:x'/>",
        "<message xmlns:a='u' xmlns:b='u' a:x='1' b:x='2'/>",
        "<message><:a/></message>",
        "<a:b:c xmlns:a='u'/>",
    ] {
        chat.refuses_everywhere(input.as_bytes(), C::NotWellFormed).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-11.6
//= type=test
//# Implementations MUST support the UTF-8 transformation of Universal Character Set [UCS2] characters, as needed
//# for conformance with [CHARSETS] and as defined in [UTF-8].
//= https://www.rfc-editor.org/rfc/rfc6120#section-11.6
//= type=test
//# Implementations MUST NOT attempt to use any other encoding.
//= https://www.rfc-editor.org/rfc/rfc6120#section-11.6
//= type=test
//# it MUST close the stream with a stream error, which SHOULD be <unsupported-encoding/>
//= https://www.rfc-editor.org/rfc/rfc6120#section-12
//= type=test
//# As specified under Section 11.6, XML streams MUST be encoded in UTF-8.
#[tokio::test]
async fn section_11_6_not_utf_8_and_characters_that_xml_does_not_have() {
    let mut chat = Chat::start(|_| {}).await;
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    // Stray, overlong, surrogate, too large, truncated.
    for bad in [
        &b"\xff"[..],
        b"\x80",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc3",
        b"\xe2\x82",
    ] {
        inputs.push([b"<message><body>", bad, b"</body></message>"].concat());
        inputs.push([b"<message a='", bad, b"'/>"].concat());
        inputs.push([b"<m", bad, b"/>"].concat());
    }
    for bad in [
        "\0",
        "\u{1}",
        "\u{8}",
        "\u{b}",
        "\u{1f}",
        "\u{fffe}",
        "\u{ffff}",
        "&#0;",
        "&#1;",
        "&#x1F;",
        "&#xD800;",
        "&#xFFFE;",
        "&#x110000;",
        "&#xFFFFFFFFFF;",
        "&#;",
        "&#x;",
    ] {
        inputs.push(message(bad));
        inputs.push(format!("<message a='{bad}'/>").into_bytes());
    }
    inputs.push(b"\0".to_vec());
    inputs.push(b"\xff".to_vec());
    for input in inputs {
        chat.refuses_everywhere(&input, C::NotWellFormed).await;
    }
    // Another encoding from the first byte.
    for input in [&b"\xff\xfe<\0?\0x\0m\0l\0"[..], b"\xfe\xff\0<\0?\0x\0m\0l", b"<\0?\0x\0m\0l\0"] {
        let client = chat.server.connect_with(4096);
        chat.refuses(client, input, C::UnsupportedEncoding, 160 * 1024).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# A server implementation SHOULD enable a server administrator to limit the size of stanzas it will accept from a
//# connected client or peer server
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# If a connected resource or peer server sends a stanza that violates the upper limit, the receiving server MUST
//# either return a <policy-violation/> stanza error (Section 8.3.3.12)
/// Section 13.12: input above a limit. `policy-violation`, at the latest when twice the limit was received.
#[tokio::test]
async fn section_4_9_3_14_limits() {
    let mut chat = Chat::start(|_| {}).await;
    let NodeLimits { stanza_bytes, negotiation_bytes, .. } = **chat.server.node.limits();
    let fill = |count: u32| "x".repeat(count as usize);
    let nested = |count: usize| format!("{}{}", "<a>".repeat(count), "</a>".repeat(count)).into_bytes();
    let attributes = |count: usize| {
        let all: String = (0..count).map(|n| format!(" a{n}=''")).collect();
        format!("<message{all}/>").into_bytes()
    };
    let prefixes = |count: usize| {
        let all: String = (0..count).map(|n| format!(" xmlns:p{n}='urn:x'")).collect();
        format!("<message{all}/>").into_bytes()
    };
    // Memory that an unauthenticated client can use: one element, the buffers of a thread, the client's own copy.
    for input in [
        message(&fill(negotiation_bytes)),
        format!("<message a='{}'/>", fill(negotiation_bytes)).into_bytes(),
        format!("<message><{}/></message>", fill(300)).into_bytes(),
        format!("<{}", fill(10 * negotiation_bytes)).into_bytes(),
        nested(9),
        nested(2000),
        attributes(33),
        attributes(1000),
        prefixes(17),
        message(&fill(4_000_000)),
    ] {
        chat.refuses(chat.unauthenticated_client().await, &input, C::PolicyViolation, 192 * 1024).await;
    }
    // The same for a header.
    let client = chat.server.connect_with(4096);
    let header = format!("<stream:stream to='{}' xmlns='jabber:client'>", fill(2 * negotiation_bytes));
    chat.refuses(client, header.as_bytes(), C::PolicyViolation, 192 * 1024).await;
    // Authenticated clients may send more. The block of an unfinished stanza is at most 512 kB, and there may be two
    // while it grows.
    for input in [
        message(&fill(stanza_bytes)),
        nested(65),
        nested(20_000),
        attributes(65),
        attributes(20_000),
        prefixes(33),
        prefixes(10_000),
        format!("<message><{}/></message>", fill(1100)).into_bytes(),
        message(&fill(8_000_000)),
        format!("<message to='{}'/>", fill(70_000)).into_bytes(),
    ] {
        chat.refuses(chat.juliet().await, &input, C::PolicyViolation, 1_300 * 1024).await;
    }
    // Input at the limits is accepted.
    let mut juliet = chat.juliet().await;
    let room = stanza_bytes - "<message to='juliet@example.com/balcony'><body></body></message>".len() as u32;
    let text = fill(room);
    juliet.send(format!("<message to='juliet@example.com/balcony'><body>{text}</body></message>")).await;
    assert_eq!(juliet.element().await.all("body"), [text]);
    juliet
        .send([&b"<message to='juliet@example.com/balcony'>"[..], &nested(63), b"</message>"].concat())
        .await;
    juliet.element().await;
    chat.assert_still_works().await;
}

#[tokio::test]
async fn section_4_9_3_12_stanzas_before_authentication() {
    let mut chat = Chat::start(|_| {}).await;
    for input in [
        "<message to='romeo@example.com/orchard'><body>x</body></message>",
        "<presence to='romeo@example.com/orchard'/>",
        "<iq type='get' id='1' to='romeo@example.com/orchard'><x xmlns='u:x'/></iq>",
        "<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
        "<message from='nurse@example.com/kitchen' to='romeo@example.com/orchard'><body>forged</body></message>",
    ] {
        chat.refuses(chat.unauthenticated_client().await, input.as_bytes(), C::NotAuthorized, 160 * 1024)
            .await;
        // The same in one packet with the header.
        let mut client = chat.server.connect_with(4096);
        client.send(format!("{STREAM_HEADER}{input}")).await;
        client.header().await;
        assert_eq!(client.element().await.name(), "features");
        client.expect_stream_error(C::NotAuthorized).await;
    }
    // And between authentication and binding.
    let mut client = chat.unauthenticated_client().await;
    client.authenticate(sasl::Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client.open().await;
    let input = b"<message to='romeo@example.com/orchard'><body>x</body></message>";
    chat.refuses(client, input, C::NotAuthorized, 160 * 1024).await;
}

#[tokio::test]
async fn section_4_9_3_9_forged_from() {
    let mut chat = Chat::start(|_| {}).await;
    for from in ["romeo@example.com/orchard", "example.com", "nurse@example.com", "@@"] {
        let input = format!("<message from='{from}' to='romeo@example.com/orchard'><body>x</body></message>");
        chat.refuses(chat.juliet().await, input.as_bytes(), C::InvalidFrom, 160 * 1024).await;
    }
}

/// A byte per second does not extend the negotiation deadline, and costs the size of a stanza afterwards.
#[tokio::test]
async fn one_byte_per_second_does_not_extend_negotiation() {
    let mut chat = Chat::start(|_| {}).await;
    let then = reset_peak();
    let mut slow = chat.server.connect_with(4096);
    for byte in STREAM_HEADER.bytes() {
        if slow.try_send([byte]).await.is_err() {
            break;
        }
        chat.server.advance(1).await;
    }
    assert!(STREAM_HEADER.len() as u32 > chat.server.node.limits().negotiation_timeout_seconds);
    slow.expect_stream_error(C::ConnectionTimeout).await;
    let mut juliet = chat.juliet().await;
    for byte in message(&"x".repeat(900)) {
        juliet.send([byte]).await;
        chat.server.advance(1).await;
    }
    juliet.sync().await;
    assert!(peak_since(then) <= 256 * 1024, "{}", peak_since(then));
    chat.assert_still_works().await;
}

/// A client that does not read holds at most the limits of its queue (1 MB messages, 256 kB presence, 2 MB the rest),
/// and the data in transit (64 kB, one stanza).
#[tokio::test]
async fn a_receiver_that_never_reads_holds_at_most_its_queue_limits() {
    let mut chat = Chat::start(|_| {}).await;
    let limits = NodeLimits::clone(&chat.server.node.limits());
    let mut stalled = chat.server.connect_with(4096);
    stalled.login("juliet", "balcony").await;
    let then = reset_peak();
    let body = "x".repeat(1000);
    let mut bounced = 0;
    for _ in 0..100 {
        let mut all = String::new();
        for _ in 0..50 {
            all.push_str(&format!("<message to='juliet@example.com/balcony'><body>{body}</body></message>"));
            all.push_str(&format!(
                "<presence to='juliet@example.com/balcony'><status>{body}</status></presence>"
            ));
        }
        chat.nurse.send(all).await;
        bounced += chat.nurse.sync().await.len();
    }
    let used = peak_since(then);
    // One sender gets its share of the queue.
    let bound = ((limits.queue_message_bytes + limits.queue_presence_bytes) / 2) as usize;
    println!("10 MB for a stalled client: {used} bytes, {bounced} answers");
    // The queue counts 128 bytes of overhead per stanza; its vector may be half empty, and the sender holds its errors.
    assert!(used > bound / 2 && used < bound * 2, "{used}");
    assert!(bounced > 0, "the sender gets an error");
    chat.assert_still_works().await;
    chat.server.advance(limits.write_stall_timeout_seconds + 1).await;
    assert_eq!(chat.server.node.routing_table.sessions(), 2, "the stalled client is gone");
    // Undelivered messages return to the sender, for there is no offline storage in this node.
    assert!(chat.nurse.sync().await.len() > 250);
    // The final output waits for three seconds, then the memory is free.
    chat.server.advance(3).await;
    drop(stalled);
    chat.assert_still_works().await;
    let left = live_bytes() - then;
    // The write buffer of the thread, which retains 256 kB.
    assert!(left < 320 * 1024, "{left} bytes are left");
}

/// A burst for one session leaves no memory allocated in the sessions that are served next.
#[tokio::test]
async fn a_burst_leaves_no_memory_allocated() {
    const SESSIONS: usize = 30;
    let mut chat = Chat::start(|_| {}).await;
    let mut idle = Vec::new();
    for n in 0..SESSIONS {
        idle.push(chat.server.login("juliet", &format!("r{n}")).await);
    }
    let burst = "<message to='nurse@example.com/kitchen'/>".repeat(500);
    let mut then = 0;
    for round in 0..3 {
        for (n, client) in idle.iter_mut().enumerate() {
            chat.romeo.send(&burst).await;
            for _ in 0..500 {
                chat.nurse.element().await;
            }
            chat.romeo.send(format!("<message to='juliet@example.com/r{n}'/>")).await;
            client.element().await;
            client.send(" ").await;
        }
        run_until_idle().await;
        if round == 0 {
            then = live_bytes();
        }
    }
    let grown = (live_bytes() - then) / SESSIONS as isize;
    assert!(grown < 64, "{grown} bytes a session");
    let all: usize = idle.len();
    drop(idle);
    run_until(|| chat.server.node.routing_table.sessions() == 2).await;
    let each = (then - live_bytes()) / all as isize;
    // Includes the client's half: pipe, buffers, addresses.
    println!("{each} bytes were given back by each session and its client");
    chat.assert_still_works().await;
}

/// Input of a client that does not read is not read either: its own requests cannot fill its queue.
#[tokio::test]
async fn a_client_that_sends_requests_and_never_reads_is_not_read_from() {
    let mut chat = Chat::start(|_| {}).await;
    let mut stalled = chat.server.connect_with(4096);
    stalled.login("juliet", "balcony").await;
    let then = reset_peak();
    let request = format!("<iq type='get' id='1'><x xmlns='u:x'>{}</x></iq>", "x".repeat(1500));
    let mut sent = 0;
    // A send that cannot finish is dropped; the bytes written are what counts.
    for _ in 0..2000 {
        let mut write = Box::pin(stalled.try_send(&request));
        let done =
            std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_ready())).await;
        drop(write);
        run_until_idle().await;
        if !done {
            break;
        }
        sent += 1;
    }
    let used = peak_since(then);
    println!("{sent} requests were read, {used} bytes");
    assert!(sent < 500, "{sent} requests were read");
    assert!(used < 1024 * 1024, "{used}");
    chat.assert_still_works().await;
    chat.server.advance(chat.server.node.limits().write_stall_timeout_seconds + 1).await;
    assert_eq!(chat.server.node.routing_table.sessions(), 2);
}

/// Input of an unauthenticated client that does not read our answers is not read either.
#[tokio::test]
async fn an_unauthenticated_client_that_never_reads_is_not_read_from() {
    let limits = NodeLimits { sessions_per_account: 0, ..NodeLimits::default() };
    let server = TestServerConfig { limits, ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    let mut client = server.connect_with(4096);
    client.open().await;
    client.authenticate(sasl::Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client.open().await;
    let then = reset_peak();
    // Refused every time, each time with a reply.
    let request = "<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>".repeat(20);
    for _ in 0..2000 {
        let mut write = Box::pin(client.try_send(&request));
        let done =
            std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_ready())).await;
        drop(write);
        run_until_idle().await;
        if !done {
            break;
        }
    }
    let used = peak_since(then);
    assert!(used < 256 * 1024, "{used}");
    server.advance(server.node.limits().negotiation_timeout_seconds).await;
    server.advance(3).await;
    assert_eq!(server.node.outboxes.len(), 0);
}

async fn write(pipe: &mut Pipe, text: &str) {
    assert!(pipe.write_all(text.as_bytes()).await.is_ok());
}

/// Ten thousand connections that never log in. Heap bytes of each, with its task and its pipe: 2 kB silent, 4 kB with
/// an open stream, 24 kB with the largest element that may be unfinished.
#[tokio::test]
async fn ten_thousand_unauthenticated_connections() {
    const MANY: usize = 10_000;
    let mut chat = Chat::start(|_| {}).await;
    let then = reset_peak();
    let mut pipes = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let (connection, pipe) = chat.server.connection(32 * 1024);
        tokio::runtime::Handle::current().spawn(connection);
        pipes.push(pipe);
    }
    run_until(|| chat.server.node.outboxes.len() == MANY + 2).await;
    let each = |then: isize| (live_bytes() - then) / MANY as isize;
    let silent = each(then);
    assert_eq!(chat.server.connection_limiter.counts().unauthenticated, MANY as u32);
    chat.assert_still_works().await;
    let mut answer = vec![0; 4096];
    for pipe in &mut pipes {
        write(pipe, STREAM_HEADER).await;
    }
    for pipe in &mut pipes {
        assert!(pipe.read(&mut answer).await.unwrap() > 300, "a header and features");
    }
    let opened = each(then);
    chat.assert_still_works().await;
    let start =
        format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{}", "x".repeat(10_000));
    for pipe in pipes.iter_mut().take(MANY / 10) {
        write(pipe, &start).await;
    }
    for _ in 0..MANY / 100 {
        run_until_idle().await;
    }
    let unfinished = opened + (live_bytes() - then - opened * MANY as isize) / (MANY / 10) as isize;
    println!(
        "bytes each: {silent} silent, {opened} opened, {unfinished} with an unfinished element of 10 kB"
    );
    assert!(silent <= 2048, "{silent}");
    assert!(opened <= 4096, "{opened}");
    // The pipe's own buffer retains its capacity and is counted.
    assert!(unfinished <= 40 * 1024, "{unfinished}");
    chat.assert_still_works().await;
    // All time out together, receive the error, and leave nothing behind.
    chat.server.advance(chat.server.node.limits().negotiation_timeout_seconds).await;
    let pipe = pipes.first_mut().unwrap();
    let count = pipe.read(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..count]).contains("<connection-timeout"));
    drop(pipes);
    run_until(|| {
        (chat.server.node.outboxes.len(), chat.server.connection_limiter.counts().unauthenticated) == (2, 0)
    })
    .await;
    chat.assert_still_works().await;
    let left = live_bytes() - then;
    assert!(left < 1024 * 1024, "{left} bytes are left");
}

/// Bytes that are not TLS, where TLS is expected. At most 256 kB per connection, mostly the buffers of the thread.
#[tokio::test]
async fn garbage_instead_of_tls_is_bounded_and_closed() {
    let mut chat = Chat::start(|_| {}).await;
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..120 {
        let mut garbage = vec![0_u8; 40 + round * 300];
        for byte in &mut garbage {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *byte = random as u8;
        }
        match round % 4 {
            // A record header that announces a handshake, an alert, application data.
            1 => garbage[..5].copy_from_slice(&[22, 3, 1, 0x40, 0]),
            2 => garbage[..5].copy_from_slice(&[21, 3, 3, 0, 2]),
            3 => garbage[..5].copy_from_slice(&[23, 3, 3, 0x41, 0]),
            _ => {}
        }
        let mut client = chat.unauthenticated_client().await;
        client.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
        client.element().await;
        let then = reset_peak();
        let _ = client.try_send(&garbage).await;
        client.half_close().await;
        let rest = client.read_to_end().await;
        assert!(!rest.contains("stream"), "section 5.4.3.2: no closing tag; {rest:?}");
        assert!(peak_since(then) <= 256 * 1024, "{}", peak_since(then));
        chat.assert_still_works().await;
    }
    assert_eq!(chat.server.node.routing_table.sessions(), 2);
}

/// Valid TLS with invalid XML inside.
#[tokio::test]
async fn bad_xml_inside_tls_ends_the_stream() {
    let mut chat = Chat::start(|_| {}).await;
    for (input, condition) in [
        (message("<!-- x -->"), C::RestrictedXml),
        (b"<message></presence>".to_vec(), C::NotWellFormed),
        (message(&"x".repeat(300_000)), C::PolicyViolation),
        (b"\xff".to_vec(), C::NotWellFormed),
    ] {
        let mut client = chat.server.connect_with(4096);
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        client.open().await;
        client.finish_login(sasl::Mechanism::ScramSha256Plus, "juliet", "balcony").await;
        chat.refuses(client, &input, condition, 1_600 * 1024).await;
    }
}

/// Over real sockets the final output arrives although the client was still sending: the connection is not reset.
#[tokio::test]
async fn the_condition_arrives_over_tcp() {
    let mut chat = Chat::start(|_| {}).await;
    for _ in 0..20 {
        let mut client = chat.server.connect_tcp().await;
        client.open().await;
        client.try_send(message(&"x".repeat(400_000))).await.expect("a connection that is not reset");
        client.expect_stream_error(C::PolicyViolation).await;
        chat.assert_still_works().await;
    }
}

/// A valid session with a few bytes changed, many times: it ends in order or continues, and no other session is
/// affected.
#[tokio::test]
async fn mutated_sessions_end_cleanly_and_never_panic() {
    let mut chat = Chat::start(|setup| {
        setup.policy = NegotiationPolicy { allow_plain_without_tls: true, ..setup.policy.clone() };
    })
    .await;
    let plain = sasl::encoding::encode_challenge(&sasl::client::plain(None, "juliet", PASSWORD));
    let text = format!(
        "{STREAM_HEADER}<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>{STREAM_HEADER}\
         <iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>x</resource></bind></iq>\
         <presence/><message to='juliet@example.com/x' id='1'><body>a&amp;b</body></message></stream:stream>"
    );
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let (mut whole, mut cut) = (0, 0);
    for _ in 0..1500 {
        let mut input = text.clone().into_bytes();
        for _ in 0..=next(3) {
            let at = next(input.len());
            match next(3) {
                0 => input[at] = next(256) as u8,
                1 => drop(input.remove(at)),
                _ => input.insert(at, b"<>&'\"/=:x \0\xff"[next(12)]),
            }
        }
        let mut client = chat.server.connect_with(8192);
        let _ = client.try_send(&input).await;
        client.half_close().await;
        let rest = client.read_to_end().await;
        if rest.contains("<body>") {
            whole += 1
        } else {
            cut += 1
        }
        assert!(!rest.contains("internal-server-error"), "{}", String::from_utf8_lossy(&input));
    }
    assert!(whole > 10 && cut > 10, "{whole} {cut}");
    chat.assert_still_works().await;
    run_until_idle().await;
    assert_eq!(chat.server.node.routing_table.sessions(), 2);
    assert!(!matches!(chat.romeo.try_receive().await, Some(ReceivedEvent::Eof)));
}
