//! Relay that a server is compared with: a plain tokio program that checks and parses nothing.
//!
//! Clients log in as to any XMPP server and receive fixed bytes: stream header, PLAIN as the only mechanism, success
//! for any password, the resource that they ask for, an empty result for every other request. Only the ends of elements
//! are searched for. Every `…</message>` goes to the connection whose full address is its `to='…'`, each with a
//! separate write, and every `…</presence>` is written as it is to all other connections; a presence without content is
//! dropped. There is no XML parser, no authentication, no storage, no flow control and no order between writers beyond
//! the lock of a socket.
//!
//! It is meant to be naive: one task and one buffer per connection, `write_all` for each message. Coalescing reads and
//! writes can beat it: `xtask relay --gather` does (`gathering_relay.rs`). It ends when its standard input closes, so that a
//! killed bench leaves no relay running.
//!
//! # Pitfalls
//!
//! Clients must write attributes in single quotes and stanzas without nested elements of the same name, as `throng
//! load` does.
#![allow(clippy::disallowed_types, reason = "the relay shares no code with the server")]

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use memchr::memmem;
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use super::gathering_relay::GatheringRelay;
use super::report::print_progress;

/// The flags of `xtask relay`.
#[derive(clap::Args)]
pub(crate) struct RelayArgs {
    /// Where to listen, HOST:PORT.
    #[arg(long)]
    listen: String,
    /// One thread that gathers its writes for each recipient, instead of a task for each connection.
    #[arg(long)]
    gather: bool,
}

type RelayPeer = Arc<Mutex<OwnedWriteHalf>>;
type RelayPeers = Arc<RwLock<HashMap<Vec<u8>, RelayPeer>>>;

/// The largest element; a longer one ends the connection.
pub(super) const MAX_MESSAGE_BYTES: usize = 65_536;
/// A task's initial buffer.
const INITIAL_BUFFER_BYTES: usize = 4_096;

const HEADER: &str = "<?xml version='1.0'?><stream:stream from='relay' id='relay' version='1.0' \
                      xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
const MECHANISMS: &str = "<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>\
                          <mechanism>PLAIN</mechanism></mechanisms></stream:features>";
const SUCCESS: &str = "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>";
const BINDING: &str = "<stream:features><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features>";

/// Runs the relay until its standard input closes.
pub(crate) fn run(args: &RelayArgs) -> ExitCode {
    let result = if args.gather { run_gathering(&args.listen) } else { run_naive(&args.listen) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_progress(&format!("relay on {}: {error}", args.listen));
            ExitCode::FAILURE
        }
    }
}

fn run_gathering(listen: &str) -> std::io::Result<()> {
    let relay = GatheringRelay::bind(listen)?;
    std::thread::spawn(move || {
        let mut bytes = [0; 16];
        while matches!(std::io::Read::read(&mut std::io::stdin(), &mut bytes), Ok(n) if n > 0) {}
        std::process::exit(0);
    });
    relay.run()
}

fn run_naive(listen: &str) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        tokio::select! {
            result = accept(listen) => result,
            () = closed_stdin() => Ok(()),
        }
    })?;
    runtime.shutdown_background();
    Ok(())
}

async fn closed_stdin() {
    let mut byte = [0; 16];
    while matches!(tokio::io::stdin().read(&mut byte).await, Ok(n) if n > 0) {}
}

async fn accept(listen: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let peers = RelayPeers::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let peers = Arc::clone(&peers);
        #[allow(clippy::disallowed_methods, reason = "a separate program; its runtime ends with it")]
        tokio::spawn(async move {
            let mut login = RelayLogin::default();
            // A connection that ends or misbehaves is closed without a report.
            let _ = serve(stream, &peers, &mut login).await;
            if login.is_bound() {
                peers.write().remove(&login.address);
            }
        });
    }
}

/// Needles that every element is searched for.
struct Needles {
    message_end: memmem::Finder<'static>,
    presence_end: memmem::Finder<'static>,
    to: memmem::Finder<'static>,
}

