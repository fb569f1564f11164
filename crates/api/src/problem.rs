//! Errors of the API: RFC 9457, Problem Details for HTTP APIs, with the XMPP condition (RFC 6120, section 8.3.3) as
//! an extension member, so that the same failure has the same name on every interface.
//!
//! Not implemented: own problem types (`type` is `about:blank`, section 4.2.1); `condition` distinguishes failures.
//!
//! # Pitfalls
//!
//! `detail` is shown to people. It must contain no secret, and must not reveal to an unauthenticated client whether
//! an account exists.

use std::borrow::Cow;

use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use store::StoreError;
use throng_commands::{CommandError, CommandErrorKind};

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// XMPP condition, such as `item-not-found`.
    pub condition: &'static str,
    /// One sentence for a person.
    pub detail: Cow<'static, str>,
}

impl Problem {
    /// A problem; `detail` is one sentence without a full stop.
    pub fn new(status: StatusCode, condition: &'static str, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem { status, condition, detail: detail.into() }
    }

    /// The request is malformed.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Problem {
        CommandError::new(CommandErrorKind::Invalid, detail).into()
    }

    /// The request is not authenticated.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, "not-authorized", detail)
    }

    /// The caller lacks the rights.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Problem {
        CommandError::new(CommandErrorKind::Forbidden, detail).into()
    }

    /// The resource does not exist.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Problem {
        CommandError::new(CommandErrorKind::NotFound, detail).into()
    }

    /// An internal error; the cause is logged where it happens.
    pub fn internal() -> Problem {
        CommandError::internal().into()
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Problem {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem::new(status, error.condition().as_str(), error.text)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        CommandError::from(error).into()
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        let status = rejection.status();
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            return Problem::new(status, "policy-violation", "the request is too large");
        }
        if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return Problem::new(status, "bad-request", "the content type must be application/json");
        }
        // serde's message may repeat what was sent, and that may be a password.
        Problem::invalid("the request is not valid JSON for this operation")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "condition": self.condition,
        });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, kind, body.to_string()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            // RFC 9110, section 11.6.1 requires a challenge; this one makes no browser prompt for a password.
            let value = HeaderValue::from_static("Bearer realm=\"throng\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_carries_status_and_condition() {
        let problem = Problem::from(CommandError::new(CommandErrorKind::NotFound, "there is no account x@y"));
        assert_eq!((problem.status, problem.condition), (StatusCode::NOT_FOUND, "item-not-found"));
        let response = problem.into_response();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let response = Problem::unauthorized("sign in").into_response();
        assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
    }
}
