//! A client that writes text and reads up to a pattern: SCRAM-SHA-256 without TLS, and no parser.
//!
//! # Pitfalls
//!
//! A pattern in the text of a message is found as well.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use sasl::Mechanism;
use sasl::client::{Gs2, ScramClient};

use crate::wait::TIMEOUT;

/// Domain of the accounts.
pub const DOMAIN: &str = "chat.test";

/// Password of all accounts.
pub const PASSWORD: &str = "correct horse";

/// A client that reads the server's text up to a pattern.
#[derive(Debug)]
pub struct TextClient {
    /// Its connection.
    pub stream: TcpStream,
    /// Text that was read and not returned yet.
    pub input: String,
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
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut client = TextClient { stream, input: String::new() };
        client.open();
        let hash = Mechanism::ScramSha256.hash().expect("a hash");
        let mut scram = ScramClient::new(hash, Gs2::None, user, PASSWORD);
        let first = sasl::encoding::encode_additional_data(Some(&scram.client_first()));
        client.send(&format!(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-256'>{first}</auth>"
        ));
        let challenge = client.read_sasl("</challenge>")?;
        let challenge = challenge.rsplit_once('>').map_or("", |(_, text)| text);
        let challenge = sasl::encoding::decode_response(challenge).expect("base 64");
        let last = scram.client_final(&challenge, None).expect("a challenge");
        let last = sasl::encoding::encode_additional_data(Some(&last));
        client.send(&format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</response>"));
        client.read_sasl("<success")?;
        client.read_to(">");
        client.open();
        client.send("<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
        client.read_to("</iq>");
        Ok(client)
    }

    fn open(&mut self) {
        self.send(&format!(
            "<stream:stream to='{DOMAIN}' version='1.0' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams'>"
        ));
        self.read_to("</stream:features>");
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
