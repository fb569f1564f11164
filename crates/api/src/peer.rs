//! Where a request comes from, as the listener knows it.
//!
//! The listener puts a [`RequestPeer`] into the extensions of each request. Behind a trusted proxy it is what the proxy says.
//!
//! The trap: without one the request counts as coming from nowhere over a plain connection: all such share one address in
//! the limits of failed logins, and cookies are not marked `Secure`.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPeer {
    /// The client's address, not the proxy's.
    pub address: IpAddr,
    /// Whether the way to the client is encrypted, as far as is known.
    pub secure: bool,
    /// The request says that it passed a proxy, and [`RequestPeer::address`] is that proxy's.
    pub proxied: bool,
}

impl RequestPeer {
    /// Nothing is known.
    pub const UNKNOWN: RequestPeer =
        RequestPeer { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), secure: false, proxied: false };

    /// Whether a program on this machine sent the request. A proxy on this machine speaks for others.
    pub fn is_local(&self) -> bool {
        self.address.to_canonical().is_loopback() && !self.proxied
    }

    /// That of a request.
    pub fn of(parts: &Parts) -> RequestPeer {
        parts.extensions.get::<RequestPeer>().copied().unwrap_or(RequestPeer::UNKNOWN)
    }
}

impl<S: Sync> FromRequestParts<S> for RequestPeer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<RequestPeer, Infallible> {
        Ok(RequestPeer::of(parts))
    }
}
