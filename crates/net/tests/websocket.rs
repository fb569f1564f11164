//! WebSocket tests, frame by frame: the examples of RFC 7395, control frames, the closing handshake, limits, and
//! invalid input. `conformance.rs` has what all transports share.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use std::task::{Context, Poll, Waker};

use support::websocket::*;
use support::*;
use throng_net::websocket::WebSocketSettings;
use throng_net::{ListenerConfig, NetError, Pipe, Scratch, Stream, StreamEvent, Transport};

const OPEN: &str =
    "<open xmlns=\"urn:ietf:params:xml:ns:xmpp-framing\" to=\"example.com\" version=\"1.0\" />";
const CLOSE: &str = "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>";
const TAG: &str = "<stream:stream to='example.com' version='1.0' xmlns='jabber:client' \
                   xmlns:stream='http://etherx.jabber.org/streams'>";

/// A stream in memory, driven step by step, and its client's end.
struct Peer {
    stream: Stream,
    pipe: Pipe,
    scratch: Scratch,
    incoming: Vec<u8>,
}

impl Peer {
    fn with(settings: &WebSocketSettings, change: impl FnOnce(&mut ListenerConfig)) -> Peer {
        let (mut stream, pipe) = Stream::memory(port(change), 1 << 22);
        stream.set_websocket(accepted(settings));
        Peer { stream, pipe, scratch: Scratch::new(), incoming: Vec::new() }
    }

    /// An open stream.
    fn open() -> Peer {
        let mut peer = Peer::with(&WebSocketSettings::default(), |_| {});
        assert_eq!(peer.text(OPEN), [Ok(OwnedEvent::Open(TAG.into()))]);
        peer
    }

    fn write(&mut self, bytes: &[u8]) {
        let written = self.pipe.poll_write(&mut Context::from_waker(Waker::noop()), bytes);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == bytes.len()));
    }

    /// Sends bytes, and answers the resulting events.
    fn feed(&mut self, bytes: &[u8]) -> Vec<Result<OwnedEvent, String>> {
        let mut cx = Context::from_waker(Waker::noop());
        self.write(bytes);
        let mut events = Vec::new();
        loop {
            match self.stream.poll_event(&mut cx, &mut self.scratch) {
                Poll::Pending => break,
                Poll::Ready(Ok(StreamEvent::Eof)) => {
                    events.push(Ok(OwnedEvent::Eof));
                    break;
                }
                Poll::Ready(Ok(event)) => events.push(Ok(OwnedEvent::from(event))),
                Poll::Ready(Err(error)) => {
                    events.push(Err(match error {
                        NetError::WebSocket(violation) => violation.code.to_string(),
                        other => other.to_string(),
                    }));
                    break;
                }
            }
        }
        self.stream.release_buffers(&mut self.scratch).unwrap();
        events
    }

    fn text(&mut self, text: &str) -> Vec<Result<OwnedEvent, String>> {
        self.feed(&frame(0x81, text.as_bytes()))
    }

    fn queue(&mut self, text: &str) {
        self.stream.queue(text.as_bytes(), &mut self.scratch);
        self.stream.release_buffers(&mut self.scratch).unwrap();
    }

    /// Output of the server: first bytes of frames and their payload, as text if possible.
    fn frames(&mut self) -> Vec<(u8, String)> {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = self.stream.poll_flush(&mut cx, &mut self.scratch);
        let mut bytes = vec![0; 1 << 20];
        while let Poll::Ready(count @ 1..) = self.pipe.poll_read(&mut cx, &mut bytes) {
            self.incoming.extend(&bytes[..count]);
        }
        let mut frames = Vec::new();
        while let Some((first, payload, size)) = parse(&self.incoming) {
            let text = match first {
                0x88 => u16::from_be_bytes(payload.try_into().unwrap()).to_string(),
                0xC1 => String::from_utf8(inflated(payload)).unwrap(),
                _ => String::from_utf8(payload.to_vec()).unwrap(),
            };
            frames.push((first, text));
            self.incoming.drain(..size);
        }
        assert!(self.incoming.is_empty(), "half a frame");
        frames
    }

    fn shutdown(&mut self) -> Vec<(u8, String)> {
        let done = self.stream.poll_shutdown(&mut Context::from_waker(Waker::noop()), &mut self.scratch);
        assert!(matches!(done, Poll::Ready(Ok(()))));
        self.stream.release_buffers(&mut self.scratch).unwrap();
        self.frames()
    }
}

