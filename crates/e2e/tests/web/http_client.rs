//! HTTP clients at the byte level: HTTP/1.1, BOSH and WebSocket over it, and as much of HTTP/2 as both need.

use std::io::{self, Read, Write};

use super::node::PASSWORD;

/// A bidirectional byte stream.
pub(crate) trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// A connection with unprocessed input.
pub(crate) struct HttpClient {
    wire: Box<dyn ReadWrite>,
    received: Vec<u8>,
}

impl Read for HttpClient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wire.read(into)
    }
}

impl Write for HttpClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }
}

impl HttpClient {
    pub(crate) fn over(wire: Box<dyn ReadWrite>) -> HttpClient {
        HttpClient { wire, received: Vec::new() }
    }

    /// Takes `count` bytes.
    fn pick(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            let mut buffer = [0; 4096];
            let more = self.wire.read(&mut buffer).expect("bytes in time");
            assert!(more > 0, "the end, after {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend(&buffer[..more]);
        }
        self.received.drain(..count).collect()
    }

    /// Reads the head of a response.
    pub(crate) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.pick(1));
        }
        String::from_utf8(head).expect("text")
    }

    /// Reads one response: its head and its body.
    pub(crate) fn answer(&mut self) -> (String, String) {
        let head = self.head();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().expect("a number"))
        });
        let body = self.pick(length.unwrap_or(0));
        (head, String::from_utf8(body).expect("text"))
    }

    pub(crate) fn ask(&mut self, head: &str, body: &str) -> (String, String) {
        self.wire.write_all(format!("{head}{body}").as_bytes()).expect("an open connection");
        self.wire.flush().expect("an open connection");
        self.answer()
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        self.wire.write_all(format!("{head}{body}").as_bytes()).expect("an open connection");
        self.wire.flush().expect("an open connection");
    }
}

/// A BOSH session over one connection.
pub(crate) struct BoshClient<'a> {
    web: &'a mut HttpClient,
    pub(crate) sid: String,
    pub(crate) rid: u64,
}

impl<'a> BoshClient<'a> {
    pub(crate) fn creation(rid: u64) -> String {
        format!(
            "<body rid='{rid}' to='localhost' wait='60' hold='1' ver='1.11' xml:lang='en' xmpp:version='1.0' \
             xmlns='http://jabber.org/protocol/httpbind' xmlns:xmpp='urn:xmpp:xbosh'/>"
        )
    }

    fn ask(&mut self, attributes: &str, inner: &str) -> String {
        let (rid, sid) = (self.rid, &self.sid);
        self.rid += 1;
        self.web.post(
            "/bosh",
            &format!("<body rid='{rid}' sid='{sid}' xmlns='http://jabber.org/protocol/httpbind' xmlns:xmpp='urn:xmpp:xbosh'{attributes}>{inner}</body>"),
        );
        let (head, body) = self.web.answer();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        body
    }

    /// Sends requests until a response contains `what`.
    fn until(&mut self, attributes: &str, inner: &str, what: &str) -> String {
        let mut text = self.ask(attributes, inner);
        while !text.contains(what) {
            assert!(!text.contains("terminate"), "{text}");
            text = self.ask("", "");
        }
        text
    }

    /// Opens a session with a bound resource.
    pub(crate) fn login(web: &'a mut HttpClient, user: &str) -> BoshClient<'a> {
        web.post("/bosh", &BoshClient::creation(1000));
        let (head, body) = web.answer();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        let sid =
            body.split(" sid='").nth(1).and_then(|rest| rest.split('\'').next()).expect("a sid").to_owned();
        let mut bosh = BoshClient { web, sid, rid: 1001 };
        bosh.until("", &plain(user), "<success");
        bosh.until(" xmpp:restart='true' to='localhost'", "", "urn:ietf:params:xml:ns:xmpp-bind");
        bosh.until("", BIND, "<jid>romeo@localhost/");
        bosh
    }

    /// Asserts that the session exists and answers.
    pub(crate) fn bound(&mut self) {
        let ping = "<iq xmlns='jabber:client' type='get' id='ping'><ping xmlns='urn:xmpp:ping'/></iq>";
        self.until("", ping, "id='ping'");
    }
}

const BIND: &str =
    "<iq xmlns='jabber:client' type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>";

fn plain(user: &str) -> String {
    use base64::Engine as _;
    let words = base64::engine::general_purpose::STANDARD.encode(format!("\0{user}\0{PASSWORD}"));
    format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{words}</auth>")
}

/// A WebSocket over HTTP/1.1.
pub(crate) struct WebSocketClient(HttpClient);

impl WebSocketClient {
    pub(crate) fn request(path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: xmpp\r\n\r\n"
        )
    }

