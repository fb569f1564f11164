//! What a whole head asks for: BOSH, a WebSocket, or something that is not for us.
//!
//! Left out: bodies. The trap: a head is judged anew when its turn comes, so nothing may be counted here.

use super::body::BodyFault;
use super::forwarded::Remote;
use super::head::{self, Fields, Length, Refusal, Request, Route, Rules};
use super::site::Settings;
use crate::stream::Stream;
use crate::websocket::{self, Accepted, Handshake, Rejected, Version};

/// What came of a whole head.
pub(super) enum Found {
    /// Not for us.
    Other,
    Bosh(Request),
    Upgrade(Request, Box<Accepted>),
    Rejected(Request, Rejected),
}

pub(super) const NEEDS_TLS: Refusal =
    Refusal { status: 403, why: "sessions on this port have to be encrypted: use https or wss" };

pub(super) fn spoilt(fault: BodyFault) -> Refusal {
    match fault {
        BodyFault::Malformed => Refusal { status: 400, why: "the chunks of the body are malformed" },
        BodyFault::TooLong => Refusal { status: 413, why: "the body is too long" },
    }
}

/// Judges a whole head.
pub(super) fn look(head: &[u8], settings: &Settings, stream: &Stream) -> Result<Found, Refusal> {
    let facts = stream.facts();
    let remote = Remote { peer: facts.peer, secure: facts.secure };
    let rules = Rules {
        origins: &settings.allowed_origins,
        proxies: &settings.proxies,
        gzip: settings.gzip,
        bosh: settings.bosh.is_some(),
        websocket: settings.websocket.is_some(),
    };
    let found = head::read(head, &rules, remote, |request, fields| match &settings.websocket {
        Some(websocket) if request.route == Route::WebSocket => handshake(request, fields, websocket),
        _ => Ok(Found::Bosh(request)),
    });
    found?.unwrap_or(Ok(Found::Other))
}

fn handshake(
    request: Request,
    fields: &Fields<'_, '_>,
    settings: &websocket::Settings,
) -> Result<Found, Refusal> {
    if request.length != Length::Known(0) {
        return Err(Refusal { status: 400, why: "a WebSocket does not begin with a body" });
    }
    let method = fields.request.method.unwrap_or_default();
    let version = if request.manners.old { Version::Http10 } else { Version::Http11 };
    let asked = Handshake { method, version, headers: fields.iter() };
    Ok(match websocket::accept(asked, settings) {
        Ok(accepted) => Found::Upgrade(request, Box::new(accepted)),
        Err(rejected) => Found::Rejected(request, rejected),
    })
}
