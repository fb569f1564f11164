//! Admin requests: executed on a running node through its socket, or directly on the database.
//!
//! The socket is a Unix socket in the data directory that only its owner may open: that user could read the database
//! as well. One JSON object per line in each direction.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::Secret;
use jid::Jid;
use serde::{Deserialize, Serialize};
use store::{BulkItem, BulkRoster, NewAccount, Page, Stores, Subscription};
use throng_commands::Caller;
use throng_commands::account_admin::{change_password, create_account, remove_account, set_account_disabled};
use throng_commands::audit::record_audit_entry;
use throng_core::{Node, Passwords};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::command_hint::command_hint;
use crate::config::NodeConfig;
use crate::passwords::ScramKeyDeriver;
use crate::reload::RunningNode;

/// Maximum length of a request or response, in bytes.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// Accounts per transaction of a bulk creation.
const ACCOUNTS_PER_TRANSACTION: usize = 5_000;
/// Roster entries of a bulk creation that are in memory; enough for several transactions at the same time.
const ENTRIES_AT_A_TIME: usize = 250_000;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum AdminRequest {
    /// Whether the account exists: true, false, or no status if only the provider of its domain knows.
    Known {
        jid: String,
    },
    Add {
        jid: String,
        password: String,
    },
    Passwd {
        jid: String,
        password: String,
    },
    Remove {
        jid: String,
    },
    List {
        domain: String,
        after: u64,
    },
    Show {
        jid: String,
    },
    Bulk {
        domain: String,
        prefix: String,
        from: u64,
        count: u64,
        password: String,
        ring: u32,
    },
    Status,
    Reload,
    Disable {
        jid: String,
        disabled: bool,
    },
    TokenAdd {
        name: String,
        scopes: Vec<String>,
        /// Days until it expires; never if absent.
        days: Option<u64>,
    },
    TokenList,
    TokenRemove {
        name: String,
    },
    /// All commands of a domain.
    Commands {
        domain: String,
    },
    Command {
        domain: String,
        name: String,
        values: Vec<(String, String)>,
    },
}

/// A response: lines for a person, and a cursor if there is more.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct AdminResponse {
    pub(crate) lines: Vec<String>,
    pub(crate) next: Option<u64>,
    pub(crate) error: Option<String>,
    pub(crate) status: Option<serde_json::Value>,
}

/// Executes requests.
pub(crate) struct AdminHandler {
    pub(crate) stores: Stores,
    /// The served domains, if no node is running.
    pub(crate) domains: Vec<String>,
    /// Those whose accounts a provider keeps, if no node is running.
    pub(crate) provided_domains: Vec<String>,
    pub(crate) keys: Arc<ScramKeyDeriver>,
    /// Tokens of the HTTP API.
    pub(crate) tokens: Arc<api::auth::tokens::ApiTokens>,
    /// The configuration file, for hints.
    pub(crate) config: Option<PathBuf>,
    /// The running node, if there is one.
    pub(crate) running: Option<Arc<RunningNode>>,
}

impl AdminHandler {
    /// Executes one request.
    pub(crate) async fn handle(&self, request: AdminRequest) -> Result<AdminResponse> {
        let noted = audit_entry(&request);
        let result = self.dispatch(request).await;
        if let (Some((what, on)), Some(node)) = (noted, self.node()) {
            let outcome = if result.is_ok() { "done" } else { "failed" };
            record_audit_entry(node, &Caller::operator(), what, &on, outcome);
        }
        result
    }