fn message(text: &str) -> (u8, String) {
    (0x81, text.to_owned())
}

fn closed(code: u16) -> (u8, String) {
    (0x88, code.to_string())
}

/// RFC 7395, sections 3.4, 3.3.3, 3.6 and 3.7.
#[test]
fn examples_of_rfc_7395() {
    let mut peer = Peer::open();
    assert_eq!(peer.stream.info().transport, Transport::WebSocket);
    assert!(!peer.stream.info().secure);
    peer.queue(
        "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' \
         id='++TR84Sm6A3hnt3Q065SnAbbk3Y=' from='example.com' version='1.0' xml:lang='en'><stream:features>\
         <bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features>",
    );
    assert_eq!(
        peer.frames(),
        [
            message(
                "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' id='++TR84Sm6A3hnt3Q065SnAbbk3Y=' \
                 from='example.com' version='1.0' xml:lang='en'/>"
            ),
            message(
                "<stream:features xmlns:stream='http://etherx.jabber.org/streams'>\
                 <bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features>"
            ),
        ]
    );
    // A message that is parsable alone loses the declaration that the stream header makes for every stanza.
    assert_eq!(
        peer.text(
            "<message xmlns=\"jabber:client\" xml:lang=\"en\">\n<body>Every WebSocket message is parsable by itself.\
             </body>\n</message>"
        ),
        [Ok(element(
            "<message xml:lang=\"en\">\n<body>Every WebSocket message is parsable by itself.</body>\n</message>"
        ))]
    );
    // Section 3.7: the stream restarts after SASL.
    peer.queue("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>");
    assert_eq!(peer.frames(), [message("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>")]);
    peer.stream.restart();
    assert_eq!(peer.text(OPEN), [Ok(OwnedEvent::Open(TAG.into()))]);
    // Section 3.6: the client closes, the server answers and sends the closing handshake.
    assert_eq!(peer.text(CLOSE), [Ok(OwnedEvent::Close)]);
    peer.queue("</stream:stream>");
    assert_eq!(peer.shutdown(), [message(CLOSE), closed(1000)]);
    assert_eq!(peer.feed(&frame(0x88, &[3, 232])), [Ok(OwnedEvent::Eof)]);
    assert_eq!(peer.frames(), []);
}

/// RFC 7395, section 3.6.1.
#[test]
fn a_client_can_be_redirected() {
    let uri = "wss://otherendpoint.example/xmpp-bind?a&b";
    let settings = WebSocketSettings { see_other_uri: Some(uri.into()), ..WebSocketSettings::default() };
    let mut peer = Peer::with(&settings, |_| {});
    assert_eq!(peer.text(OPEN), [Ok(OwnedEvent::Eof)]);
    let close = "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing' \
                 see-other-uri='wss://otherendpoint.example/xmpp-bind?a&amp;b'/>";
    assert_eq!(peer.frames(), [message(close), closed(1000)]);
}

#[test]
fn stream_headers_may_use_any_xml_syntax() {
    for open in [
        "<?xml version='1.0'?><open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='example.com' version='1.0'/>",
        "<f:open xmlns:f='urn:ietf:params:xml:ns:xmpp-framing'\tto='ex&#97;mple.com' version=\"1.0\"></f:open> \n",
        "<open id='x>' xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='example.com' version='1.0'/>",
    ] {
        let mut peer = Peer::with(&WebSocketSettings::default(), |_| {});
        let tag = if open.contains("id=") { TAG.replace(" to=", " id='x&gt;' to=") } else { TAG.to_owned() };
        assert_eq!(peer.text(open), [Ok(OwnedEvent::Open(tag))], "{open}");
        let close = "<f:close xmlns:f='urn:ietf:params:xml:ns:xmpp-framing'></f:close>";
        assert_eq!(peer.text(close), [Ok(OwnedEvent::Close)]);
    }
    // Section 3.3.2: the layer above refuses a header in a wrong namespace with invalid-namespace, whatever its
    // content.
    for open in [
        "<open xmlns='urn:x' to='example.com' version='1.0'/>",
        "<open xmlns='urn:x' to='example.com' version='1.0'>x<y/></open>",
    ] {
        let mut peer = Peer::with(&WebSocketSettings::default(), |_| {});
        let Some(Ok(OwnedEvent::Open(tag))) = peer.text(open).pop() else { panic!("no header: {open}") };
        assert!(tag.contains(" xmlns='urn:x'"), "{tag}");
    }
}

