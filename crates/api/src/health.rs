//! Health and metrics endpoints: `/healthz` (the process is alive) and `/readyz` (it accepts clients), public;
//! `/metrics` (OpenMetrics text), for local programs, for addresses in `[http] metrics_allow`, and for tokens with
//! the scope `metrics` or `read`.
//!
//! # Pitfalls
//!
//! Behind a reverse proxy on this machine every client comes from loopback. A request that names a proxy is not
//! local, see [`RequestPeer::is_local`], nor is one for a public host name. A proxy that adds no header and writes a
//! loopback `Host`, or forwards one from its client, cannot be distinguished from a local program: it must not
//! forward `/metrics`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::auth::{self, TokenScope};
use crate::{Api, RequestPeer, host_meta};

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(live)).route("/readyz", get(ready))
}

const REFUSED: &str = "this address is not allowed to read /metrics: add it to [http] metrics_allow, or \
 send a token (throng token add prometheus --scope metrics)\n";

/// Whether the request names this machine by a loopback name or address, with any port. Tunnels and some proxies add
/// no header, but leave the public name that their client requested; so does a browser after DNS rebinding.
fn names_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let Some(authority) = host_meta::request_authority(uri, headers) else { return false };
    let host = authority.host();
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether this request may read the metrics.
async fn may_scrape(api: &Arc<Api>, peer: RequestPeer, uri: &Uri, headers: &HeaderMap) -> bool {
    let local = peer.is_local() && names_loopback(uri, headers);
    if local || (!peer.proxied && api.process.may_scrape(peer.address)) {
        return true;
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else { return false };
    let Some(secret) = auth::bearer(value.as_bytes()) else { return false };
    let token = api.tokens.find(secret, api.node.clock.unix_millis()).await.ok().flatten();
    token.is_some_and(|token| token.scopes.allow(TokenScope::Metrics) || token.scopes.allow(TokenScope::Read))
}

async fn metrics(State(api): State<Arc<Api>>, peer: RequestPeer, uri: Uri, headers: HeaderMap) -> Response {
    if !may_scrape(&api, peer, &uri, &headers).await {
        api.node.metrics.scrapes_refused.inc();
        return (StatusCode::FORBIDDEN, REFUSED).into_response();
    }
    match api.process.metrics() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics failed\n").into_response(),
    }
}

async fn live() -> &'static str {
    "ok\n"
}

async fn ready(State(api): State<Arc<Api>>) -> (StatusCode, &'static str) {
    if api.process.ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

/// Fallback for every other path.
pub(crate) async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "try /metrics, /healthz or /readyz\n")
}
