//! `throng account …`: asks the running node if there is one, and works on the database otherwise.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::admin::{self, Admin, Answer, Request};
use crate::cli::Account;
use crate::config::Config;
use crate::runtime::{self, Tasks};
use crate::{out, wire};

/// Carries an account command out.
pub(crate) fn command(command: Account) -> Result<()> {
    let (file, request): (Option<PathBuf>, Request) = match command {
        Account::Add { file, jid, password } => {
            (file.config, Request::Add { password: secret(password, &jid)?, jid })
        }
        Account::Passwd { file, jid, password } => {
            (file.config, Request::Passwd { password: secret(password, &jid)?, jid })
        }
        Account::Remove { file, jid } => (file.config, Request::Remove { jid }),
        Account::Disable { file, jid } => (file.config, Request::Disable { jid, disabled: true }),
        Account::Enable { file, jid } => (file.config, Request::Disable { jid, disabled: false }),
        Account::Show { file, jid } => (file.config, Request::Show { jid }),
        Account::List { file, domain } => {
            let default = Config::load(file.config.as_deref())?.domain().to_owned();
            (file.config, Request::List { domain: domain.unwrap_or(default), after: 0 })
        }
        Account::Bulk { file, domain, prefix, from, count, password, roster } => {
            let default = Config::load(file.config.as_deref())?.domain().to_owned();
            let ring = match roster.as_deref() {
                None => 0,
                Some(form) => form.strip_prefix("ring:").and_then(|r| r.parse().ok()).with_context(|| {
                    format!("--roster \"{form}\" is not of the form ring:R, such as ring:50")
                })?,
            };
            let password = secret(password, "the accounts")?;
            (
                file.config,
                Request::Bulk { domain: domain.unwrap_or(default), prefix, from, count, password, ring },
            )
        }
    };
    let config = Config::load(file.as_deref())?;
    runtime::start()?.block_on(run(&config, request))
}

async fn run(config: &Config, mut request: Request) -> Result<()> {
    if let Some(mut stream) = admin::connect(&config.socket()).await {
        loop {
            let answer = admin::ask(&mut stream, &request).await?;
            match show(answer, &mut request) {
                true => continue,
                false => return Ok(()),
            }
        }
    }
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("the directory {} cannot be made", config.data_dir.display()))?;
    let tasks = Tasks(tokio::runtime::Handle::current());
    let database = wire::open_database(config, &tasks).await?;
    let admin = Admin {
        stores: database.stores(),
        domains: config.domains.clone(),
        keys: crate::passwords::Keys::new(config.iterations),
        tokens: Arc::new(api::auth::tokens::Tokens::new(database.stores().settings)),
        running: None,
    };
    let result = loop {
        let again = match &request {
            Request::List { domain, after } => Request::List { domain: domain.clone(), after: *after },
            _ => Request::Status,
        };
        match admin.run(std::mem::replace(&mut request, again)).await {
            Ok(answer) => {
                if !show(answer, &mut request) {
                    break Ok(());
                }
            }
            Err(error) => break Err(error),
        }
    };
    database.close().await;
    result
}

/// Prints an answer; true if there is another page, for which the request is then set.
fn show(answer: Answer, request: &mut Request) -> bool {
    for line in answer.lines {
        out::line(&line);
    }
    match (answer.next, request) {
        (Some(next), Request::List { after, .. }) => {
            *after = next;
            true
        }
        _ => false,
    }
}

/// The password from the command line or from standard input.
fn secret(given: Option<String>, whose: &str) -> Result<String> {
    if let Some(password) = given {
        return Ok(password);
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        out::error(&format!("password for {whose} (it is shown while you type):"));
    }
    let mut line = String::new();
    stdin.lock().read_line(&mut line).context("the password cannot be read from standard input")?;
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        bail!("no password was given; write one line to standard input");
    }
    Ok(password)
}
