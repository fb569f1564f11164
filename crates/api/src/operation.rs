//! Declarations of the operations of `/api/v1`: path, who may, what goes in and out, and the handler. The router, the check
//! of scopes and the OpenAPI document ([`crate::openapi`]) are made from them, so they cannot differ.
//!
//! The trap: a handler that answers with a status that is not declared makes the document wrong; the tests with
//! schemathesis find that, the compiler does not.

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

use crate::auth::{Caller, Scope};
use crate::{Api, Problem};

/// Who may use an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever reaches the port.
    Everybody,
    /// Whoever has any proof; the handler decides further.
    SignedIn,
    /// Administrators, and tokens with this scope.
    May(Scope),
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// JSON of this schema, or nothing.
    MaybeJson(&'static str),
    /// A line of JSON of this schema for each item.
    Lines(&'static str),
}

/// What an answer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gives {
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// Lines of JSON of this schema.
    Lines(&'static str),
}

/// A parameter in the query.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) schema: Value,
}

/// One operation.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// Below `/api/v1`.
    pub(crate) path: &'static str,
    /// Unique; generators of clients make names of functions from it.
    pub(crate) id: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) query: Vec<Parameter>,
    pub(crate) takes: Takes,
    pub(crate) gives: (u16, Gives, &'static str),
    /// Statuses of problems, besides those that follow from the rest.
    pub(crate) problems: &'static [u16],
    handler: MethodRouter<Arc<Api>>,
}

impl Operation {
    /// An operation that answers 200 with nothing, until told otherwise.
    pub(crate) fn new<H, T>(
        method: Method,
        path: &'static str,
        id: &'static str,
        access: Access,
        handler: H,
    ) -> Operation
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        Operation {
            method,
            path,
            id,
            summary: "",
            access,
            query: Vec::new(),
            takes: Takes::Nothing,
            gives: (200, Gives::Nothing, "Done."),
            problems: &[],
            handler: on(filter, handler),
        }
    }
    /// One sentence for people.
    pub(crate) fn summary(mut self, summary: &'static str) -> Operation {
        self.summary = summary;
        self
    }
    /// A parameter in the query, with its JSON Schema.
    pub(crate) fn query(mut self, name: &'static str, schema: Value, text: &'static str) -> Operation {
        self.query.push(Parameter { name, text, schema });
        self
    }
    /// What the body is.
    pub(crate) fn takes(mut self, takes: Takes) -> Operation {
        self.takes = takes;
        self
    }
    /// What it answers if all goes well.
    pub(crate) fn gives(mut self, status: u16, what: Gives, text: &'static str) -> Operation {
        self.gives = (status, what, text);
        self
    }
    /// What else may go wrong.
    pub(crate) fn problems(mut self, statuses: &'static [u16]) -> Operation {
        self.problems = statuses;
        self
    }
}

/// The routes of these operations.
pub(crate) fn router(api: &Arc<Api>, operations: Vec<Operation>) -> Router<Arc<Api>> {
    let mut router = Router::new();
    for operation in operations {
        let path = format!("/api/v1{}", operation.path);
        let check = from_fn_with_state((api.clone(), operation.access), check);
        router = router.route(&path, operation.handler.layer::<_, Infallible>(check));
    }
    router
}

/// Lets through who may; the handler finds the [`Caller`] that was made here.
async fn check(
    State((api, access)): State<(Arc<Api>, Access)>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if access == Access::Everybody {
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    let caller = Caller::from_request_parts(&mut parts, &api).await?;
    if let Access::May(scope) = access {
        caller.need(scope)?;
    }
    Ok(next.run(Request::from_parts(parts, body)).await)
}

/// For other methods than a path has.
pub(crate) async fn no_such_method() -> Response {
    Problem::new(
        axum::http::StatusCode::METHOD_NOT_ALLOWED,
        "not-allowed",
        "this path does not have this method",
    )
    .into_response()
}

/// For paths that are none.
pub(crate) async fn no_such_path() -> Problem {
    Problem::not_found("there is nothing at this path")
}
