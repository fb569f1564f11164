//! Stream compression.
//!
//! Done: `<compress/>` of XEP-0138 before and after the login. (`websocket_floods.rs` covers compression of
//! WebSocket.)
//!
//! Rule: CVE-2014-2741 to CVE-2014-2746 (Openfire, Prosody, ejabberd, Tigase, M-Link: uncontrolled resource
//! consumption with highly compressed stanzas); RFC 3749, section 6.
//!
//! Right: compression is not offered, and requesting it ends the stream.

use crate::support::{pair, read_until_end, start_server, stream_error};

const COMPRESS: &str =
    "<compress xmlns='http://jabber.org/protocol/compress'><method>zlib</method></compress>";

#[tokio::test]
async fn stream_compression_is_refused() {
    let server = start_server();
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(!features.has("compress"), "{}", features.0);
    client.send(COMPRESS).await;
    let seen = read_until_end(&mut client).await;
    assert!(stream_error(&seen).is_some(), "{seen:?}");
    let (mut romeo, _juliet) = pair(&server).await;
    romeo.send(COMPRESS).await;
    let seen = read_until_end(&mut romeo).await;
    assert!(stream_error(&seen).is_some(), "{seen:?}");
}
