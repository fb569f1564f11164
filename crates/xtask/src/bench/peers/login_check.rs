//! Check of a server that was just started: one login, and the number of contacts of the account.
//!
//! PLAIN over plain TCP (RFC 6120, section 6; RFC 4616), bind (RFC 6120, section 7) and roster get (RFC 6121, section
//! 2.1.3), blocking. Answers are not parsed but searched for their ends: counting items is enough, and nothing that is
//! measured uses this.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Longest wait for one answer.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Logs in and returns how many contacts the roster has with subscription `both`.
pub(super) fn contacts(to: SocketAddr, domain: &str, user: &str, password: &str) -> Result<usize> {
    let mut socket = TcpStream::connect_timeout(&to, LOGIN_TIMEOUT)?;
    socket.set_read_timeout(Some(LOGIN_TIMEOUT))?;
    let header = format!(
        "<?xml version='1.0'?><stream:stream to='{domain}' version='1.0' xmlns='jabber:client' \
         xmlns:stream='http://etherx.jabber.org/streams'>"
    );
    exchange(&mut socket, &header, "</stream:features>")?;
    let plain = BASE64.encode(format!("\0{user}\0{password}"));
    let auth = format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>");
    exchange(&mut socket, &auth, "<success").with_context(|| format!("{user} could not log in"))?;
    exchange(&mut socket, &header, "</stream:features>")?;
    let bind = "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>";
    exchange(&mut socket, bind, "</iq>")?;
    let get = "<iq type='get' id='roster'><query xmlns='jabber:iq:roster'/></iq>";
    let roster = exchange(&mut socket, get, "</iq>")?;
    ensure!(!roster.contains("type='error'"), "the roster was refused: {roster}");
    socket.write_all(b"</stream:stream>")?;
    // Attributes come in any order and in either kind of quotes.
    Ok(roster.split("<item").skip(1).filter(|item| item.split('>').next().is_some_and(is_mutual)).count())
}

fn is_mutual(item: &str) -> bool {
    item.contains("subscription='both'") || item.contains("subscription=\"both\"")
}

/// Sends and reads up to `end`.
fn exchange(socket: &mut TcpStream, text: &str, end: &str) -> Result<String> {
    socket.write_all(text.as_bytes())?;
    let mut got = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = socket.read(&mut buffer).with_context(|| format!("no {end} was received"))?;
        got.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&got);
        if text.contains(end) {
            return Ok(text.into_owned());
        }
        if read == 0 || text.contains("<failure") || text.contains("<stream:error") {
            bail!("received instead of {end}: {text}");
        }
    }
}
