//! `throng account …`: asks the running node if there is one, and works on the database otherwise.
//!
//! Each command says on standard error which of the two it uses. A database that is not there is an error, for this is the wrong
//! folder or `--config` is missing; only `--create` makes one.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use jid::Jid;
use store_sql::SqlStores;
use tokio::net::UnixStream;

use crate::admin::{self, Admin, Answer, Request};
use crate::cli::Account;
use crate::config::Config;
use crate::hint::hint;
use crate::runtime::{self, Tasks};
use crate::{out, prompt, wire};

/// Carries an account command out.
pub(crate) fn command(command: Account) -> Result<()> {
    let file = command.file().config.clone();
    let config = Config::load(file.as_deref())?;
    runtime::start()?.block_on(run(&config, command))
}

async fn run(config: &Config, command: Account) -> Result<()> {
    let create = matches!(&command, Account::Add { create: true, .. } | Account::Bulk { create: true, .. });
    let way = match admin::connect(&config.socket()).await {
        Some(stream) => {
            out::error(&format!("using the running node, {}", whole(&config.socket())));
            Way::Node(stream)
        }
        None => {
            // Before a database is made for it.
            if let Some(jid) = command.jid() {
                admin::account(jid, &config.hosts)?;
            }
            Way::Database(Stopped::open(config, create).await?)
        }
    };
    let mut way = way;
    let result = carry_out(config, &mut way, command).await;
    if let Way::Database(stopped) = &way {
        stopped.database.close().await;
    }
    result
}

async fn carry_out(config: &Config, way: &mut Way, command: Account) -> Result<()> {
    let mut request = match command {
        Account::Add { jid, password, .. } => {
            // Nobody types a password for nothing.
            if way.knows(&jid).await? {
                let hint = hint(config.path.as_deref(), "account passwd", &jid);
                bail!("{jid} exists already; change its password with: {hint}");
            }
            Request::Add { password: secret(password, &jid)?, jid }
        }
        Account::Passwd { jid, password, .. } => {
            if !way.knows(&jid).await? {
                return Err(admin::missing(config.path.as_deref(), &jid));
            }
            Request::Passwd { password: secret(password, &jid)?, jid }
        }
        Account::Remove { jid, .. } => Request::Remove { jid },
        Account::Disable { jid, .. } => Request::Disable { jid, disabled: true },
        Account::Enable { jid, .. } => Request::Disable { jid, disabled: false },
        Account::Show { jid, .. } => Request::Show { jid },
        Account::List { domain, .. } => {
            Request::List { domain: domain.unwrap_or_else(|| config.domain().to_owned()), after: 0 }
        }
        Account::Bulk { domain, prefix, from, count, password, roster, .. } => {
            let domain = domain.unwrap_or_else(|| config.domain().to_owned());
            let ring = match roster.as_deref() {
                None => 0,
                Some(form) => form.strip_prefix("ring:").and_then(|r| r.parse().ok()).with_context(|| {
                    format!("--roster \"{form}\" is not of the form ring:R, such as ring:50")
                })?,
            };
            way.knows(&format!("{prefix}{from}@{domain}")).await?;
            let password = secret(password, "the accounts")?;
            Request::Bulk { domain, prefix, from, count, password, ring }
        }
    };
    loop {
        // What the next page is asked with; all other requests are asked once.
        let next = match &request {
            Request::List { domain, .. } => Some(domain.clone()),
            _ => None,
        };
        let answer = way.ask(request).await?;
        answer.lines.iter().for_each(|line| out::line(line));
        match (next, answer.next) {
            (Some(domain), Some(after)) => request = Request::List { domain, after },
            _ => return Ok(()),
        }
    }
}

/// The password from the command line, or as it is typed.
fn secret(given: Option<String>, whose: &str) -> Result<String> {
    given.map_or_else(|| prompt::password(whose), Ok)
}

/// Who carries requests out.
enum Way {
    Node(UnixStream),
    Database(Stopped),
}

impl Way {
    async fn ask(&mut self, request: Request) -> Result<Answer> {
        match self {
            Way::Node(stream) => admin::ask(stream, &request).await,
            Way::Database(stopped) => stopped.admin.run(request).await,
        }
    }

    /// Whether there is such an account; an error if there cannot be one.
    async fn knows(&mut self, jid: &str) -> Result<bool> {
        let answer = self.ask(Request::Known { jid: jid.to_owned() }).await?;
        Ok(answer.status == Some(serde_json::Value::Bool(true)))
    }
}

/// The database of a node that is not running.
pub(crate) struct Stopped {
    pub(crate) admin: Admin,
    pub(crate) database: Arc<SqlStores>,
}

impl Stopped {
    /// Opens it, and says which it is.
    pub(crate) async fn open(config: &Config, create: bool) -> Result<Stopped> {
        let file = whole(&store_sql::file(&config.storage_url).map_err(|error| anyhow::anyhow!("{error}"))?);
        if create {
            std::fs::create_dir_all(&config.data_dir)
                .with_context(|| format!("the directory {} cannot be made", config.data_dir.display()))?;
        } else if !Path::new(&file).exists() {
            bail!(
                "no node is running here and there is no database {file}; use the folder and the --config of the node. \
                 A new database is made by {} or by the option --create of account add and account bulk",
                hint(config.path.as_deref(), "serve", "")
            );
        }
        out::error(&format!("no node is running; using the database {file}"));
        let tasks = Tasks(tokio::runtime::Handle::current());
        let database = wire::open_database(config, &tasks, create).await?;
        let admin = Admin {
            stores: database.stores(),
            domains: config.hosts.clone(),
            keys: crate::passwords::Keys::new(config.scram_iterations),
            tokens: Arc::new(api::auth::tokens::Tokens::new(database.stores().settings)),
            config: config.path.clone(),
            running: None,
        };
        Ok(Stopped { admin, database })
    }
}

/// A path that says where it is, whatever the working directory.
pub(crate) fn whole(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Where administrators of the configuration have no account.
pub(crate) async fn without_account(config: &Config, stores: &store::Stores) -> Vec<Jid> {
    let mut missing = Vec::new();
    for jid in config.admins.iter().filter_map(|admin| Jid::parse(admin).ok()) {
        let served = config.hosts.iter().any(|domain| domain == jid.domain());
        if served && matches!(stores.accounts.show(jid.as_ref()).await, Ok(None)) {
            missing.push(jid);
        }
    }
    missing
}
