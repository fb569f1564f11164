//! A client over BOSH and real sockets, for tests that decide themselves what it sends on which connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use throng_e2e::TIMEOUT;

pub(crate) const NS: &str = "http://jabber.org/protocol/httpbind";

/// HTTP connection of a client.
pub(crate) struct TestHttpConnection {
    pub(crate) socket: TcpStream,
    received: Vec<u8>,
}

impl TestHttpConnection {
    pub(crate) fn new(port: u16) -> TestHttpConnection {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        socket.set_nodelay(true).expect("a socket");
        TestHttpConnection { socket, received: Vec::new() }
    }

    /// Sends a request. False if the connection has ended.
    pub(crate) fn try_post(&mut self, body: &str) -> bool {
        let head =
            format!("POST /http-bind HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        self.socket.write_all(format!("{head}{body}").as_bytes()).is_ok()
    }

    pub(crate) fn post(&mut self, body: &str) {
        assert!(self.try_post(body), "the connection has ended");
    }

    /// Status and body of the next response; `None` if the connection ends before.
    pub(crate) fn try_answer(&mut self) -> Option<(u16, String)> {
        loop {
            let text = String::from_utf8_lossy(&self.received);
            if let Some(end) = text.find("\r\n\r\n") {
                let head = text[..end].to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).expect("a length");
                let length: usize = length.split("\r\n").next().expect("a line").parse().expect("a number");
                if self.received.len() >= end + 4 + length {
                    let status = head[9..12].parse().expect("a status");
                    let whole: Vec<u8> = self.received.drain(..end + 4 + length).collect();
                    return Some((status, String::from_utf8(whole[end + 4..].to_vec()).expect("text")));
                }
            }
            let mut buffer = [0; 16_384];
            let count = self.socket.read(&mut buffer).unwrap_or_default();
            if count == 0 {
                return None;
            }
            self.received.extend(&buffer[..count]);
        }
    }

    /// Body of the next response, if the connection does not end before.
    pub(crate) fn try_text(&mut self) -> Option<String> {
        let (status, text) = self.try_answer()?;
        assert_eq!(status, 200, "{text}");
        Some(text)
    }

    pub(crate) fn text(&mut self) -> String {
        self.try_text().expect("a response in time")
    }
}

/// A client with one connection; tests open the second one.
pub(crate) struct BoshTestClient {
    pub(crate) one: TestHttpConnection,
    domain: String,
    sid: String,
    pub(crate) rid: u64,
}

impl BoshTestClient {
    /// Binds a resource and makes it available.
    pub(crate) fn login(port: u16, domain: &str, user: &str, password: &str) -> BoshTestClient {
        let one = TestHttpConnection::new(port);
        let mut client = BoshTestClient { one, domain: domain.to_owned(), sid: String::new(), rid: 1000 };
        client.open_session(user, password);
        client
    }

    pub(crate) fn body(&self, rid: u64, attributes: &str, payload: &str) -> String {
        format!("<body rid='{rid}' sid='{}' {attributes} xmlns='{NS}'>{payload}</body>", self.sid)
    }

    pub(crate) fn next(&mut self, attributes: &str, payload: &str) -> String {
        self.rid += 1;
        self.body(self.rid, attributes, payload)
    }

    /// Sends requests on the only connection until a response contains `what`.
    fn until(&mut self, attributes: &str, payload: &str, what: &str) -> String {
        let mut body = self.next(attributes, payload);
        loop {
            self.one.post(&body);
            let text = self.one.text();
            if text.contains(what) {
                return text;
            }
            assert!(!text.contains("terminate"), "{text}");
            body = self.next("", "");
        }
    }

    fn open_session(&mut self, user: &str, password: &str) {
        let domain = self.domain.clone();
        self.one.post(&format!(
            "<body rid='1000' to='{domain}' wait='60' hold='1' ver='1.6' xml:lang='en' xmpp:version='1.0' xmlns='{NS}' \
             xmlns:xmpp='urn:xmpp:xbosh'/>"
        ));
        let created = self.one.text();
        self.sid = created
            .split(" sid='")
            .nth(1)
            .and_then(|rest| rest.split('\'').next())
            .expect("a sid")
            .to_owned();
        let plain = sasl::encoding::encode_additional_data(Some(format!("\0{user}\0{password}").as_bytes()));
        let auth = format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>");
        self.until("", &auth, "<success");
        let restart = format!("xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh' to='{domain}'");
        self.until(&restart, "", "xmpp-bind");
        let bind = "<iq type='set' id='b' xmlns='jabber:client'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
                    <resource>web</resource></bind></iq>";
        self.until("", bind, &format!("<jid>{user}@{domain}/web</jid>"));
        self.until("", "<presence xmlns='jabber:client'/>", "<presence");
    }
}
