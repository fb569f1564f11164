//! `throng account …`: account commands, sent to the running node if there is one, otherwise run on the database.
//!
//! Each command reports on standard error which of the two it uses. A missing database is an error, since the working
//! directory is probably wrong or `--config` is missing; only `--create` creates one.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use jid::Jid;
use tokio::net::UnixStream;

use crate::admin::{self, AdminHandler, AdminRequest, AdminResponse};
use crate::assemble::NodeDatabases;
use crate::cli::AccountCommand;
use crate::command_hint::command_hint;
use crate::config::NodeConfig;
use crate::runtime::{self, TokioSpawner};
use crate::{assemble, output, prompt};

/// Runs an account command.
pub(crate) fn command(command: AccountCommand) -> Result<()> {
    let file = command.file().config.clone();
    let config = NodeConfig::load(file.as_deref())?;
    runtime::start()?.block_on(run(&config, command))
}

async fn run(config: &NodeConfig, command: AccountCommand) -> Result<()> {
    let create = matches!(
        &command,
        AccountCommand::Add { create: true, .. } | AccountCommand::Bulk { create: true, .. }
    );
    let way = match admin::connect(&config.socket()).await {
        Some(stream) => {
            output::error(&format!("using the running node, {}", absolute_path(&config.socket())));
            AdminChannel::Node(stream)
        }
        None => {
            // Before a database is created for it.
            if let Some(jid) = command.jid() {
                admin::parse_account(jid, &config.hosts)?;
            }
            AdminChannel::Database(Box::new(OfflineDatabase::open(config, create).await?))
        }
    };
    let mut way = way;
    let result = run_command(config, &mut way, command).await;
    if let AdminChannel::Database(stopped) = &way {
        stopped.databases.close().await;
    }
    result
}

async fn run_command(config: &NodeConfig, way: &mut AdminChannel, command: AccountCommand) -> Result<()> {
    let mut request = match command {
        AccountCommand::Add { jid, password, .. } => {
            // Fail before prompting for a password.
            if way.account_exists(&jid).await? == Some(true) {
                let hint = command_hint(config.path.as_deref(), "account passwd", &jid);
                bail!("{jid} already exists; change its password with: {hint}");
            }
            AdminRequest::Add { password: password_or_prompt(password, &jid)?, jid }
        }
        AccountCommand::Passwd { jid, password, .. } => {
            if way.account_exists(&jid).await? == Some(false) {
                return Err(admin::no_such_account(config.path.as_deref(), &jid));
            }
            AdminRequest::Passwd { password: password_or_prompt(password, &jid)?, jid }
        }
        AccountCommand::Remove { jid, .. } => AdminRequest::Remove { jid },
        AccountCommand::Disable { jid, .. } => AdminRequest::Disable { jid, disabled: true },
        AccountCommand::Enable { jid, .. } => AdminRequest::Disable { jid, disabled: false },
        AccountCommand::Show { jid, .. } => AdminRequest::Show { jid },
        AccountCommand::List { domain, .. } => {
            AdminRequest::List { domain: domain.unwrap_or_else(|| config.domain().to_owned()), after: 0 }
        }
        AccountCommand::Bulk { domain, prefix, from, count, password, roster, .. } => {
            let domain = domain.unwrap_or_else(|| config.domain().to_owned());
            let ring = match roster.as_deref() {
                None => 0,
                Some(form) => form.strip_prefix("ring:").and_then(|r| r.parse().ok()).with_context(|| {
                    format!("--roster \"{form}\" is not valid; write ring:R, such as ring:50")
                })?,
            };
            way.account_exists(&format!("{prefix}{from}@{domain}")).await?;
            let password = password_or_prompt(password, "the accounts")?;
            AdminRequest::Bulk { domain, prefix, from, count, password, ring }
        }
    };
    loop {
        // The domain of a listing, which continues page by page; all other requests are sent once.
        let next = match &request {
            AdminRequest::List { domain, .. } => Some(domain.clone()),
            _ => None,
        };
        let answer = way.send(request).await?;
        answer.lines.iter().for_each(|line| output::line(line));
        match (next, answer.next) {
            (Some(domain), Some(after)) => request = AdminRequest::List { domain, after },
            _ => return Ok(()),
        }
    }
}

