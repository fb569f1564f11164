//! The HTTP listener: `/metrics` (Prometheus text), `/healthz` (the process lives), `/readyz` (it takes clients).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::reload::Running;

/// What requests are answered from.
pub(crate) struct Pages {
    pub(crate) running: Arc<Running>,
    pub(crate) ready: Arc<AtomicBool>,
}

/// Serves one connection.
pub(crate) async fn serve(accepted: net::Accepted, pages: Arc<Pages>) {
    let net::Accepted { socket, pass, .. } = accepted;
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let answer = pages.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(10))
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an HTTP connection broke");
    }
    drop(pass);
}

impl Pages {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return page(
                StatusCode::METHOD_NOT_ALLOWED,
                "text/plain",
                "only GET is served here\n".to_owned(),
            );
        }
        match request.uri().path() {
            "/metrics" => {
                let mut text = String::new();
                let encoded =
                    prometheus_client::encoding::text::encode(&mut text, &self.running.wired.registry.lock());
                if encoded.is_err() {
                    return page(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "text/plain",
                        "metrics failed\n".to_owned(),
                    );
                }
                self.gauges(&mut text);
                page(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
            }
            "/healthz" => page(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            "/readyz" if self.ready.load(Ordering::Relaxed) => {
                page(StatusCode::OK, "text/plain", "ready\n".to_owned())
            }
            "/readyz" => page(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "not ready\n".to_owned()),
            _ => page(StatusCode::NOT_FOUND, "text/plain", "try /metrics, /healthz or /readyz\n".to_owned()),
        }
    }

    /// Values that are read when they are asked for.
    fn gauges(&self, text: &mut String) {
        let end = "# EOF\n";
        let body = text.strip_suffix(end).map(str::to_owned);
        *text = body.unwrap_or_default();
        let node = &self.running.wired.node;
        let (gate, lag) = (self.running.gate.counts(), self.running.vitals.lag());
        let gauge = |text: &mut String, name: &str, help: &str, value: String| {
            text.push_str(&format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value}\n"));
        };
        for (name, help, value) in [
            ("throng_connections", "Open connections", node.links.len() as u64),
            ("throng_sessions", "Bound resources", node.table.sessions() as u64),
            ("throng_accounts_online", "Accounts with a bound resource", node.table.accounts() as u64),
            ("throng_half_open", "Connections without a session yet", u64::from(gate.half_open)),
            ("process_resident_memory_bytes", "Resident memory", crate::status::resident()),
        ] {
            gauge(text, name, help, value.to_string());
        }
        let seconds = |lag: Duration| format!("{:.6}", lag.as_secs_f64());
        gauge(text, "throng_lag_seconds", "How late the last sweep was", seconds(lag.last));
        gauge(
            text,
            "throng_lag_max_seconds",
            "How late the latest sweep of a minute was",
            seconds(lag.worst),
        );
        let name = "throng_connections_refused";
        text.push_str(&format!("# HELP {name} Connections that the gate refused.\n# TYPE {name} counter\n"));
        for (reason, count) in crate::status::refused(&gate) {
            text.push_str(&format!("{name}_total{{reason=\"{reason}\"}} {count}\n"));
        }
        text.push_str(end);
    }
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
