//! Extractors of handlers, which reject with a [`Problem`] instead of axum's rejections.
//!
//! # Pitfalls
//!
//! Rejections must not repeat what was sent.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use jid::Jid;
use serde::de::DeserializeOwned;
use throng_commands::cluster_admin::NodeSelection;
use throng_commands::cluster_admin::records::NodeCursor;
use throng_core::Host;

use crate::{Api, Problem};

/// JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Api>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Json<T>, Problem> {
        let axum::Json(value) = axum::Json::from_request(request, api).await?;
        Ok(Json(value))
    }
}

/// Query parameters.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Api>> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<QueryParams<T>, Problem> {
        match Query::from_request_parts(parts, api).await {
            Ok(Query(value)) => Ok(QueryParams(value)),
            Err(_) => Err(Problem::invalid("invalid query parameter")),
        }
    }
}

/// The only variable part of the path.
pub(crate) struct PathParam(pub(crate) String);

impl FromRequestParts<Arc<Api>> for PathParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<PathParam, Problem> {
        match Path::from_request_parts(parts, api).await {
            Ok(Path(name)) => Ok(PathParam(name)),
            Err(_) => Err(Problem::invalid("invalid path")),
        }
    }
}

/// The address of an account in the path, such as `juliet@example.org`. The account need not exist.
pub(crate) struct AccountJid(pub(crate) Jid);

impl FromRequestParts<Arc<Api>> for AccountJid {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<AccountJid, Problem> {
        let PathParam(text) = PathParam::from_request_parts(parts, api).await?;
        Ok(AccountJid(account(&text)?))
    }
}

/// Parses the address of an account.
pub(crate) fn account(text: &str) -> Result<Jid, Problem> {
    let jid = Jid::parse(text).ok().filter(|jid| jid.local().is_some() && jid.resource().is_none());
    jid.ok_or_else(|| Problem::invalid("invalid address; write one such as user@example.org"))
}

/// The requested host, or the default one.
pub(crate) fn host(api: &Api, domain: Option<&str>) -> Result<Arc<Host>, Problem> {
    let found = match domain {
        Some(domain) => Jid::parse(domain).ok().and_then(|jid| api.node.host(jid.as_str())),
        None => {
            let default = api.node.host(&api.process.default_domain());
            default.or_else(|| api.node.hosts().into_iter().next())
        }
    };
    found.ok_or_else(|| Problem::not_found("this domain is not served here"))
}

/// The node with this name, or all nodes.
pub(crate) fn node_selection(api: &Api, name: Option<&str>) -> Result<NodeSelection, Problem> {
    Ok(NodeSelection::of(&api.node, name)?)
}

/// The position of a reader in the records of all nodes.
pub(crate) fn cursor(after: Option<&str>) -> Result<Option<NodeCursor>, Problem> {
    let wrong = || Problem::invalid("after must be the `next` of a previous response");
    after.map(|text| text.parse().map_err(|()| wrong())).transpose()
}

/// Maximum number of items on one page.
pub(crate) const MAX_PAGE_LIMIT: u32 = 500;
/// Default number of items on one page.
pub(crate) const DEFAULT_PAGE_LIMIT: u32 = 50;

/// Validates the requested number of items.
pub(crate) fn page_limit(given: Option<u32>) -> Result<u32, Problem> {
    match given.unwrap_or(DEFAULT_PAGE_LIMIT) {
        limit @ 1..=MAX_PAGE_LIMIT => Ok(limit),
        _ => Err(Problem::invalid(format!("limit must be a number from 1 to {MAX_PAGE_LIMIT}"))),
    }
}