    async fn dispatch(&self, request: AdminRequest) -> Result<AdminResponse> {
        let one_line = |line: String| Ok(AdminResponse { lines: vec![line], ..AdminResponse::default() });
        match request {
            AdminRequest::Known { jid } => {
                let jid = self.parse_account(&jid)?;
                if self.node_with_provider(jid.domain())?.is_some() {
                    return Ok(AdminResponse::default());
                }
                let found = self.stores.accounts.get(jid.as_ref()).await.map_err(|e| anyhow!("{e}"))?;
                Ok(AdminResponse { status: Some(found.is_some().into()), ..AdminResponse::default() })
            }
            AdminRequest::Add { jid, password } => {
                let jid = self.parse_account(&jid)?;
                if let Some(node) = self.node_with_provider(jid.domain())? {
                    let created = create_account(node, &jid, Secret::from(password)).await;
                    created.map_err(|error| anyhow!("{}", error.into_command_error(&jid)))?;
                    return one_line(format!("{jid} added"));
                }
                let credentials = self.derive_credentials(password).await?;
                match self.stores.accounts.create(&jid, &credentials).await {
                    Ok(_) => one_line(format!("{jid} added")),
                    Err(error) if error.kind == store::StoreErrorKind::AlreadyExists => {
                        let hint = command_hint(self.config.as_deref(), "account passwd", jid.as_str());
                        bail!("{jid} already exists; change its password with: {hint}")
                    }
                    Err(error) => Err(anyhow!("{error}")),
                }
            }
            AdminRequest::Passwd { jid, password } => {
                let jid = self.parse_account(&jid)?;
                if let Some(node) = self.node_with_provider(jid.domain())? {
                    let changed = change_password(node, jid.as_ref(), Secret::from(password)).await;
                    changed.map_err(|error| anyhow!("{}", error.into_command_error(&jid)))?;
                    return one_line(format!("the password of {jid} was changed"));
                }
                let credentials = self.derive_credentials(password).await?;
                let found = self.stores.accounts.set_credentials(jid.as_ref(), &credentials).await;
                if !found.map_err(|e| anyhow!("{e}"))? {
                    return Err(no_such_account(self.config.as_deref(), jid.as_str()));
                }
                one_line(format!("the password of {jid} was changed"))
            }
            AdminRequest::Remove { jid } => {
                let jid = self.parse_account(&jid)?;
                if let Some(node) = self.node_with_provider(jid.domain())? {
                    let removed = remove_account(node, jid.as_ref()).await;
                    removed.map_err(|error| anyhow!("{}", error.into_command_error(&jid)))?;
                    return one_line(format!("{jid} removed"));
                }
                let removed = self.stores.accounts.remove(jid.as_ref()).await.map_err(|e| anyhow!("{e}"))?;
                let Some(removed) = removed else {
                    return Err(no_such_account(self.config.as_deref(), jid.as_str()));
                };
                if let Some(node) = self.node()
                    && let Some(host) = node.host(jid.domain())
                {
                    node.account_removed(&host, jid.as_ref(), removed.contacts);
                }
                one_line(format!("{jid} removed"))
            }
            AdminRequest::List { domain, after } => {
                let page = Page::after(after, 1_000);
                let slice = self.stores.accounts.list(&domain, page).await.map_err(|e| anyhow!("{e}"))?;
                let lines = slice
                    .items
                    .iter()
                    .map(|a| if a.disabled { format!("{} (disabled)", a.jid) } else { a.jid.to_string() });
                Ok(AdminResponse { lines: lines.collect(), next: slice.next, ..AdminResponse::default() })
            }
            AdminRequest::Show { jid } => {
                let jid = self.parse_account(&jid)?;
                let found = self.stores.accounts.get(jid.as_ref()).await.map_err(|e| anyhow!("{e}"))?;
                let Some(found) = found else {
                    return Err(no_such_account(self.config.as_deref(), jid.as_str()));
                };
                self.describe_account(&found).await
            }
            AdminRequest::Bulk { domain, prefix, from, count, password, ring } => {
                let made = self.create_bulk(&domain, &prefix, from, count, password, ring).await?;
                one_line(format!("{made} accounts added, {} already existed", count - made))
            }
            AdminRequest::Disable { jid, disabled } => {
                let jid = self.parse_account(&jid)?;
                let done = match self.node() {
                    Some(node) => set_account_disabled(node, &jid, disabled)
                        .await
                        .map_err(|e| anyhow!("{}", e.into_command_error(&jid))),
                    None => match self.stores.accounts.set_disabled(jid.as_ref(), disabled).await {
                        Ok(true) => Ok(()),
                        Ok(false) => Err(no_such_account(self.config.as_deref(), jid.as_str())),
                        Err(error) => Err(anyhow!("{error}")),
                    },
                };
                done?;
                one_line(format!("{jid} {}", if disabled { "disabled" } else { "enabled" }))
            }
            AdminRequest::TokenAdd { .. } | AdminRequest::TokenList | AdminRequest::TokenRemove { .. } => {
                crate::tokens::run(&self.tokens, request).await
            }
            AdminRequest::Commands { domain } => {
                let Some(node) = self.node() else { bail!("the node is not running") };
                crate::commands::describe(node, &domain)
            }
            AdminRequest::Command { domain, name, values } => {
                let Some(node) = self.node() else { bail!("the node is not running") };
                crate::commands::carry_out(node, &domain, &name, values).await
            }
            AdminRequest::Status => {
                let Some(running) = &self.running else { bail!("the node is not running") };
                running.count_changed_accounts().await;
                Ok(AdminResponse {
                    status: Some(crate::status::status_json(running)),
                    ..AdminResponse::default()
                })
            }
            AdminRequest::Reload => {
                let Some(running) = &self.running else { bail!("the node is not running") };
                let report = running.reload_in_background().await?;
                report.write_to_log();
                Ok(AdminResponse { lines: report.lines(), ..AdminResponse::default() })
            }
        }
    }

