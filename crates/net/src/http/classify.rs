//! Classification of a request head: BOSH, WebSocket, or passthrough.
//!
//! Not implemented: bodies.
//!
//! # Pitfalls
//!
//! A queued head is classified again when its turn comes, so nothing may be counted here.

use super::body::BodyError;
use super::forwarded::RemoteClient;
use super::handler::HttpSettings;
use super::head::{self, BodyLength, HttpRejection, HttpRequest, RequestFields, RequestPolicy, Route};
use crate::stream::Stream;
use crate::websocket::{self, AcceptedHandshake, Handshake, HttpVersion, RejectedHandshake};

/// Kind of a request.
pub(super) enum RequestKind {
    /// Handled elsewhere.
    Passthrough,
    Bosh(HttpRequest),
    WebSocket(HttpRequest, Box<AcceptedHandshake>),
    Rejected(HttpRequest, RejectedHandshake),
}

pub(super) const NEEDS_TLS: HttpRejection =
    HttpRejection { status: 403, reason: "this listener requires encryption: use https or wss" };

pub(super) fn bad_body(fault: BodyError) -> HttpRejection {
    match fault {
        BodyError::Malformed => HttpRejection { status: 400, reason: "the chunked body is malformed" },
        BodyError::TooLong => HttpRejection { status: 413, reason: "the body is too long" },
    }
}

/// Classifies a whole head.
pub(super) fn classify(
    head: &[u8],
    settings: &HttpSettings,
    stream: &Stream,
) -> Result<RequestKind, HttpRejection> {
    let info = stream.info();
    let remote = RemoteClient { peer: info.peer, secure: info.secure };
    let rules = RequestPolicy {
        origins: &settings.allowed_origins,
        proxies: &settings.proxies,
        gzip: settings.gzip,
        bosh: settings.bosh_body_bytes.is_some(),
        websocket: settings.websocket.is_some(),
    };
    let found = head::parse_head(head, &rules, remote, |request, fields| match &settings.websocket {
        Some(websocket) if request.route == Route::WebSocket => handshake(request, fields, websocket),
        _ => Ok(RequestKind::Bosh(request)),
    });
    found?.unwrap_or(Ok(RequestKind::Passthrough))
}

fn handshake(
    request: HttpRequest,
    fields: &RequestFields<'_, '_>,
    settings: &websocket::WebSocketSettings,
) -> Result<RequestKind, HttpRejection> {
    if request.length != BodyLength::Known(0) {
        return Err(HttpRejection { status: 400, reason: "a WebSocket handshake has no body" });
    }
    let method = fields.request.method.unwrap_or_default();
    let version = if request.response_options.http_1_0 { HttpVersion::Http10 } else { HttpVersion::Http11 };
    let handshake = Handshake { method, version, headers: fields.iter() };
    Ok(match websocket::accept(handshake, settings) {
        Ok(accepted) => RequestKind::WebSocket(request, Box::new(accepted)),
        Err(rejected) => RequestKind::Rejected(request, rejected),
    })
}
