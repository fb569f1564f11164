//! `/metrics` (OpenMetrics text), `/healthz` (the process lives), `/readyz` (it takes clients). For everybody.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::Api;

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(alive)).route("/readyz", get(ready))
}

async fn metrics(State(api): State<Arc<Api>>) -> Response {
    match api.machine.metrics() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics failed\n").into_response(),
    }
}

async fn alive() -> &'static str {
    "ok\n"
}

async fn ready(State(api): State<Arc<Api>>) -> (StatusCode, &'static str) {
    if api.machine.ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

/// For every other path.
pub(crate) async fn nowhere() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "try /metrics, /healthz or /readyz\n")
}
