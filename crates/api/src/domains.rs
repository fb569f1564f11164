//! `GET /api/v1/domains`: served domains, the number of users of each, and its modules with their options.
//!
//! # Pitfalls
//!
//! Secret options are hidden by their name. A new option that holds a secret must be named accordingly.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use feature_api::feature::{Feature, FeatureOptions, OptionSpec, OptionValue as Option};
use serde_json::{Map, Value, json};
use throng_core::Host;

use crate::auth::TokenScope;
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    vec![
        ApiOperation::new(Method::GET, "/domains", "listDomains", Access::Scoped(TokenScope::Read), domains)
            .summary("Lists the domains of the node with their modules and options.")
            .response(200, ResponseBody::Json("Domains"), "The domains.")
            .problems(&[503]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let (text, flag) = (|| json!({ "type": "string" }), || json!({ "type": "boolean" }));
    let number = || json!({ "type": "integer", "minimum": 0 });
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let spec = json!({
        "type": "object",
        "required": ["name", "title", "version"],
        "properties": { "name": text(), "title": text(), "version": text() },
    });
    let module = json!({
        "type": "object",
        "required": ["name", "summary", "enabled", "default_on", "needs", "specs", "commands", "options"],
        "properties": {
            "name": text(),
            "summary": text(),
            "enabled": flag(),
            "default_on": flag(),
            "needs": texts(),
            "specs": { "type": "array", "items": spec },
            "commands": texts(),
            "options": { "type": "object", "description": "Effective options by name; secrets are \
             redacted." },
        },
    });
    let domain = json!({
        "type": "object",
        "required": ["name", "default", "accounts", "online", "sessions", "modules"],
        "properties": {
            "name": text(),
            "default": { "type": "boolean", "description": "Whether this is the default domain." },
            "accounts": number(),
            "online": { "type": "integer", "minimum": 0, "description": "Accounts with at least one \
             session." },
            "sessions": number(),
            "modules": { "type": "array", "items": module },
        },
    });
    vec![(
        "Domains",
        json!({
            "type": "object",
            "required": ["domains"],
            "properties": { "domains": { "type": "array", "items": domain } },
        }),
    )]
}

async fn domains(State(api): State<Arc<Api>>) -> Result<Json<Value>, Problem> {
    let (node, default) = (&api.node, api.process.default_domain());
    let mut list = Vec::new();
    for host in node.hosts() {
        let domain = host.domain();
        let (mut users, mut sessions) = (0_usize, 0);
        for part in 0..node.routing_table.shard_count() {
            node.routing_table.for_each_in_shard(part, |account| {
                if account.jid.domain() == domain {
                    users += 1;
                    account.for_each_session(|_| sessions += 1);
                }
            });
            // A million of them must not keep this thread from its streams.
            base::spawn::yield_now().await;
        }
        let modules = api.process.modules().iter().map(|feature| module(feature, &host));
        list.push(json!({
            "name": domain,
            "default": domain == default,
            "accounts": node.stores.accounts.count(domain).await?,
            "online": users,
            "sessions": sessions,
            "modules": modules.collect::<Vec<_>>(),
        }));
    }
    Ok(Json(json!({ "domains": list })))
}

fn module(feature: &Feature, host: &Host) -> Value {
    let on = host.features.contains(&feature.name);
    let set = host.options(feature.name);
    let specs: Vec<Value> = feature
        .specs
        .iter()
        .map(|spec| json!({ "name": spec.name, "title": spec.title, "version": spec.version }))
        .collect();
    json!({
        "name": feature.name,
        "summary": feature.summary,
        "enabled": on,
        "default_on": feature.default_on,
        "needs": feature.needs,
        "specs": specs,
        "commands": throng_commands::declared_commands(feature).map(|command| command.name).collect::<Vec<_>>(),
        "options": set.filter(|_| on).map(|set| options(feature, set)).unwrap_or_default(),
    })
}

/// The options that are set.
fn options(feature: &Feature, set: &FeatureOptions) -> Map<String, Value> {
    let value = |spec: &OptionSpec| match &spec.default {
        _ if is_secret(spec.key) => Value::from("…"),
        Option::Bool(_) => set.bool(spec.key).into(),
        Option::Int(_) => set.int(spec.key).into(),
        Option::Text(_) => set.text(spec.key).into(),
        Option::Texts(_) => set.texts(spec.key).into(),
    };
    feature.options.iter().map(|spec| (spec.key.to_owned(), value(spec))).collect()
}

fn is_secret(key: &str) -> bool {
    ["secret", "password", "token", "credential", "proof"].iter().any(|word| key.contains(word))
}
