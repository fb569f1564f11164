//! Declarations of the operations of `/api/v1`: path, access, request, response and handler. The router, the check of
//! scopes and the OpenAPI document ([`crate::openapi`]) are generated from them, so they cannot differ.
//!
//! # Pitfalls
//!
//! A handler that returns an undeclared status makes the document wrong; the tests with schemathesis find that, the
//! compiler does not.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::Value;

use crate::auth::{ApiCaller, TokenScope};
use crate::{Api, Problem};

/// Access control of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Any client.
    Public,
    /// Any valid credentials; the handler decides further.
    Authenticated,
    /// Administrators, and tokens with this scope.
    Scoped(TokenScope),
}

/// Request body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestBody {
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// Optional JSON of this schema.
    OptionalJson(&'static str),
    /// JSON lines of this schema, one per item.
    JsonLines(&'static str),
}

/// Response body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseBody {
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// JSON lines of this schema.
    JsonLines(&'static str),
}

/// A query parameter.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) schema: Value,
}

/// One operation.
pub(crate) struct ApiOperation {
    pub(crate) method: Method,
    /// Path below `/api/v1`.
    pub(crate) path: &'static str,
    /// Unique; client generators derive function names from it.
    pub(crate) id: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) query: Vec<Parameter>,
    pub(crate) request_body: RequestBody,
    pub(crate) response: (u16, ResponseBody, &'static str),
    /// Statuses of problems, besides those that follow from the other fields.
    pub(crate) problems: &'static [u16],
    handler: MethodRouter<Arc<Api>>,
}

impl ApiOperation {
    /// An operation that returns 200 without a body, until overridden.
    pub(crate) fn new<H, T>(
        method: Method,
        path: &'static str,
        id: &'static str,
        access: Access,
        handler: H,
    ) -> ApiOperation
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        ApiOperation {
            method,
            path,
            id,
            summary: "",
            access,
            query: Vec::new(),
            request_body: RequestBody::Nothing,
            response: (200, ResponseBody::Nothing, "Done."),
            problems: &[],
            handler: on(filter, handler),
        }
    }

    /// Sets the one-sentence summary.
    pub(crate) fn summary(mut self, summary: &'static str) -> ApiOperation {
        self.summary = summary;
        self
    }

    /// Adds a query parameter with its JSON Schema.
    pub(crate) fn query(mut self, name: &'static str, schema: Value, text: &'static str) -> ApiOperation {
        self.query.push(Parameter { name, text, schema });
        self
    }

    /// Sets the request body.
    pub(crate) fn request_body(mut self, takes: RequestBody) -> ApiOperation {
        self.request_body = takes;
        self
    }

    /// Sets the response of a success.
    pub(crate) fn response(mut self, status: u16, what: ResponseBody, text: &'static str) -> ApiOperation {
        self.response = (status, what, text);
        self
    }

    /// Sets the statuses of further problems.
    pub(crate) fn problems(mut self, statuses: &'static [u16]) -> ApiOperation {
        self.problems = statuses;
        self
    }
}

/// The routes of these operations.
pub(crate) fn router(api: &Arc<Api>, operations: Vec<ApiOperation>) -> Router<Arc<Api>> {
    let mut router = Router::new();
    for operation in operations {
        let path = format!("/api/v1{}", operation.path);
        let check = from_fn_with_state((api.clone(), operation.access), authorize);
        router = router.route(&path, operation.handler.layer::<_, Infallible>(check));
    }
    router
}

/// Admits authorised callers; the handler finds the [`ApiCaller`] created here.
async fn authorize(
    State((api, access)): State<(Arc<Api>, Access)>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if access == Access::Public {
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    let caller = ApiCaller::from_request_parts(&mut parts, &api).await?;
    if let Access::Scoped(scope) = access {
        caller.require_scope(scope)?;
    }
    Ok(next.run(Request::from_parts(parts, body)).await)
}

/// Fallback for methods that a path does not support.
pub(crate) async fn method_not_allowed() -> Response {
    Problem::new(
        axum::http::StatusCode::METHOD_NOT_ALLOWED,
        "not-allowed",
        "this path does not support this method",
    )
    .into_response()
}

/// Fallback for unknown paths.
pub(crate) async fn unknown_path() -> Problem {
    Problem::not_found("path not found")
}
