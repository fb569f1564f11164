//! A client that writes text and reads up to a pattern: any mechanism without TLS, and no parser.
//!
//! # Pitfalls
//!
//! A pattern in the text of a message is found as well.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use sasl::client::{Gs2, ScramClient};
use sasl::{Mechanism, ScramHash};

use crate::wait::TIMEOUT;

/// Domain of the accounts.
pub const DOMAIN: &str = "chat.test";

/// Password of all accounts.
pub const PASSWORD: &str = "correct horse";

const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";

/// A client that reads the server's text up to a pattern.
#[derive(Debug)]
pub struct TextClient {
    /// Its connection.
    pub stream: TcpStream,
    /// Text that was read and not returned yet.
    pub input: String,
    domain: String,
}

impl TextClient {
    /// Binds a resource and makes it available, with these attributes of `<enable/>` (XEP-0198).
    ///
    /// # Panics
    /// If the server does not answer as expected.
    pub fn login_managed(port: u16, user: &str, attributes: &str) -> TextClient {
        let mut client = TextClient::login(port, user);
        client.send(&format!(
            "<enable xmlns='urn:xmpp:sm:3'{attributes}/><presence/><r xmlns='urn:xmpp:sm:3'/>"
        ));
        client.read_to("<enabled");
        // What arrives from here on counts.
        client.read_to(">");
        client
    }

