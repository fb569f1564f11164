//! Origin of a request, as the listener knows it.
//!
//! The listener adds a [`RequestPeer`] to the extensions of each request. Behind a trusted proxy it is what the proxy
//! reports.
//!
//! # Pitfalls
//!
//! Without one the request has an unknown origin over an unencrypted connection: all such requests share one address
//! in the limits of failed logins, and cookies are not marked `Secure`.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPeer {
    /// The client's address, not the proxy's.
    pub address: IpAddr,
    /// Whether the connection to the client is encrypted, as far as is known.
    pub secure: bool,
    /// The request indicates that it passed a proxy, and [`RequestPeer::address`] is that proxy's.
    pub proxied: bool,
}

impl RequestPeer {
    /// Unknown origin.
    pub const UNKNOWN: RequestPeer =
        RequestPeer { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), secure: false, proxied: false };

    /// Whether a program on this machine sent the request. A proxy on this machine acts for others.
    pub fn is_local(&self) -> bool {
        self.address.to_canonical().is_loopback() && !self.proxied
    }

    /// The origin of a request.
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
