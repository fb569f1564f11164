//! Pairs whose stream is a WebSocket.

use super::*;
pub use framed::*;
use throng_net as net;
use throng_net::websocket::Settings;

#[path = "framed.rs"]
mod framed;

fn turned(mut pair: Pair, deflate: bool) -> Pair {
    pair.server.set_websocket(accepted(&Settings { compression: deflate, ..Settings::default() }));
    Pair { server: pair.server, client: Box::new(Framed::new(pair.client, deflate)) }
}

/// Over TCP.
pub async fn websocket(port: SharedPort) -> Pair {
    turned(tcp(port).await, false)
}

/// Over memory.
pub async fn websocket_memory(port: SharedPort) -> Pair {
    turned(memory(port).await, false)
}

/// Over TLS 1.3.
pub async fn websocket_tls(port: SharedPort) -> Pair {
    turned(tls::tls(port).await, false)
}

/// Over memory, compressed.
pub async fn websocket_deflate(port: SharedPort) -> Pair {
    turned(memory(port).await, true)
}