    /// Authenticates and binds a resource.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn login(port: u16, user: &str) -> TextClient {
        match TextClient::try_login(port, user) {
            Ok(client) => client,
            Err(failure) => panic!("the login of {user} failed: {failure}"),
        }
    }

    /// Authenticates and binds a resource, or returns the content of `<failure/>`.
    ///
    /// # Errors
    /// If the authentication failed.
    ///
    /// # Panics
    /// If the server does not answer as expected.
    pub fn try_login(port: u16, user: &str) -> Result<TextClient, String> {
        let mut client = TextClient::connect(port, DOMAIN);
        client.read_to("</stream:features>");
        let hash = Mechanism::ScramSha256.hash().expect("a hash");
        client.scram(hash, user, PASSWORD)?;
        Ok(client)
    }

    /// Connects and begins a stream to this domain. Its features are not read yet.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect(port: u16, domain: &str) -> TextClient {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut client = TextClient { stream, input: String::new(), domain: domain.to_owned() };
        client.begin_stream();
        client
    }

    /// Authenticates with SASL PLAIN and binds a resource, or returns the content of `<failure/>`.
    ///
    /// # Errors
    /// If the authentication failed.
    ///
    /// # Panics
    /// If the server does not answer as expected.
    pub fn login_plain(port: u16, address: &str, password: &str) -> Result<TextClient, String> {
        let (user, domain) = address.split_once('@').expect("an address");
        let mut client = TextClient::connect(port, domain);
        client.read_to("</stream:features>");
        client.authenticate("PLAIN", &format!("\0{user}\0{password}"))?;
        Ok(client)
    }

    /// Authenticates with a mechanism of one message, after the features, and binds a resource; or returns the content of
    /// `<failure/>`.
    ///
    /// # Errors
    /// If the authentication failed.
    ///
    /// # Panics
    /// If the server does not answer as expected.
    pub fn authenticate(&mut self, mechanism: &str, message: &str) -> Result<(), String> {
        self.send_auth(mechanism, message.as_bytes());
        let (text, answer) = self.read_to_first(&["<success", "</failure>", "</challenge>"]);
        match answer {
            0 => {
                self.bind();
                Ok(())
            }
            1 => Err(text),
            _ => {
                // RFC 7628, section 3.2.3: the client acknowledges the error about its token.
                self.send(&format!("<response xmlns='{SASL}'>AQ==</response>"));
                Err(self.read_to("</failure>"))
            }
        }
    }

    /// Authenticates with SCRAM, after the features, and binds a resource; or returns the content of `<failure/>`.
    ///
    /// # Errors
    /// If the authentication failed.
    ///
    /// # Panics
    /// If the server does not answer as expected.
    pub fn scram(&mut self, hash: ScramHash, user: &str, password: &str) -> Result<(), String> {
        self.prove(hash, user, password)?;
        self.bind();
        Ok(())
    }

    /// Authenticates, and reads the features of the new stream. No resource is bound.
    ///
    /// # Panics
    /// If the server does not answer as expected, or refuses the user.
    pub fn authenticated(port: u16, user: &str) -> TextClient {
        let mut client = TextClient::connect(port, DOMAIN);
        client.read_to("</stream:features>");
        let hash = Mechanism::ScramSha256.hash().expect("a hash");
        client.prove(hash, user, PASSWORD).expect("an account");
        client.restart_stream();
        client
    }

    fn prove(&mut self, hash: ScramHash, user: &str, password: &str) -> Result<(), String> {
        let mut scram = ScramClient::new(hash, Gs2::None, user, password);
        self.send_auth(hash.scram_name(), &scram.client_first());
        let challenge = self.read_sasl("</challenge>")?;
        let challenge = challenge.rsplit_once('>').map_or("", |(_, text)| text);
        let challenge = sasl::encoding::decode_response(challenge).expect("base 64");
        let last = scram.client_final(&challenge, None).expect("a challenge");
        let last = sasl::encoding::encode_additional_data(Some(&last));
        self.send(&format!("<response xmlns='{SASL}'>{last}</response>"));
        self.read_sasl("<success")?;
        Ok(())
    }

    /// Begins an authentication, whose answer is not read.
    ///
    /// # Panics
    /// If the connection is closed.
    pub fn send_auth(&mut self, mechanism: &str, message: &[u8]) {
        let first = sasl::encoding::encode_additional_data(Some(message));
        self.send(&format!("<auth xmlns='{SASL}' mechanism='{mechanism}'>{first}</auth>"));
    }

    fn begin_stream(&mut self) {
        let domain = &self.domain;
        self.send(&format!(
            "<stream:stream to='{domain}' version='1.0' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams'>"
        ));
    }

    /// Restarts the stream after `<success`.
    fn restart_stream(&mut self) {
        self.read_to(">");
        self.begin_stream();
        self.read_to("</stream:features>");
    }

    /// Restarts the stream after `<success`, and binds a resource.
    fn bind(&mut self) {
        self.restart_stream();
        self.send("<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
        self.read_to("</iq>");
    }

    /// The next element of the stream, as text.
    ///
    /// # Panics
    /// If the stream ends first.
    pub fn element(&mut self) -> String {
        let start = self.read_to(">") + ">";
        if start.ends_with("/>") {
            return start;
        }
        let name = start.trim_start_matches('<').split([' ', '>']).next().unwrap_or_default().to_owned();
        let end = format!("</{name}>");
        start + &self.read_to(&end) + &end
    }

    /// The result of a request to the own account.
    ///
    /// # Panics
    /// If it fails.
    pub fn request(&mut self, kind: &str, payload: &str) -> String {
        self.send(&format!("<iq type='{kind}' id='request'>{payload}</iq>"));
        loop {
            let response = self.element();
            // Others are roster pushes.
            if response.contains("id='request'") {
                assert!(response.contains("type='result'"), "{response}");
                return response;
            }
        }
    }

    /// Reads to the pattern, or to the end of a failure.
    fn read_sasl(&mut self, pattern: &str) -> Result<String, String> {
        match self.read_to_first(&[pattern, "</failure>"]) {
            (before, 0) => Ok(before),
            (failure, _) => Err(failure),
        }
    }

    /// Sends text.
    ///
    /// # Panics
    /// If the connection is closed.
    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("a working connection");
    }

    /// Text before the pattern.
    ///
    /// # Panics
    /// If the stream ends first, or after [`TIMEOUT`] without text.
    pub fn read_to(&mut self, pattern: &str) -> String {
        self.read_to_first(&[pattern]).0
    }

    /// Text before the first of these patterns, and the index of that pattern.
    ///
    /// # Panics
    /// If the stream ends first, or after [`TIMEOUT`] without text.
    pub fn read_to_first(&mut self, patterns: &[&str]) -> (String, usize) {
        loop {
            let found = patterns.iter().enumerate().filter_map(|(n, one)| Some((self.input.find(one)?, n)));
            if let Some((at, n)) = found.min() {
                let before = self.input[..at].to_owned();
                self.input.drain(..at + patterns[n].len());
                return (before, n);
            }
            let mut buffer = [0; 16_384];
            let count = self.stream.read(&mut buffer).expect("more text");
            assert!(count > 0, "the stream ended before {patterns:?}: {}", self.input);
            self.input.push_str(std::str::from_utf8(&buffer[..count]).expect("ASCII"));
        }
    }
}