    pub(crate) fn open(mut web: HttpClient, path: &str) -> WebSocketClient {
        let (head, _) = web.ask(&WebSocketClient::request(path), "");
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        WebSocketClient(web)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(&frame(text)).expect("an open connection");
        self.0.flush().expect("an open connection");
    }

    /// Reads messages up to one that contains `what`.
    pub(crate) fn until(&mut self, what: &str) -> String {
        let mut all = String::new();
        while !all.contains(what) {
            let [first, length] = self.0.pick(2)[..] else { panic!("two bytes") };
            let length = match length {
                126 => usize::from(u16::from_be_bytes(self.0.pick(2).try_into().expect("two bytes"))),
                127 => panic!("a long frame"),
                length => usize::from(length),
            };
            let payload = self.0.pick(length);
            if first == 0x81 {
                all += &String::from_utf8(payload).expect("text");
            }
        }
        all
    }

    pub(crate) fn login(&mut self, user: &str) {
        let open = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='localhost' version='1.0'/>";
        self.send(open);
        self.until("</stream:features>");
        self.send(&plain(user));
        self.until("<success");
        self.send(open);
        self.until("</stream:features>");
        self.send(BIND);
        self.until("<jid>romeo@localhost/");
    }
}

/// A text frame with a masking key of zero.
fn frame(text: &str) -> Vec<u8> {
    let mut bytes = vec![0x81];
    match text.len() {
        length @ ..126 => bytes.push(0x80 | length as u8),
        length => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(text.as_bytes());
    bytes
}

/// An HTTP/2 connection (RFC 9113). Fields are written as literals; of a response only the first byte of its fields is
/// read, which is the status if it has an index of its own (RFC 7541, appendix A).
pub(crate) struct Http2Client {
    web: HttpClient,
    /// Whether the server supports extended CONNECT (RFC 8441, section 3).
    pub(crate) connects: bool,
    stream: u32,
}

impl Http2Client {
    pub(crate) fn begin(mut web: HttpClient) -> Http2Client {
        web.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("an open connection");
        let mut h2 = Http2Client { web, connects: false, stream: 1 };
        h2.write(4, 0, 0, &[]);
        while !h2.next().1.is_empty() && !h2.connects {}
        h2
    }

    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.web.write_all(&bytes).expect("an open connection");
        self.web.flush().expect("an open connection");
    }

    /// Reads the next frame: its type, payload and stream.
    fn next(&mut self) -> (u8, Vec<u8>, u32) {
        let head = self.web.pick(9);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = self.web.pick(length);
        if head[3] == 4 && head[4] == 0 {
            self.connects |= payload.chunks(6).any(|one| one == [0, 8, 0, 0, 0, 1]);
            self.write(4, 1, 0, &[]);
        }
        (head[3], payload, u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
    }

    fn request(&mut self, fields: &[(&str, &str)], last: bool) {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                assert!(text.len() < 127);
                block.push(text.len() as u8);
                block.extend(text.as_bytes());
            }
        }
        self.write(1, 4 | u8::from(last), self.stream, &block);
    }

    /// Status and body.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> (u8, String) {
        let fields =
            [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
        self.request(&fields, false);
        self.write(0, 1, self.stream, body.as_bytes());
        let (mut status, mut text) = (0, String::new());
        while !text.contains("</body>") && !text.contains("/>") {
            match self.next() {
                (1, payload, stream) if stream == self.stream => status = payload[0],
                (0, payload, stream) if stream == self.stream => text += &String::from_utf8_lossy(&payload),
                _ => {}
            }
        }
        self.stream += 2;
        (status, text)
    }

    /// Opens a WebSocket; returns the status.
    pub(crate) fn upgrade(&mut self, path: &str) -> u8 {
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "xmpp"),
        ];
        self.request(&fields, false);
        loop {
            match self.next() {
                (1, payload, stream) if stream == self.stream => return payload[0],
                _ => {}
            }
        }
    }

    /// Sends a message and reads up to `until`.
    pub(crate) fn websocket(&mut self, text: &str, until: &str) -> String {
        self.write(0, 0, self.stream, &frame(text));
        let mut all = String::new();
        while !all.contains(until) {
            if let (0, payload, _) = self.next() {
                all += &String::from_utf8_lossy(&payload);
            }
        }
        self.stream += 2;
        all
    }
}