    async fn describe_account(&self, found: &store::AccountRecord) -> Result<AdminResponse> {
        let roster = self.stores.roster.get(found.id).await.map_err(|e| anyhow!("{e}"))?;
        let waiting = self.stores.offline.count(found.id).await.map_err(|e| anyhow!("{e}"))?;
        let mut lines = vec![
            format!("address   {}", found.jid),
            format!("created   {}", stanza::payload::datetime::format_utc(found.created_at, false)),
            format!("disabled  {}", if found.disabled { "yes" } else { "no" }),
            format!(
                "contacts  {}",
                roster.items.iter().filter(|i| i.subscription.contains(Subscription::IN_ROSTER)).count()
            ),
            format!("waiting   {waiting} messages"),
        ];
        if let Some(node) = self.node() {
            let online = node.routing_table.find(found.jid.as_ref());
            for session in online.iter().flat_map(|a| a.sessions()) {
                let state = match session.priority() {
                    Some(priority) => format!("available, priority {priority}"),
                    None => "not available".to_owned(),
                };
                lines.push(format!("online    {} ({state})", session.resource()));
            }
        }
        Ok(AdminResponse { lines, ..AdminResponse::default() })
    }

    fn node(&self) -> Option<&Arc<Node>> {
        self.running.as_ref().map(|running| &running.assembled.node)
    }

    /// The running node, if a provider keeps the accounts of the domain.
    ///
    /// # Errors
    /// If no node is running: only a node has providers.
    fn node_with_provider(&self, domain: &str) -> Result<Option<&Arc<Node>>> {
        match self.node() {
            Some(node) => {
                let host = node.host(domain);
                Ok(Some(node).filter(|_| host.is_some_and(|host| host.account_provider().is_some())))
            }
            None if self.provided_domains.iter().any(|provided| provided == domain) => {
                bail!("accounts of {domain} are kept by its account provider; start the node to change them")
            }
            None => Ok(None),
        }
    }

    /// The served domains; a reload may have changed them.
    fn domains(&self) -> Vec<String> {
        match self.node() {
            Some(node) => node.hosts().iter().map(|host| host.domain().to_owned()).collect(),
            None => self.domains.clone(),
        }
    }

    /// Checks that an address can be an account here.
    fn parse_account(&self, text: &str) -> Result<Jid> {
        parse_account(text, &self.domains())
    }

    async fn derive_credentials(&self, password: String) -> Result<Vec<u8>> {
        derive_credentials(&*self.keys, password).await
    }