async fn serve(stream: TcpStream, peers: &RelayPeers, login: &mut RelayLogin) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, writer) = stream.into_split();
    let writer: RelayPeer = Arc::new(Mutex::new(writer));
    let mut buffer = vec![0; INITIAL_BUFFER_BYTES];
    let mut filled = 0;
    let mut recipients: Option<Vec<RelayPeer>> = None;
    let needles = Needles {
        message_end: memmem::Finder::new(b"</message>"),
        presence_end: memmem::Finder::new(b"</presence>"),
        to: memmem::Finder::new(b"to='"),
    };
    loop {
        if filled == buffer.len() {
            if filled >= MAX_MESSAGE_BYTES {
                return Ok(());
            }
            buffer.resize(filled * 2, 0);
        }
        let read = reader.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut at = 0;
        while at < filled {
            let rest = &buffer[at..filled];
            if rest.starts_with(b"<message") {
                let Some(end) = needles.message_end.find(rest) else { break };
                let bytes = &rest[..end + needles.message_end.needle().len()];
                let peer = attribute(bytes, &needles.to).and_then(|to| peers.read().get(to).cloned());
                if let Some(peer) = peer {
                    peer.lock().await.write_all(bytes).await?;
                }
                at += bytes.len();
            } else if rest.starts_with(b"<presence") {
                let Some(tag) = memchr::memchr(b'>', rest) else { break };
                if rest[tag - 1] == b'/' {
                    at += tag + 1;
                    continue;
                }
                let Some(end) = needles.presence_end.find(rest) else { break };
                let bytes = &rest[..end + needles.presence_end.needle().len()];
                // The recipients are collected once: the same sockets each time, as a server's contacts are.
                let recipients = recipients.get_or_insert_with(|| other_peers(peers, &login.address));
                for peer in recipients.iter() {
                    peer.lock().await.write_all(bytes).await?;
                }
                at += bytes.len();
            } else if rest.starts_with(b"</") {
                writer.lock().await.write_all(b"</stream:stream>").await?;
                return Ok(());
            } else {
                let Some((length, answer)) = login.answer(rest) else { break };
                if login.is_bound() {
                    peers.write().entry(login.address.clone()).or_insert_with(|| Arc::clone(&writer));
                }
                writer.lock().await.write_all(&answer).await?;
                at += length;
            }
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

/// Login of a connection, answered with fixed bytes.
#[derive(Default)]
pub(super) struct RelayLogin {
    domain: Vec<u8>,
    authenticated: bool,
    /// The bare address, then the full one.
    address: Vec<u8>,
}

impl RelayLogin {
    /// The bare address, then the full one.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Name of the account.
    pub(super) fn user(&self) -> &[u8] {
        self.address.split(|byte| *byte == b'@').next().unwrap_or_default()
    }

    pub(super) fn is_bound(&self) -> bool {
        self.address.contains(&b'/')
    }

    /// Length of the element at the beginning of `bytes` and the answer to it; `None` while it is incomplete.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
        if bytes.starts_with(b"<?") {
            return Some((memchr::memchr(b'>', bytes)? + 1, Vec::new()));
        }
        if bytes.starts_with(b"<stream:stream") {
            let length = memchr::memchr(b'>', bytes)? + 1;
            let to = memmem::Finder::new(b"to='");
            self.domain = attribute(&bytes[..length], &to).unwrap_or_default().to_vec();
            let features = if self.authenticated { BINDING } else { MECHANISMS };
            return Some((length, [HEADER.as_bytes(), features.as_bytes()].concat()));
        }
        if bytes.starts_with(b"<auth") {
            let end = memmem::find(bytes, b"</auth>")?;
            let text = bytes[..end].rsplit(|byte| *byte == b'>').next().unwrap_or_default();
            let plain = BASE64.decode(text).unwrap_or_default();
            // RFC 4616: authorization identity, NUL, user, NUL, password.
            let user = plain.split(|byte| *byte == 0).nth(1).unwrap_or_default();
            self.address = [user, b"@", &self.domain].concat();
            self.authenticated = true;
            return Some((end + "</auth>".len(), SUCCESS.into()));
        }
        let length = memmem::find(bytes, b"</iq>")? + "</iq>".len();
        let request = &bytes[..length];
        let id = attribute(request, &memmem::Finder::new(b"id='")).unwrap_or_default();
        let mut answer = [b"<iq type='result' id='", id, b"'"].concat();
        if let Some(resource) = between(request, b"<resource>", b"</resource>") {
            self.address.push(b'/');
            self.address.extend_from_slice(resource);
            answer.extend_from_slice(b"><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>");
            answer.extend_from_slice(&self.address);
            answer.extend_from_slice(b"</jid></bind></iq>");
        } else {
            answer.extend_from_slice(b"/>");
        }
        Some((length, answer))
    }
}

fn other_peers(peers: &RelayPeers, own: &[u8]) -> Vec<RelayPeer> {
    let peers = peers.read();
    peers.iter().filter(|(name, _)| name.as_slice() != own).map(|(_, peer)| Arc::clone(peer)).collect()
}

/// The value after `name`, which ends in an opening quote.
pub(super) fn attribute<'a>(element: &'a [u8], name: &memmem::Finder<'_>) -> Option<&'a [u8]> {
    let from = name.find(element)? + name.needle().len();
    let length = memchr::memchr(b'\'', &element[from..])?;
    Some(&element[from..from + length])
}

fn between<'a>(bytes: &'a [u8], begin: &[u8], end: &[u8]) -> Option<&'a [u8]> {
    let from = memmem::find(bytes, begin)? + begin.len();
    Some(&bytes[from..from + memmem::find(&bytes[from..], end)?])
}