#[test]
fn elements_inherit_declarations_of_the_open_element() {
    let mut peer = Peer::open();
    for (text, expected) in [
        ("<iq/>", "<iq xmlns='jabber:client'/>"),
        ("<iq id='xmlns=' ><a>&gt;</a></iq>", "<iq xmlns='jabber:client' id='xmlns=' ><a>&gt;</a></iq>"),
        ("<r xmlns='urn:xmpp:sm:3'/>", "<r xmlns='urn:xmpp:sm:3'/>"),
        ("<r a='>' xmlns = \"urn:x\"/>", "<r a='>' xmlns = \"urn:x\"/>"),
        (
            "<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
            "<stream:error xmlns:stream='http://etherx.jabber.org/streams'>\
             <conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
        ),
        (
            "<message><body><![CDATA[</message>]]></body></message>",
            "<message xmlns='jabber:client'><body><![CDATA[</message>]]></body></message>",
        ),
    ] {
        peer.queue(text);
        assert_eq!(peer.frames(), [message(expected)]);
    }
}

#[test]
fn output_may_be_queued_in_fragments() {
    let text = "<?xml version='1.0'?><stream:stream xmlns='jabber:client' id='a>b'><message to='a@b'><body a='&gt;'>hé \
                <![CDATA[</message>]]></body></message><r xmlns='urn:xmpp:sm:3'/>\n<stream:error/></stream:stream>";
    let mut whole = Peer::open();
    whole.queue(text);
    let expected = whole.frames();
    assert_eq!(expected.len(), 5);
    for cut in 1..text.len() {
        let mut peer = Peer::open();
        let (first, second) = text.as_bytes().split_at(cut);
        let mut got = Vec::new();
        for part in [first, second] {
            peer.stream.queue(part, &mut peer.scratch);
            peer.stream.release_buffers(&mut peer.scratch).unwrap();
            got.extend(peer.frames());
        }
        assert_eq!(got, expected, "cut at {cut}");
        assert_eq!(peer.stream.unsent(), 0);
        assert!(peer.stream.is_idle());
    }
}

/// A stanza admitted at the depth limit may have been wrapped before it is sent.
#[test]
fn output_may_be_deeper_than_accepted_input() {
    let mut peer = Peer::open();
    let deep = format!("{}{}", "<a>".repeat(200), "</a>".repeat(200));
    peer.queue(&deep);
    assert_eq!(peer.frames(), [message(&deep.replacen("<a>", "<a xmlns='jabber:client'>", 1))]);
}

#[test]
fn pings_are_answered_between_fragments_and_after_queued_output() {
    let mut peer = Peer::open();
    let mut bytes = frame(0x01, b"<me");
    bytes.extend(frame(0x89, b"one"));
    bytes.extend(frame(0x00, b"ssage"));
    bytes.extend(frame(0x8A, b"nobody asked"));
    bytes.extend(frame(0x89, b""));
    bytes.extend(frame(0x00, b""));
    bytes.extend(frame(0x80, b"/>"));
    for cut in 0..bytes.len() {
        let (first, second) = bytes.split_at(cut);
        let mut events = peer.feed(first);
        let mut frames = peer.frames();
        events.extend(peer.feed(second));
        frames.extend(peer.frames());
        assert_eq!(events, [Ok(element("<message/>"))], "cut at {cut}");
        // RFC 6455, section 5.5.3: only the last of several pending pings needs an answer.
        assert_eq!(frames.last(), Some(&(0x8A, String::new())), "cut at {cut}");
        assert!(frames.len() <= 2);
        assert!(peer.stream.is_idle());
    }
    peer.queue("<a/>");
    peer.stream.queue(b"<b/>", &mut peer.scratch);
    peer.feed(&frame(0x89, b"two"));
    assert_eq!(
        peer.frames(),
        [message("<a xmlns='jabber:client'/>"), message("<b xmlns='jabber:client'/>"), (0x8A, "two".into())]
    );
}

