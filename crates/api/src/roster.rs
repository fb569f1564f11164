//! `GET /api/v1/accounts/{jid}/roster`: the contacts of an account (RFC 6121, section 2), in pages, read-only.
//!
//! Pages are in the order of the contacts' addresses, and `after` is the last address of the previous page, so that a
//! contact added or removed meanwhile neither repeats nor hides another.
//!
//! Not implemented: changes, which are up to the user, and entries that the user does not see either (a request from
//! a sender who is not in the roster).
//!
//! # Pitfalls
//!
//! The store returns a roster whole. It is bounded, but a page costs as much as all of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{RosterItem, StoreErrorKind, Subscription};
use throng_commands::TokenScope;

use crate::extract::{AccountJid, DEFAULT_PAGE_LIMIT, MAX_PAGE_LIMIT, QueryParams, page_limit};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let text = || json!({ "type": "string" });
    let page =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_LIMIT, "default": DEFAULT_PAGE_LIMIT });
    vec![
        ApiOperation::new(
            Method::GET,
            "/accounts/{jid}/roster",
            "listRoster",
            Access::Scoped(TokenScope::Read),
            list,
        )
        .summary("Lists the contacts of an account by address.")
        .query("search", text(), "Only contacts whose address, name or group contains this text.")
        .query("after", text(), "The `next` of the previous page; the other parameters must be the same.")
        .query("limit", page, "Maximum number of contacts on the page.")
        .response(200, ResponseBody::Json("RosterPage"), "A page.")
        .problems(&[404]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let flag = |what: &str| json!({ "type": "boolean", "description": what });
    let contact = json!({
        "type": "object",
        "required": ["jid", "name", "groups", "subscription", "ask", "approved", "request"],
        "properties": {
            "jid": { "type": "string", "description": "The contact's bare address." },
            "name": { "type": "string", "description": "The name that the user gave the contact; empty if \
             none." },
            "groups": { "type": "array", "items": { "type": "string" } },
            "subscription": { "type": "string", "enum": ["none", "to", "from", "both"] },
            "ask": flag("The user requested a subscription, and the contact has not replied."),
            "approved": flag("The user pre-approved a subscription of the contact (RFC 6121, section 3.4)."),
            "request": flag("The contact requested a subscription, and the user has not replied."),
        },
    });
    vec![(
        "RosterPage",
        json!({
            "type": "object",
            "required": ["items", "next", "total"],
            "properties": {
                "items": { "type": "array", "items": contact },
                "next": { "type": ["string", "null"], "description": "Value of `after` for the next page; \
                 absent on the last page." },
                "total": { "type": "integer", "minimum": 0, "description": "Number of matching contacts." },
            },
        }),
    )]
}

#[derive(Deserialize)]
struct RosterQuery {
    search: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

async fn list(
    State(api): State<Arc<Api>>,
    AccountJid(jid): AccountJid,
    QueryParams(wanted): QueryParams<RosterQuery>,
) -> Result<Json<Value>, Problem> {
    let limit = page_limit(wanted.limit)? as usize;
    let stores = &api.node.stores;
    let missing = || Problem::not_found(format!("there is no account {jid}"));
    let found = stores.accounts.get(jid.as_ref()).await?.ok_or_else(missing)?;
    let roster = stores.roster.get(found.id).await.map_err(|error| match error.kind {
        StoreErrorKind::NotFound => missing(),
        _ => error.into(),
    })?;
    let search = wanted.search.map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty());
    let matches = |item: &RosterItem| {
        let has = |text: &str| search.as_deref().is_none_or(|wanted| text.to_lowercase().contains(wanted));
        has(item.jid.as_str()) || item.name.as_deref().is_some_and(has) || item.groups.iter().any(|g| has(g))
    };
    let shown = |item: &RosterItem| item.subscription.contains(Subscription::IN_ROSTER) && matches(item);
    let mut items: Vec<RosterItem> = roster.items.into_iter().filter(shown).collect();
    items.sort_unstable_by(|a, b| a.jid.as_str().cmp(b.jid.as_str()));
    let total = items.len();
    let first = wanted.after.map_or(0, |after| items.partition_point(|i| i.jid.as_str() <= after.as_str()));
    let page = &items[first..total.min(first.saturating_add(limit))];
    let next = page.last().filter(|_| first + page.len() < total).map(|item| item.jid.as_str());
    Ok(Json(json!({ "items": page.iter().map(item_json).collect::<Vec<_>>(), "next": next, "total": total })))
}

fn item_json(item: &RosterItem) -> Value {
    json!({
        "jid": item.jid.as_str(),
        "name": item.name.as_deref().unwrap_or_default(),
        "groups": item.groups,
        "subscription": item.subscription.as_str(),
        "ask": item.subscription.contains(Subscription::PENDING_OUT),
        "approved": item.subscription.contains(Subscription::APPROVED),
        "request": item.subscription.contains(Subscription::PENDING_IN),
    })
}
