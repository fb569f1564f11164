//! Authentication and authorisation of API requests.
//!
//! Two credentials are accepted. A console session: a cookie that `POST /api/v1/session` issued to an administrator
//! for a password (`sign_in`, `sessions`). A bearer token (RFC 6750, section 2.1) that an operator created for a
//! program ([`tokens`]).
//!
//! Handlers take an [`ApiCaller`] and require a scope:
//!
//! ```text
//! async fn overview(State(api): State<Arc<Api>>, caller: ApiCaller) -> Result<Json<Value>, Problem> {
//!     caller.require_scope(TokenScope::Read)?;
//! ```
//!
//! Against cross-site requests: the cookie is `SameSite=Strict`; a request with a cookie must come from our own pages
//! as far as the browser indicates (`Origin`, `Sec-Fetch-Site`); and an unsafe method (RFC 9110, section 9.2.1) must
//! carry the session's token in `X-CSRF-Token`. A browser never sends a bearer token automatically, so it needs none
//! of this.
//!
//! Not implemented: other schemes of `Authorization`.
//!
//! # Pitfalls
//!
//! A route without an `ApiCaller` is public.

mod origin;
mod routes;
mod scope;
pub(crate) mod sessions;
pub(crate) mod sign_in;
pub mod tokens;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use base::secret::constant_time_eq;
use jid::Jid;
use sessions::{ConsoleSession, ConsoleSessions};
use sign_in::SignInLimiter;
use throng_commands::CommandError;

use crate::{Api, Problem, RequestPeer};

pub use throng_commands::TokenScope;

pub(crate) use origin::same_origin;
pub(crate) use routes::{operations, schemas};
pub use scope::Scopes;

/// Name of the session cookie.
pub const COOKIE_NAME: &str = "throng_session";
/// Header required on unsafe requests of a console session.
pub const CSRF_HEADER: &str = "x-csrf-token";
/// Cookies of our name that are examined: a neighbouring site may have set one for us.
const MAX_COOKIES: usize = 4;

/// State of authentication.
#[derive(Default)]
pub(crate) struct ApiAuth {
    pub(crate) sessions: ConsoleSessions,
    pub(crate) sign_in_limiter: SignInLimiter,
}

/// Authenticated identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiPrincipal {
    /// An administrator who signed in.
    Administrator(Jid),
    /// A program with a token of this name.
    Token(String),
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct ApiCaller {
    /// Its identity.
    pub principal: ApiPrincipal,
    /// Its scopes.
    pub scopes: Scopes,
    /// Origin of the request.
    pub peer: RequestPeer,
    /// The console session, if it is one.
    pub(crate) session: Option<ConsoleSession>,
}

impl ApiCaller {
    /// Checks that the caller has this scope; an administrator has all of them.
    ///
    /// # Errors
    /// `forbidden`, with the name of the scope.
    pub fn require_scope(&self, scope: TokenScope) -> Result<(), Problem> {
        if self.scopes.allow(scope) {
            return Ok(());
        }
        Err(CommandError::new(
            throng_commands::CommandErrorKind::Forbidden,
            format!("this token lacks the scope \"{}\"", scope.as_str()),
        )
        .into())
    }

    /// The same caller for commands and for the audit log.
    pub fn to_command_caller(&self) -> throng_commands::Caller {
        let who = match &self.principal {
            ApiPrincipal::Administrator(jid) => throng_commands::CallerIdentity::Account(jid.clone()),
            ApiPrincipal::Token(name) => throng_commands::CallerIdentity::Token {
                name: format!("token:{name}"),
                admin: self.scopes.allow(TokenScope::Admin),
            },
        };
        throng_commands::Caller { identity: who, interface: "http", from: self.peer.address.to_string() }
    }
}

impl FromRequestParts<Arc<Api>> for ApiCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<ApiCaller, Problem> {
        if let Some(caller) = parts.extensions.get::<ApiCaller>() {
            return Ok(caller.clone());
        }
        let caller = authenticate(api, parts).await?;
        parts.extensions.insert(caller.clone());
        Ok(caller)
    }
}

/// Verifies the credentials of a request.
async fn authenticate(api: &Arc<Api>, parts: &Parts) -> Result<ApiCaller, Problem> {
    let peer = RequestPeer::of(parts);
    if let Some(value) = parts.headers.get(AUTHORIZATION) {
        // A token takes precedence over the cookie.
        let secret = bearer(value.as_bytes())
            .ok_or_else(|| Problem::unauthorized("only the Bearer scheme is supported"))?;
        let found = api.tokens.find(secret, api.node.clock.unix_millis()).await?;
        let Some(token) = found else {
            return Err(Problem::unauthorized("the token is unknown or has expired"));
        };
        return Ok(ApiCaller {
            principal: ApiPrincipal::Token(token.name),
            scopes: token.scopes,
            peer,
            session: None,
        });
    }
    let session = session_of(api, &parts.headers).await?;
    if !same_origin(parts) {
        return Err(Problem::forbidden("cross-site requests are not allowed"));
    }
    if !is_safe(&parts.method) {
        let given = parts.headers.get(CSRF_HEADER).map(|v| v.as_bytes()).unwrap_or_default();
        if !constant_time_eq(given, session.csrf.as_bytes()) {
            return Err(Problem::forbidden(
                "the header X-CSRF-Token is missing or does not match this session",
            ));
        }
    }
    Ok(ApiCaller {
        principal: ApiPrincipal::Administrator(session.jid.clone()),
        scopes: Scopes::ALL,
        peer,
        session: Some(session),
    })
}

/// The console session of a request, if it is still valid.
async fn session_of(api: &Arc<Api>, headers: &HeaderMap) -> Result<ConsoleSession, Problem> {
    let now = api.node.clock.now();
    let found = cookies(headers).take(MAX_COOKIES).find_map(|cookie| api.auth.sessions.find(cookie, now));
    let Some(session) = found else {
        return Err(Problem::unauthorized("you are not signed in"));
    };
    if !sign_in::is_still_valid(api, &session).await? {
        api.auth.sessions.end(&session.id);
        return Err(Problem::unauthorized("this session has ended; sign in again"));
    }
    Ok(session)
}

/// The values of our cookie (RFC 6265, section 5.4).
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(COOKIE).into_iter().flat_map(|line| line.as_bytes().split(|b| *b == b';')).filter_map(
        |pair| pair.trim_ascii().strip_prefix(COOKIE_NAME.as_bytes())?.trim_ascii_start().strip_prefix(b"="),
    )
}

pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=b; throng_session=one;throng_session = two"));
        headers
            .append(COOKIE, HeaderValue::from_static("throng_sessions=x; xthrong_session=y; throng_session"));
        assert_eq!(cookies(&headers).collect::<Vec<_>>(), [b"one" as &[u8], b" two"]);
    }

    #[test]
    fn only_bearer_is_understood() {
        assert_eq!(bearer(b"Bearer abc"), Some(b"abc" as &[u8]));
        assert_eq!(bearer(b"bearer  abc "), Some(b"abc" as &[u8]));
        for other in ["", "Bearer", "Basic YTpi", "Bearerabc"] {
            assert_eq!(bearer(other.as_bytes()), None, "{other}");
        }
    }
}