#[test]
fn a_flood_of_pings_gets_one_answer() {
    let mut peer = Peer::open();
    assert_eq!(peer.feed(&frame(0x89, &[b'x'; 125]).repeat(10_000)), []);
    let frames = peer.frames();
    // One for each time that the server had drained its buffer.
    assert!(frames.len() < 50, "{}", frames.len());
}

#[test]
fn the_closing_handshake_is_answered_with_its_code() {
    for (payload, code) in [(&[3, 233][..], 1001), (b"", 1000), (b"\x0f\xa0bye", 4000)] {
        let mut peer = Peer::open();
        peer.queue("<a/>");
        peer.write(&frame(0x81, b"<m/>"));
        let events = peer.feed(&[frame(0x88, payload), frame(0x81, b"<late/>")].concat());
        assert_eq!(events, [Ok(element("<m/>")), Ok(OwnedEvent::Eof)]);
        assert_eq!(peer.frames(), [message("<a xmlns='jabber:client'/>"), closed(code)]);
        // Nothing may follow (RFC 6455, section 5.5.1).
        peer.queue("<b/></stream:stream>");
        assert_eq!(peer.shutdown(), []);
    }
}

#[test]
fn a_stream_error_decides_the_code() {
    for (condition, code) in [
        ("system-shutdown", 1001),
        ("policy-violation", 1008),
        ("internal-server-error", 1011),
        ("conflict", 1000),
    ] {
        let mut peer = Peer::open();
        let error = format!(
            "<stream:error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
        );
        peer.queue(&format!("{error}</stream:stream>"));
        assert_eq!(peer.shutdown()[1..], [message(CLOSE), closed(code)]);
    }
}

/// Reaction to a violation by the client: the event, and the close code.
fn refused(settings: &WebSocketSettings, bytes: &[u8]) -> (String, String) {
    let mut peer = Peer::with(settings, |port| port.limits.element_bytes = 20_000);
    peer.stream.set_authenticated();
    peer.text(OPEN);
    let events = peer.feed(bytes);
    let [Err(error)] = &events[..] else { panic!("{bytes:x?}: {events:?}") };
    // A final stream error can be sent.
    peer.queue("<stream:error/></stream:stream>");
    let frames = peer.shutdown();
    let [error_frame, close, (0x88, code)] = &frames[..] else { panic!("{frames:?}") };
    assert!(error_frame.1.starts_with("<stream:error "), "{error_frame:?}");
    assert_eq!(close.1, CLOSE);
    (error.clone(), code.clone())
}

/// RFC 6455, sections 5.1, 5.2, 5.4, 5.5 and 8.1; RFC 7395, sections 3.2 and 3.3.3.
#[test]
fn invalid_input_ends_the_stream_with_the_matching_close_code() {
    let plain = |first: u8, payload: &[u8]| {
        let mut out = vec![first, payload.len() as u8];
        out.extend(payload);
        out
    };
    let length = |bytes: [u8; 8]| [&[0x81, 0xFF][..], &bytes, &[0; 4]].concat();
    for (what, bytes, code) in [
        ("not masked", plain(0x81, b"<m/>"), "1002"),
        ("a reserved bit", frame(0xA1, b"<m/>"), "1002"),
        ("a reserved opcode", frame(0x83, b"<m/>"), "1002"),
        ("a reserved control frame", frame(0x8B, b""), "1002"),
        ("binary", frame(0x82, b"<m/>"), "1003"),
        ("compressed without agreement", frame(0xC1, &deflated(b"<m/>")), "1002"),
        ("a long ping", frame(0x89, &[0; 126]), "1002"),
        ("a ping in fragments", frame(0x09, b""), "1002"),
        ("a continuation of nothing", frame(0x80, b"<m/>"), "1002"),
        ("a message in a message", [frame(0x01, b"<m"), frame(0x81, b"<m/>")].concat(), "1002"),
        ("a length with its highest bit", length([255; 8]), "1002"),
        ("half a code", frame(0x88, &[3]), "1002"),
        ("a code that is never sent", frame(0x88, &[3, 238]), "1002"),
        ("a reason that is not UTF-8", frame(0x88, b"\x03\xe8\xff"), "1007"),
    ] {
        let (error, closed_with) = refused(&WebSocketSettings::default(), &bytes);
        assert_eq!((error.as_str(), closed_with.as_str()), (code, code), "{what}");
    }
    for (what, bytes, error, code) in [
        ("huge", length([0, 0, 0, 1, 0, 0, 0, 0]), "larger than allowed", "1009"),
        ("too large", frame(0x81, &[b' '; 20_001]), "larger than allowed", "1009"),
        (
            "too large in pieces",
            [frame(0x01, &[b'<'; 20_000]), frame(0x00, b"xx")].concat(),
            "larger",
            "1009",
        ),
        ("not UTF-8", frame(0x81, b"<m>\xc3\x28</m>"), "not UTF-8", "1007"),
        ("half a character", frame(0x81, b"<m>\xc3"), "not UTF-8", "1007"),
        ("text", frame(0x81, b"hello"), "does not begin with <", "1000"),
        ("white space in front", frame(0x81, b" <m/>"), "does not begin with <", "1000"),
        ("half an element", frame(0x81, b"<m>"), "a complete element", "1000"),
        ("two elements", frame(0x81, b"<m/><m/>"), "more than one element", "1000"),
        ("an element and text", frame(0x81, b"<m/>x"), "more than one element", "1000"),
        ("an end", frame(0x81, b"</stream:stream>"), "end tag", "1000"),
        ("a comment", frame(0x81, b"<!-- -->"), "forbids", "1000"),
        ("a second header", frame(0x81, OPEN.as_bytes()), "<open/> was sent again", "1000"),
    ] {
        let (found, closed_with) = refused(&WebSocketSettings::default(), &bytes);
        assert!(found.contains(error), "{what}: {found}");
        assert_eq!(closed_with, code, "{what}");
    }
    let mut peer = Peer::with(&WebSocketSettings::default(), |_| {});
    let events = peer.text("<message xmlns='jabber:client'/>");
    assert!(
        matches!(&events[..], [Err(error)] if error.contains("first message is not <open/>")),
        "{events:?}"
    );
}