/// The password from the command line, or prompted for.
fn password_or_prompt(given: Option<String>, whose: &str) -> Result<String> {
    given.map_or_else(|| prompt::password(whose), Ok)
}

/// Where requests are executed.
enum AdminChannel {
    Node(UnixStream),
    Database(Box<OfflineDatabase>),
}

impl AdminChannel {
    async fn send(&mut self, request: AdminRequest) -> Result<AdminResponse> {
        match self {
            AdminChannel::Node(stream) => admin::send_request(stream, &request).await,
            AdminChannel::Database(stopped) => stopped.admin.handle(request).await,
        }
    }

    /// Whether the account exists, `None` if only the provider of its domain knows; an error if the address cannot be an account.
    async fn account_exists(&mut self, jid: &str) -> Result<Option<bool>> {
        let response = self.send(AdminRequest::Known { jid: jid.to_owned() }).await?;
        Ok(response.status.and_then(|status| status.as_bool()))
    }
}

/// Direct access to the database of a node that is not running.
pub(crate) struct OfflineDatabase {
    pub(crate) admin: AdminHandler,
    pub(crate) databases: NodeDatabases,
}

impl OfflineDatabase {
    /// Opens the database, and reports its path.
    pub(crate) async fn open(config: &NodeConfig, create: bool) -> Result<OfflineDatabase> {
        let file =
            store_sql::database_path(&config.storage_url).map_err(|error| anyhow::anyhow!("{error}"))?;
        let Some(file) = file else { return OfflineDatabase::open_server(config, create).await };
        let file = absolute_path(&file);
        if create {
            std::fs::create_dir_all(&config.data_dir)
                .with_context(|| format!("cannot create the directory {}", config.data_dir.display()))?;
        } else if !Path::new(&file).exists() {
            bail!(
                "no node is running here and the database {file} does not exist; use the folder and the \
                 --config of the node. To create a database, run {} or add --create to account add, account bulk or import",
                command_hint(config.path.as_deref(), "serve", "")
            );
        }
        output::error(&format!("no node is running; using the database {file}"));
        OfflineDatabase::open_found(config, create).await
    }

    /// Opens a database on a server. Other nodes may use it at the same time.
    async fn open_server(config: &NodeConfig, create: bool) -> Result<OfflineDatabase> {
        let shown =
            store_sql::database_name(&config.storage_url).map_err(|error| anyhow::anyhow!("{error}"))?;
        output::error(&format!("no node is running here; using {shown}"));
        OfflineDatabase::open_found(config, create).await
    }

    async fn open_found(config: &NodeConfig, create: bool) -> Result<OfflineDatabase> {
        let tasks = TokioSpawner::new(tokio::runtime::Handle::current());
        let databases = assemble::open_databases(config, &tasks, create).await?;
        let stores = databases.stores();
        let admin = AdminHandler {
            stores: stores.clone(),
            domains: config.hosts.clone(),
            provided_domains: config.provided_domains(),
            keys: crate::passwords::ScramKeyDeriver::new(config.scram_iterations, tasks.handle.clone()),
            tokens: Arc::new(api::auth::tokens::ApiTokens::new(
                stores.server_kv,
                Arc::new(base::SystemClock::new()),
            )),
            config: config.path.clone(),
            running: None,
        };
        Ok(OfflineDatabase { admin, databases })
    }
}

/// An absolute path, independent of the working directory.
pub(crate) fn absolute_path(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Configured administrators without an account.
pub(crate) async fn admins_without_account(config: &NodeConfig, stores: &store::Stores) -> Vec<Jid> {
    let mut missing = Vec::new();
    for jid in config.admins.iter().filter_map(|admin| Jid::parse(admin).ok()) {
        let served = config.hosts.iter().any(|domain| domain == jid.domain());
        if served && matches!(stores.accounts.get(jid.as_ref()).await, Ok(None)) {
            missing.push(jid);
        }
    }
    missing
}