    async fn create_bulk(
        &self,
        domain: &str,
        prefix: &str,
        from: u64,
        count: u64,
        password: String,
        ring: u32,
    ) -> Result<u64> {
        if u64::from(ring) >= count.max(1) {
            bail!("--roster ring:{ring} requires more than {ring} accounts");
        }
        let domain = self.parse_account(&format!("x@{domain}"))?.domain().to_owned();
        if self.node_with_provider(&domain)?.is_some() {
            bail!("accounts of {domain} are kept by its account provider; create them there");
        }
        let credentials: Arc<[u8]> = self.derive_credentials(password).await?.into();
        let mut ids = Vec::with_capacity(usize::try_from(count)?);
        let mut made = 0;
        let numbers: Vec<u64> =
            (from..from.checked_add(count).context("--from and --count are too large")?).collect();
        for chunk in numbers.chunks(ACCOUNTS_PER_TRANSACTION) {
            let mut accounts = Vec::with_capacity(chunk.len());
            for n in chunk {
                let jid = Jid::from_parts(Some(&format!("{prefix}{n}")), &domain, None)
                    .map_err(|e| anyhow!("\"{prefix}{n}@{domain}\" is not a valid address: {e}"))?;
                accounts.push(NewAccount { jid, credentials: credentials.clone() });
            }
            let created = self.stores.accounts.create_bulk(accounts).await.map_err(|e| anyhow!("{e}"))?;
            made += created.iter().filter(|c| matches!(c, store::CreateOutcome::New(_))).count() as u64;
            ids.extend(created.iter().map(|c| c.id()));
        }
        if ring > 0 {
            let chunk = (ENTRIES_AT_A_TIME / ring as usize).clamp(1, ACCOUNTS_PER_TRANSACTION);
            for start in (0..ids.len()).step_by(chunk) {
                let end = (start + chunk).min(ids.len());
                let rosters = (start..end).map(|i| BulkRoster {
                    owner: ids[i],
                    items: ring_neighbours(i, ids.len(), ring as usize)
                        .into_iter()
                        .map(|j| BulkItem {
                            contact: ids[j],
                            name: None,
                            groups: Vec::new(),
                            subscription: Subscription::BOTH.with(Subscription::IN_ROSTER),
                        })
                        .collect(),
                });
                self.stores.roster.put_bulk(rosters.collect()).await.map_err(|e| anyhow!("{e}"))?;
            }
        }
        Ok(made)
    }
}

/// The audit entry of a request that changes accounts or tokens. Commands write their own.
fn audit_entry(request: &AdminRequest) -> Option<(&'static str, String)> {
    Some(match request {
        AdminRequest::Add { jid, .. } => ("account add", jid.clone()),
        AdminRequest::Passwd { jid, .. } => ("account passwd", jid.clone()),
        AdminRequest::Remove { jid } => ("account remove", jid.clone()),
        AdminRequest::Disable { jid, disabled: true } => ("account disable", jid.clone()),
        AdminRequest::Disable { jid, disabled: false } => ("account enable", jid.clone()),
        AdminRequest::Bulk { domain, prefix, count, .. } => {
            ("account bulk", format!("{count} of {prefix}*@{domain}"))
        }
        AdminRequest::TokenAdd { name, .. } => ("token add", name.clone()),
        AdminRequest::TokenRemove { name } => ("token remove", name.clone()),
        AdminRequest::Reload => ("reload", String::new()),
        _ => return None,
    })
}

/// The `ring` nearest neighbours of `i` in a ring of `n`. Always mutual: for an odd `ring`, the accounts at the next
/// distance are paired block by block, and the few without a partner have one contact less.
fn ring_neighbours(i: usize, n: usize, ring: usize) -> Vec<usize> {
    let half = ring / 2;
    let mut list: Vec<usize> = (1..=half).flat_map(|d| [(i + d) % n, (i + n - d) % n]).collect();
    if ring % 2 == 1 {
        let d = half + 1;
        let partner = if (i / d).is_multiple_of(2) { i + d } else { i - d };
        if partner < n {
            list.push(partner);
        }
    }
    list.sort_unstable();
    list.dedup();
    list.retain(|j| *j != i);
    list
}

/// Derives the stored keys of a password, off the worker threads.
pub(crate) async fn derive_credentials(keys: &dyn Passwords, password: String) -> Result<Vec<u8>> {
    keys.derive(Secret::new(password)).await.map_err(|error| anyhow!("{error}"))
}