#[test]
fn a_large_announced_length_allocates_nothing() {
    let mut peer = Peer::open();
    // 16 kB is the limit before authentication: one more byte is refused on the header alone.
    let limit = ListenerConfig::UNAUTHENTICATED_ELEMENT_BYTES as u16;
    let header = |length: u16| [&[0x81, 0xFE][..], &length.to_be_bytes(), &[0; 4]].concat();
    assert_eq!(peer.feed(&header(limit)), []);
    assert!(peer.stream.is_idle(), "nothing of a message has come, so nothing is held");
    let mut peer = Peer::open();
    assert!(matches!(&peer.feed(&header(limit + 1))[..], [Err(error)] if error.contains("larger")));
}

#[test]
fn the_smaller_of_two_limits_counts() {
    let long = format!("<m>{}</m>", "x".repeat(2000));
    let small = WebSocketSettings { message_bytes: 2006, ..WebSocketSettings::default() };
    let mut peer = Peer::with(&small, |_| {});
    peer.text(OPEN);
    assert!(matches!(&peer.text(&long)[..], [Err(error)] if error.contains("larger")));
    let mut peer = Peer::with(&WebSocketSettings { message_bytes: 2007, ..small }, |_| {});
    peer.text(OPEN);
    assert_eq!(peer.text(&long), [Ok(element(&long))]);
}

#[test]
fn a_message_in_fragments_of_one_byte_arrives() {
    let long = format!("<m>{}</m>", "0123456789".repeat(20_000));
    let mut bytes = Vec::new();
    for (n, byte) in long.bytes().enumerate() {
        let first = if n == 0 { 0x01 } else { 0x00 } | if n + 1 == long.len() { 0x80 } else { 0 };
        bytes.extend(frame(first, &[byte]));
        if n % 100 == 0 {
            bytes.extend(frame(0x8A, b"!"));
        }
    }
    let mut peer = Peer::open();
    peer.stream.set_authenticated();
    assert_eq!(peer.feed(&bytes), [Ok(element(&long))]);
    assert!(peer.stream.is_idle());
}

