//! `throng token …`: tokens for programs that use the HTTP API. Sent to the running node if there is one, which
//! caches the list in memory; otherwise run on the database.

use anyhow::{Result, anyhow, bail};
use api::auth::tokens::{ApiToken, ApiTokens};
use api::auth::{Scopes, TokenScope};
use base::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::accounts::OfflineDatabase;
use crate::admin::{self, AdminRequest, AdminResponse};
use crate::cli::TokenCommand as Command;
use crate::config::NodeConfig;
use crate::{output, runtime};

/// Seconds per day.
const SECONDS_PER_DAY: u64 = 86_400;

/// Runs a token command.
pub(crate) fn command(command: Command) -> Result<()> {
    let (file, request, as_json) = match command {
        Command::Add { file, name, scopes, days, json } => {
            // Rejected here already, so that the message can list the valid scopes.
            parse_scopes(&scopes)?;
            let days = if days == 0 { None } else { Some(days) };
            (file.config, AdminRequest::TokenAdd { name, scopes, days }, json)
        }
        Command::List { file, json } => (file.config, AdminRequest::TokenList, json),
        Command::Remove { file, name } => (file.config, AdminRequest::TokenRemove { name }, false),
    };
    let config = NodeConfig::load(file.as_deref())?;
    let answer = runtime::start()?.block_on(send(&config, request))?;
    match answer.status.filter(|_| as_json) {
        Some(value) => output::line(&value.to_string()),
        None => answer.lines.iter().for_each(|line| output::line(line)),
    }
    Ok(())
}

async fn send(config: &NodeConfig, request: AdminRequest) -> Result<AdminResponse> {
    if let Some(mut stream) = admin::connect(&config.socket()).await {
        return admin::send_request(&mut stream, &request).await;
    }
    let stopped = OfflineDatabase::open(config, false).await?;
    let result = run(&stopped.admin.tokens, request).await;
    stopped.databases.close().await;
    result
}

fn parse_scopes(names: &[String]) -> Result<Scopes> {
    let scopes = Scopes::parse(names.iter().map(String::as_str));
    scopes.map_err(|name| {
        let all = TokenScope::ALL.map(TokenScope::as_str).join(", ");
        anyhow!("unknown scope \"{name}\"; the scopes are {all}")
    })
}

/// Executes a request about tokens.
pub(crate) async fn run(tokens: &ApiTokens, request: AdminRequest) -> Result<AdminResponse> {
    let now = SystemClock::new().unix_millis() / 1000;
    match request {
        AdminRequest::TokenAdd { name, scopes, days } => {
            let expires = days.map(|days| now.saturating_add(days.saturating_mul(SECONDS_PER_DAY)));
            let made = tokens.add(&name, parse_scopes(&scopes)?, now, expires).await;
            let (secret, token) = made.map_err(|error| anyhow!("{error}"))?;
            let mut value = token_json(&token);
            value["token"] = json!(secret);
            Ok(AdminResponse { lines: vec![secret], status: Some(value), ..AdminResponse::default() })
        }
        AdminRequest::TokenList => {
            let list = tokens.list().await.map_err(|error| anyhow!("{error}"))?;
            let lines = list.iter().map(|token| token_line(token, now)).collect();
            let status = Value::Array(list.iter().map(token_json).collect());
            Ok(AdminResponse { lines, status: Some(status), ..AdminResponse::default() })
        }
        AdminRequest::TokenRemove { name } => {
            tokens.remove(&name).await.map_err(|error| anyhow!("{error}"))?;
            Ok(AdminResponse {
                lines: vec![format!("the token {name} was removed")],
                ..AdminResponse::default()
            })
        }
        _ => bail!("this is not a request about tokens"),
    }
}

fn token_json(token: &ApiToken) -> Value {
    json!({
        "name": token.name,
        "scopes": token.scopes.names(),
        "created": token.created,
        "expires": token.expires,
    })
}

fn token_line(token: &ApiToken, now: u64) -> String {
    let day = |seconds: u64| stanza::payload::datetime::format_utc(seconds.saturating_mul(1000), false);
    let end = match token.expires {
        None => "never expires".to_owned(),
        Some(end) if end <= now => format!("expired {}", day(end)),
        Some(end) => format!("expires {}", day(end)),
    };
    format!("{:<24}{:<40}{end}", token.name, token.scopes.names().join(","))
}
