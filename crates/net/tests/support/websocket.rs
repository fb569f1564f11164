//! Pairs whose stream is a WebSocket.

#[path = "framed.rs"]
mod framed;

use throng_net as net;
use throng_net::websocket::WebSocketSettings;

use super::*;

pub use framed::*;

fn turned(mut pair: StreamPair, deflate: bool) -> StreamPair {
    pair.server
        .set_websocket(accepted(&WebSocketSettings { compression: deflate, ..WebSocketSettings::default() }));
    StreamPair { server: pair.server, client: Box::new(Framed::new(pair.client, deflate)) }
}

/// Over TCP.
pub async fn websocket(port: SharedListenerConfig) -> StreamPair {
    turned(tcp(port).await, false)
}

/// Over memory.
pub async fn websocket_memory(port: SharedListenerConfig) -> StreamPair {
    turned(memory(port).await, false)
}

/// Over TLS 1.3.
pub async fn websocket_tls(port: SharedListenerConfig) -> StreamPair {
    turned(tls::tls(port).await, false)
}

/// Over memory, compressed.
pub async fn websocket_deflate(port: SharedListenerConfig) -> StreamPair {
    turned(memory(port).await, true)
}