/// RFC 7692, section 6.
#[test]
fn compressed_messages_go_both_ways() {
    let settings = WebSocketSettings { compression: true, ..WebSocketSettings::default() };
    let mut peer = Peer::with(&settings, |_| {});
    peer.text(OPEN);
    let long = format!("<m>{}</m>", "hello ".repeat(500));
    let packed = deflated(long.as_bytes());
    assert_eq!(peer.feed(&frame(0xC1, &packed)), [Ok(element(&long))]);
    // Fragmented: only the first frame has the bit (section 6.1), and a ping may come in between.
    let (head, rest) = packed.split_at(packed.len() / 2);
    let parts =
        [frame(0x41, head), frame(0x89, b"?"), frame(0x80, rest), frame(0x81, b"<n xmlns='jabber:client'/>")];
    assert_eq!(peer.feed(&parts.concat()), [Ok(element(&long)), Ok(element("<n/>"))]);
    assert_eq!(peer.frames(), [(0x8A, "?".into())]);
    peer.queue(&format!("<a/>{long}"));
    let expected = long.replacen("<m>", "<m xmlns='jabber:client'>", 1);
    // Short messages are not compressed.
    assert_eq!(peer.frames(), [message("<a xmlns='jabber:client'/>"), (0xC1, expected)]);
    assert!(peer.stream.is_idle());
}

#[test]
fn a_compressed_bomb_is_refused_and_garbage_too() {
    let settings = WebSocketSettings { compression: true, ..WebSocketSettings::default() };
    let bomb = deflated(&vec![b' '; 20_000_000]);
    let (error, code) = refused(
        &WebSocketSettings { message_bytes: 200_000, ..settings.clone() },
        &frame(0xC1, &bomb[..19_000]),
    );
    assert!(error.contains("larger"), "{error}");
    assert_eq!(code, "1009");
    assert_eq!(refused(&settings, &frame(0xC1, b"\xff\xff\xff")), ("1007".into(), "1007".into()));
    assert_eq!(refused(&settings, &[frame(0x01, b"<m"), frame(0xC0, b"/>")].concat()).0, "1002");
}

#[test]
fn the_handshake_response_is_sent_first_and_frames_after_the_request_are_read() {
    let (mut stream, pipe) = Stream::memory(port(|_| {}), 1 << 16);
    let mut cx = Context::from_waker(Waker::noop());
    let mut scratch = Scratch::new();
    stream.set_raw();
    let mut peer = Peer { stream, pipe, scratch: Scratch::new(), incoming: Vec::new() };
    let request = b"GET /ws HTTP/1.1\r\n\r\n";
    peer.write(&[&request[..], &frame(0x81, OPEN.as_bytes()), &frame(0x89, b"!")[..3]].concat());
    let Poll::Ready(Ok(bytes)) = peer.stream.poll_bytes(&mut cx, &mut scratch, 0) else { panic!() };
    assert!(bytes.starts_with(request));
    peer.stream.consume(request.len(), &mut scratch);
    let accepted = accepted(&WebSocketSettings::default());
    let mut answer = Vec::new();
    accepted.write(&mut answer);
    peer.stream.queue(&answer, &mut scratch);
    peer.stream.set_websocket(accepted);
    let opened = peer.stream.poll_event(&mut cx, &mut scratch);
    assert!(matches!(opened, Poll::Ready(Ok(StreamEvent::Open(tag))) if tag == TAG.as_bytes()));
    peer.stream.queue(b"<a/>", &mut scratch);
    peer.stream.release_buffers(&mut scratch).unwrap();
    assert_eq!(peer.feed(&frame(0x89, b"!")[3..]), []);
    let _ = peer.stream.poll_flush(&mut cx, &mut scratch);
    let mut bytes = vec![0; 4096];
    let Poll::Ready(count) = peer.pipe.poll_read(&mut cx, &mut bytes) else { panic!() };
    let frames = bytes[..count].strip_prefix(&answer[..]).unwrap();
    let (_, payload, size) = parse(frames).unwrap();
    assert_eq!(payload, b"<a xmlns='jabber:client'/>");
    assert_eq!(parse(&frames[size..]), Some((0x8A, &b"!"[..], 3)));
}

#[tokio::test]
async fn tls_is_not_started_within_a_websocket() {
    let mut peer = Peer::open();
    let error = peer.stream.start_tls(&support::tls::CONFIG, None, &mut peer.scratch).unwrap_err();
    assert!(matches!(error, NetError::AlreadyEncrypted));
    let pair = websocket_tls(port(|_| {})).await;
    assert!(pair.server.info().secure && pair.server.info().transport == Transport::WebSocket);
    assert!(pair.server.channel_binding().exporter.is_some());
}