/// The error for a missing account.
pub(crate) fn no_such_account(config: Option<&Path>, jid: &str) -> anyhow::Error {
    anyhow!("there is no account {jid}; add it with: {}", command_hint(config, "account add", jid))
}

/// Checks that an address can be an account of these domains.
pub(crate) fn parse_account(text: &str, domains: &[String]) -> Result<Jid> {
    let jid = Jid::parse(text).map_err(|e| anyhow!("\"{text}\" is not a valid address: {e}"))?;
    if jid.local().is_none() || jid.resource().is_some() {
        bail!(
            "\"{text}\" is not the address of an account; write NAME@DOMAIN, such as alice@{}",
            domains.first().map_or("", String::as_str)
        );
    }
    if !domains.iter().any(|d| d == jid.domain()) {
        bail!("{} is not served here; the domains are {}", jid.domain(), domains.join(", "));
    }
    Ok(jid)
}

/// Serves the socket until the listener is dropped.
pub(crate) async fn serve(listener: UnixListener, admin: Arc<AdminHandler>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let admin = admin.clone();
                let task = async move {
                    if let Err(error) = serve_connection(stream, &admin).await {
                        tracing::debug!(%error, "connection to the admin socket failed");
                    }
                };
                tokio::runtime::Handle::current().spawn(task);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections on the admin socket");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// Binds the socket; only its owner may open it.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot create the admin socket {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot set the permissions of the admin socket {}", path.display()))?;
    Ok(listener)
}

async fn serve_connection(stream: UnixStream, admin: &AdminHandler) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read.take(MAX_LINE_BYTES));
    let mut line = String::new();
    while read.read_line(&mut line).await? > 0 {
        let result = match serde_json::from_str::<AdminRequest>(&line) {
            Ok(request) => admin.handle(request).await,
            Err(error) => Err(anyhow!("invalid request: {error}")),
        };
        let answer = result.unwrap_or_else(|error| AdminResponse {
            error: Some(format!("{error:#}")),
            ..AdminResponse::default()
        });
        let mut out = serde_json::to_vec(&answer)?;
        out.push(b'\n');
        write.write_all(&out).await?;
        line.clear();
        read.get_mut().set_limit(MAX_LINE_BYTES);
    }
    Ok(())
}

/// Connects to the node of a configuration, which must be running.
pub(crate) async fn connect_running(config: &NodeConfig) -> Result<UnixStream> {
    let socket = config.socket();
    connect(&socket).await.with_context(|| not_running(&socket, config.path.as_deref()))
}

/// Message that no node is running, and how to start one.
pub(crate) fn not_running(socket: &Path, config: Option<&Path>) -> String {
    let socket = crate::accounts::absolute_path(socket);
    format!("no node is running on {socket}; start one with: {}", command_hint(config, "serve", ""))
}

/// Connects to a running node; `None` if none is running.
pub(crate) async fn connect(path: &Path) -> Option<UnixStream> {
    UnixStream::connect(path).await.ok()
}

/// Sends a request to a running node.
pub(crate) async fn send_request(stream: &mut UnixStream, request: &AdminRequest) -> Result<AdminResponse> {
    let mut out = serde_json::to_vec(request)?;
    out.push(b'\n');
    stream.write_all(&out).await?;
    let mut line = String::new();
    BufReader::new((&mut *stream).take(MAX_LINE_BYTES)).read_line(&mut line).await?;
    let answer: AdminResponse = serde_json::from_str(&line).context("the running node did not respond")?;
    match answer.error {
        Some(error) => Err(anyhow!(error)),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::ring_neighbours;

    #[test]
    fn ring_rosters_are_mutual_and_have_the_requested_size() {
        for (n, ring) in [(10, 3), (100, 50), (7, 2), (1000, 3), (12, 5), (301, 150)] {
            let all: Vec<Vec<usize>> = (0..n).map(|i| ring_neighbours(i, n, ring)).collect();
            for (i, list) in all.iter().enumerate() {
                assert!(list.len() >= ring - ring % 2 && list.len() <= ring + 1, "{i} of {n}: {list:?}");
                for j in list {
                    assert!(all[*j].contains(&i), "{i} and {j} of {n} with {ring}");
                }
            }
        }
    }
}