#[cfg(test)]
mod tests {
    use super::{BINDING, MECHANISMS, RelayLogin, SUCCESS, attribute};

    #[test]
    fn the_recipient_is_the_text_of_to() {
        let to = memchr::memmem::Finder::new(b"to='");
        assert_eq!(attribute(b"<message from='a' to='b@c/d' id='1'>", &to), Some(&b"b@c/d"[..]));
        assert_eq!(attribute(b"<message to='b", &to), None);
        assert_eq!(attribute(b"<message/>", &to), None);
    }

    #[test]
    fn a_login_is_answered_with_fixed_bytes_and_the_resource_that_was_requested() {
        let mut login = RelayLogin::default();
        let mut exchange = |text: &str| {
            let (length, answer) = login.answer(text.as_bytes()).unwrap();
            assert_eq!(length, text.len(), "{text}");
            (String::from_utf8(answer).unwrap(), login.is_bound())
        };
        let header = "<stream:stream to='a.example' version='1.0'>";
        assert_eq!(exchange("<?xml version='1.0'?>"), (String::new(), false));
        assert!(exchange(header).0.ends_with(MECHANISMS));
        assert_eq!(exchange("<auth mechanism='PLAIN'>AHUxAHNlY3JldA==</auth>").0, SUCCESS);
        assert!(exchange(header).0.ends_with(BINDING));
        let bind = "<iq type='set' id='b'><bind xmlns='x'><resource>bench</resource></bind></iq>";
        let (answer, bound) = exchange(bind);
        assert!(
            bound && answer.contains("id='b'") && answer.contains("<jid>u1@a.example/bench</jid>"),
            "{answer}"
        );
        assert_eq!(exchange("<iq type='get' id='r'><query xmlns='r'/></iq>").0, "<iq type='result' id='r'/>");
    }

    #[test]
    fn an_incomplete_element_is_not_answered() {
        for text in ["<?xml", "<stream:stream to='a", "<auth>AHUx", "<iq type='get' id='1'><query/>"] {
            assert!(RelayLogin::default().answer(text.as_bytes()).is_none(), "{text}");
        }
    }
}
