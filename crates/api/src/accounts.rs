//! `/api/v1/accounts`: listing, reading and changing accounts.
//!
//! Every change is a command of XEP-0133 (`add-user`, `delete-user`, …): these paths only fill in its form, so
//! rights, errors and the audit log are those of the command. With `modules.administration` off they answer 404.
//!
//! Not implemented: vCard fields beyond those of the search results.
//!
//! # Pitfalls
//!
//! A page costs a look-up for each account on it; it must remain bounded.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jid::{Jid, JidRef};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{
    AccountRecord, SearchPageRequest, SearchableProfile, Seek, StoreErrorKind, Subscription, UserQuery,
};
use throng_commands::{RawArguments, TokenScope};

use crate::auth::ApiCaller;
use crate::extract::{
    AccountJid, DEFAULT_PAGE_LIMIT, Json, MAX_PAGE_LIMIT, QueryParams, account, host, page_limit,
};
use crate::operation::{Access, ApiOperation, RequestBody, ResponseBody};
use crate::{Api, Problem, commands, sessions};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let text = || json!({ "type": "string" });
    let may = Access::Scoped(TokenScope::Accounts);
    let order = json!({ "type": "string", "enum": ["name", "created"], "default": "name" });
    let page =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_LIMIT, "default": DEFAULT_PAGE_LIMIT });
    vec![
        ApiOperation::new(Method::GET, "/accounts", "listAccounts", Access::Scoped(TokenScope::Read), list)
            .summary(
                "Lists the accounts of a domain, optionally those whose name, nickname, email or user \
             name starts with a text.",
            )
            .query("domain", text(), "The domain; the default domain if absent.")
            .query("search", text(), "Prefix of a user name, name, nickname or email.")
            .query("order", order, "Sort order: by user name or by creation time (not with search).")
            .query("after", text(), "The `next` of the previous page; the other parameters must be the same.")
            .query("limit", page, "Maximum number of accounts on the page.")
            .response(200, ResponseBody::Json("AccountPage"), "A page.")
            .problems(&[404]),
        ApiOperation::new(Method::POST, "/accounts", "addAccount", may, add)
            .summary("Adds an account.")
            .request_body(RequestBody::Json("NewAccount"))
            .response(201, ResponseBody::Json("Account"), "The account, with its path in `Location`.")
            .problems(&[404, 409, 422]),
        ApiOperation::new(
            Method::GET,
            "/accounts/{jid}",
            "showAccount",
            Access::Scoped(TokenScope::Read),
            show,
        )
        .summary("Returns an account.")
        .response(200, ResponseBody::Json("Account"), "The account.")
        .problems(&[404]),
        ApiOperation::new(Method::DELETE, "/accounts/{jid}", "deleteAccount", may, delete)
            .summary("Removes an account with all its data, ends its sessions and notifies its contacts.")
            .response(204, ResponseBody::Nothing, "The account was removed.")
            .problems(&[404, 422]),
        ApiOperation::new(Method::PUT, "/accounts/{jid}/password", "setPassword", may, set_password)
            .summary("Changes a password.")
            .request_body(RequestBody::Json("NewPassword"))
            .response(204, ResponseBody::Nothing, "The password was changed.")
            .problems(&[404, 422]),
        ApiOperation::new(Method::POST, "/accounts/{jid}/disable", "disableAccount", may, disable)
            .summary("Disables an account: ends its sessions and refuses its logins.")
            .response(204, ResponseBody::Nothing, "The account was disabled.")
            .problems(&[404, 422]),
        ApiOperation::new(Method::POST, "/accounts/{jid}/enable", "enableAccount", may, enable)
            .summary("Enables a disabled account.")
            .response(204, ResponseBody::Nothing, "The account was enabled.")
            .problems(&[404, 422]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let time = || json!({ "type": "integer", "description": "Seconds since 1970." });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let jid = || json!({ "type": "string", "description": "A bare address, such as juliet@example.org." });
    let in_page = json!({
        "type": "object",
        "required": ["jid", "name", "nick", "email", "disabled", "created", "sessions"],
        "properties": {
            "jid": jid(), "name": text(), "nick": text(), "email": text(),
            "disabled": { "type": "boolean" },
            "created": time(),
            "sessions": { "type": "integer", "minimum": 0, "description": "Connected resources." },
        },
    });
    let maybe = || json!({ "type": ["string", "null"] });
    let password = || json!({ "type": "string", "minLength": 1 });
    vec![
        (
            "AccountPage",
            json!({
                "type": "object",
                "required": ["items", "next", "domain"],
                "properties": {
                    "domain": text(),
                    "items": { "type": "array", "items": in_page },
                    "next": { "type": ["string", "null"], "description": "Value of `after` for the next \
                     page; absent on the last page." },
                    "total": { "type": "integer", "description": "Number of accounts; only on the first \
                     page. A search counts up to 10000." },
                },
            }),
        ),
        (
            "Account",
            json!({
                "type": "object",
                "required": ["jid", "disabled", "created", "contacts", "offline_messages", "last_seen", "sessions"],
                "properties": {
                    "jid": jid(),
                    "disabled": { "type": "boolean" },
                    "created": time(),
                    "contacts": number(),
                    "offline_messages": { "type": "integer", "description": "Messages in offline storage." },
                    "last_seen": { "type": ["integer", "null"], "description": "Seconds since 1970; null if never." },
                    "sessions": number(),
                },
            }),
        ),
        (
            "NewAccount",
            json!({
                "type": "object",
                "required": ["jid", "password"],
                "additionalProperties": false,
                "examples": [{ "jid": "mercutio@example.com", "password": "Queen Mab", "given_name": "Mercutio" }],
                "properties": {
                    "jid": jid(), "password": password(),
                    "email": maybe(), "given_name": maybe(), "surname": maybe(),
                },
            }),
        ),
        (
            "NewPassword",
            json!({
                "type": "object",
                "required": ["password"],
                "additionalProperties": false,
                "examples": [{ "password": "a plague on both" }],
                "properties": { "password": password() },
            }),
        ),
    ]
}

#[derive(Deserialize)]
struct AccountsQuery {
    domain: Option<String>,
    search: Option<String>,
    order: Option<AccountOrder>,
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum AccountOrder {
    #[default]
    Name,
    Created,
}

async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(wanted): QueryParams<AccountsQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(wanted.limit)?;
    let search = wanted.search.as_deref().map(str::trim).filter(|s| !s.is_empty());
    // A whole address is accepted, too.
    let (search, of) = match search.and_then(|s| s.split_once('@')) {
        Some((user, of)) if api.node.host(of).is_some() => (Some((user, true)), Some(of)),
        _ => (search.map(|s| (s.strip_suffix('@').unwrap_or(s), s.ends_with('@'))), None),
    };
    let host = host(&api, of.or(wanted.domain.as_deref()))?;
    let (domain, stores) = (host.domain(), &api.node.stores);
    let first = wanted.after.is_none();
    let wrong = |_| Problem::invalid("after must be the `next` of the previous page");
    if search.is_none() && wanted.order.unwrap_or_default() == AccountOrder::Created {
        let after = wanted.after.map(|text| text.parse::<u64>()).transpose().map_err(|_| wrong(()))?;
        let slice = stores.accounts.list(domain, store::Page::after(after.unwrap_or(0), limit)).await?;
        let items = slice
            .items
            .iter()
            .map(|found| account_summary_json(&api, found, &SearchableProfile::default()))
            .collect();
        let total = if first { Some(stores.accounts.count(domain).await?) } else { None };
        return Ok(page(domain, items, slice.next.map(|n| n.to_string()), total));
    }
    let mut query = UserQuery::default();
    match search {
        Some((text, true)) => query.user = Some(text.to_owned()),
        Some((text, false)) => query.any = Some(text.to_owned()),
        None => {}
    }
    let seek = wanted.after.map_or(Seek::First, Seek::After);
    let found = stores.user_search.search(domain, &query, SearchPageRequest { seek, limit }).await;
    let found = found.map_err(|error| match error.kind {
        StoreErrorKind::NotFound => wrong(()),
        _ => error.into(),
    })?;
    let next = found.users.last().filter(|_| found.more).map(|user| user.cursor.clone());
    let mut items = Vec::with_capacity(found.users.len());
    for user in &found.users {
        // An account removed in between is not on the page.
        if let Some(account) = stores.accounts.get(user.jid.as_ref()).await? {
            items.push(account_summary_json(&api, &account, &user.shown));
        }
    }
    let total = match (first, search) {
        (false, _) => None,
        (true, None) => Some(stores.accounts.count(domain).await?),
        (true, Some(_)) => Some(stores.user_search.count(domain, &query).await?),
    };
    Ok(page(domain, items, next, total))
}

fn page(domain: &str, items: Vec<Value>, next: Option<String>, total: Option<u64>) -> Response {
    let mut page = json!({ "domain": domain, "items": items, "next": next });
    if let Some(total) = total {
        page["total"] = json!(total);
    }
    axum::Json(page).into_response()
}

fn online(api: &Api, jid: JidRef<'_>) -> usize {
    api.node.routing_table.find(jid).map_or(0, |account| account.sessions().len())
}

fn account_summary_json(api: &Api, account: &AccountRecord, shown: &SearchableProfile) -> Value {
    json!({
        "jid": account.jid.as_str(),
        "name": shown.name,
        "nick": shown.nick,
        "email": shown.email,
        "disabled": account.disabled,
        "created": account.created_at / 1000,
        "sessions": online(api, account.jid.as_ref()),
    })
}

async fn show(State(api): State<Arc<Api>>, AccountJid(jid): AccountJid) -> Result<Response, Problem> {
    Ok(axum::Json(account_json(&api, &jid).await?).into_response())
}

async fn account_json(api: &Api, jid: &Jid) -> Result<Value, Problem> {
    let stores = &api.node.stores;
    let missing = || Problem::not_found(format!("there is no account {jid}"));
    let found = stores.accounts.get(jid.as_ref()).await?.ok_or_else(missing)?;
    let roster = match stores.roster.get(found.id).await {
        Ok(roster) => roster.items,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let waiting = stores.offline.count(found.id).await?;
    let seen = stores.last_seen.get(jid.as_ref()).await?;
    Ok(json!({
        "jid": found.jid.as_str(),
        "disabled": found.disabled,
        "created": found.created_at / 1000,
        "contacts": roster.iter().filter(|item| item.subscription.contains(Subscription::IN_ROSTER)).count(),
        "offline_messages": waiting,
        "last_seen": seen.map(|seen| seen.at),
        "sessions": online(api, jid.as_ref()),
    }))
}

/// Runs a command about an account, on its own domain if that is served.
async fn command(
    api: &Arc<Api>,
    caller: &ApiCaller,
    name: &str,
    jid: &Jid,
    more: &[(&str, String)],
) -> Result<(), Problem> {
    let host = api.node.host(jid.domain());
    let host = host.ok_or_else(|| Problem::not_found(format!("{} is not served here", jid.domain())))?;
    let mut given = RawArguments::default();
    given.add("user", jid.to_string());
    for (key, value) in more {
        given.add(key, value.clone());
    }
    commands::run_by_name(api, &host, caller, name, given).await.map(drop)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewAccount {
    jid: String,
    password: String,
    email: Option<String>,
    given_name: Option<String>,
    surname: Option<String>,
}

async fn add(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    Json(new): Json<NewAccount>,
) -> Result<Response, Problem> {
    let jid = account(&new.jid)?;
    let mut more = vec![("password", new.password)];
    for (key, value) in [("email", new.email), ("given-name", new.given_name), ("surname", new.surname)] {
        more.extend(value.map(|value| (key, value)));
    }
    command(&api, &caller, "add-user", &jid, &more).await?;
    let mut response = (StatusCode::CREATED, axum::Json(account_json(&api, &jid).await?)).into_response();
    if let Ok(location) =
        HeaderValue::from_str(&format!("/api/v1/accounts/{}", sessions::percent_encode_segment(jid.as_str())))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn delete(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    AccountJid(jid): AccountJid,
) -> Result<StatusCode, Problem> {
    command(&api, &caller, "delete-user", &jid, &[]).await?;
    api.auth.sessions.end_all_of(&jid);
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    password: String,
}

async fn set_password(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    AccountJid(jid): AccountJid,
    Json(new): Json<NewPassword>,
) -> Result<StatusCode, Problem> {
    command(&api, &caller, "change-user-password", &jid, &[("password", new.password)]).await?;
    // Anyone who knew the old password must sign in again, including the user who changed it.
    api.auth.sessions.end_all_of(&jid);
    Ok(StatusCode::NO_CONTENT)
}

async fn disable(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    AccountJid(jid): AccountJid,
) -> Result<StatusCode, Problem> {
    command(&api, &caller, "disable-user", &jid, &[]).await?;
    api.auth.sessions.end_all_of(&jid);
    Ok(StatusCode::NO_CONTENT)
}

async fn enable(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    AccountJid(jid): AccountJid,
) -> Result<StatusCode, Problem> {
    command(&api, &caller, "reenable-user", &jid, &[]).await?;
    Ok(StatusCode::NO_CONTENT)
}
