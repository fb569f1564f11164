//! `throng token …`: tokens for programs that use the HTTP API. Asks the running node if there is one, which has the list in
//! memory, and works on the database otherwise.

use anyhow::{Result, anyhow, bail};
use api::auth::tokens::{Token, Tokens};
use api::auth::{Scope, Scopes};
use base::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::accounts::Stopped;
use crate::admin::{self, Answer, Request};
use crate::cli::Token as Command;
use crate::config::Config;
use crate::{out, runtime};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Carries a token command out.
pub(crate) fn command(command: Command) -> Result<()> {
    let (file, request, as_json) = match command {
        Command::Add { file, name, scopes, days, json } => {
            // Refused here already, so that the mend can name what there is.
            read(&scopes)?;
            let days = if days == 0 { None } else { Some(days) };
            (file.config, Request::TokenAdd { name, scopes, days }, json)
        }
        Command::List { file, json } => (file.config, Request::TokenList, json),
        Command::Remove { file, name } => (file.config, Request::TokenRemove { name }, false),
    };
    let config = Config::load(file.as_deref())?;
    let answer = runtime::start()?.block_on(ask(&config, request))?;
    match answer.status.filter(|_| as_json) {
        Some(value) => out::line(&value.to_string()),
        None => answer.lines.iter().for_each(|line| out::line(line)),
    }
    Ok(())
}

async fn ask(config: &Config, request: Request) -> Result<Answer> {
    if let Some(mut stream) = admin::connect(&config.socket()).await {
        return admin::ask(&mut stream, &request).await;
    }
    let stopped = Stopped::open(config, false).await?;
    let result = run(&stopped.admin.tokens, request).await;
    stopped.database.close().await;
    result
}

fn read(names: &[String]) -> Result<Scopes> {
    let scopes = Scopes::read(names.iter().map(String::as_str));
    scopes.map_err(|name| {
        let all = Scope::ALL.map(Scope::as_str).join(", ");
        anyhow!("there is no scope \"{name}\"; the scopes are {all}")
    })
}

/// Carries a request about tokens out.
pub(crate) async fn run(tokens: &Tokens, request: Request) -> Result<Answer> {
    let now = SystemClock::new().unix_millis() / 1000;
    match request {
        Request::TokenAdd { name, scopes, days } => {
            let expires = days.map(|days| now.saturating_add(days.saturating_mul(DAY)));
            let made = tokens.add(&name, read(&scopes)?, now, expires).await;
            let (secret, token) = made.map_err(|error| anyhow!("{error}"))?;
            let mut value = data(&token);
            value["token"] = json!(secret);
            Ok(Answer { lines: vec![secret], status: Some(value), ..Answer::default() })
        }
        Request::TokenList => {
            let list = tokens.list().await.map_err(|error| anyhow!("{error}"))?;
            let lines = list.iter().map(|token| line(token, now)).collect();
            let status = Value::Array(list.iter().map(data).collect());
            Ok(Answer { lines, status: Some(status), ..Answer::default() })
        }
        Request::TokenRemove { name } => {
            tokens.remove(&name).await.map_err(|error| anyhow!("{error}"))?;
            Ok(Answer { lines: vec![format!("the token {name} is of no use any more")], ..Answer::default() })
        }
        _ => bail!("this is not about tokens"),
    }
}

fn data(token: &Token) -> Value {
    json!({
        "name": token.name,
        "scopes": token.scopes.names(),
        "created": token.created,
        "expires": token.expires,
    })
}

fn line(token: &Token, now: u64) -> String {
    let day = |seconds: u64| stanza::payload::time::utc(seconds.saturating_mul(1000), false);
    let end = match token.expires {
        None => "never expires".to_owned(),
        Some(end) if end <= now => format!("expired {}", day(end)),
        Some(end) => format!("expires {}", day(end)),
    };
    format!("{:<24}{:<40}{end}", token.name, token.scopes.names().join(","))
}
