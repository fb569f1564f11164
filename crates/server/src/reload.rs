//! `throng reload` and SIGHUP: reload of a running node's configuration.
//!
//! All or nothing: the file is read, certificates are loaded and hosts are built first; only when all of that
//! succeeded is anything swapped, and from there on nothing can fail. Changes take effect:
//!
//! - immediately, for all clients: log level, limits, administrators, connection limits, modules and their options
//!   (hosts are replaced, see `throng_core::domains`; shared feature state outlives them, see
//!   `feature_api::feature_state`), domains;
//! - for new connections: certificates, logins, policies of listeners, the size of stanzas;
//! - for new requests: everything in `[http]`;
//! - after a restart: the changes listed by [`changes_that_need_a_restart`]. They are reported, and the node
//!   continues with the running values.
//!
//! Not implemented: adding and removing listeners.
//!
//! # Pitfalls
//!
//! The stored configuration is the effective one, not the one in the file, or the second reload would not report
//! again what needs a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use base::clock::Millis;
use base::lock::{LeafMutex, LeafRwLock, RankedMutex, rank};
use net::{ConnectionLimiter, ConnectionLimits, ListenerConfigCell};
use streams::C2sContext;
use throng_core::Hosts;

use crate::assemble::{self, AssembledNode};
use crate::config::{ListenConfig, NodeConfig, changed_limits};
use crate::disk::DiskMonitor;
use crate::logs::LogHandle;
use crate::service_listeners::ServiceListeners;
use crate::status::LagMonitor;
use crate::web::HttpFrontend;

type OptionalTls = Option<Arc<net::tls::TlsConfig>>;

/// The configuration in effect, and the TLS configuration made from it.
struct ActiveConfig {
    config: NodeConfig,
    tls: OptionalTls,
}

/// A listener's reloadable state.
pub(crate) struct ListenerState {
    pub(crate) listen: ListenConfig,
    pub(crate) listener_config: ListenerConfigCell,
    pub(crate) limiter: ConnectionLimiter,
    service: LeafRwLock<Arc<C2sContext>>,
    proxied: AtomicBool,
}

impl ListenerState {
    /// Context for new connections.
    pub(crate) fn service(&self) -> Arc<C2sContext> {
        self.service.read().clone()
    }

    /// Whether new connections begin with a PROXY header.
    pub(crate) fn is_proxied(&self) -> bool {
        self.proxied.load(Ordering::Relaxed)
    }
}

/// A running node that can be reloaded.
pub(crate) struct RunningNode {
    path: Option<PathBuf>,
    pub(crate) assembled: AssembledNode,
    pub(crate) xmpp_limiter: ConnectionLimiter,
    /// XMPP listeners.
    pub(crate) xmpp_listeners: Vec<Arc<ListenerState>>,
    /// HTTP listeners.
    pub(crate) http_listeners: Vec<Arc<ListenerState>>,
    pub(crate) web: Arc<HttpFrontend>,
    pub(crate) services: ServiceListeners,
    pub(crate) lag: LagMonitor,
    pub(crate) disk: Arc<DiskMonitor>,
    /// Whether it accepts clients.
    pub(crate) ready: AtomicBool,
    /// Accounts by domain, as last counted.
    accounts: LeafMutex<BTreeMap<String, u64>>,
    /// State of the account count.
    account_count_state: LeafMutex<AccountCountState>,
    log_handle: LogHandle,
    active: RankedMutex<ActiveConfig, { rank::CONFIGURATION }>,
}

/// State of the account count.
#[derive(Default)]
struct AccountCountState {
    /// [`RunningNode::account_change_count`] at the last count.
    account_changes: Option<u64>,
    /// Earliest time of the next count.
    not_before: Millis,
}

/// Result of a reload.
#[derive(Debug, Default)]
pub(crate) struct ReloadReport {
    pub(crate) applied: Vec<String>,
    pub(crate) restart: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl ReloadReport {
    /// Writes the report to the log.
    pub(crate) fn write_to_log(&self) {
        for what in &self.applied {
            tracing::info!(what, "reloaded");
        }
        for what in &self.restart {
            tracing::warn!(what, "requires a restart");
        }
        for what in &self.warnings {
            tracing::warn!(what, "warning after the reload");
        }
    }

    /// The report as lines for a person.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.applied.iter().map(|what| format!("applied: {what}")).collect();
        if lines.is_empty() {
            lines.push("nothing to apply".to_owned());
        }
        lines.extend(self.restart.iter().map(|what| format!("requires a restart: {what}")));
        lines.extend(self.warnings.iter().map(|what| format!("warning: {what}")));
        lines
    }
}

impl RunningNode {
    /// Creates the reloadable node. `ports` are those of `config.listen`.
    pub(crate) fn new(
        path: Option<PathBuf>,
        config: NodeConfig,
        assembled: AssembledNode,
        tls: OptionalTls,
        ports: Vec<(ListenConfig, ListenerConfigCell, ConnectionLimiter)>,
        (web, services): (Arc<HttpFrontend>, ServiceListeners),
        level: LogHandle,
    ) -> RunningNode {
        let build_state = |(listen, port, limiter): (ListenConfig, ListenerConfigCell, ConnectionLimiter)| {
            let service = LeafRwLock::new(assembled.service(&config, &listen, tls.clone()));
            let proxied = AtomicBool::new(listen.proxy_protocol);
            Arc::new(ListenerState { listen, listener_config: port, limiter, service, proxied })
        };
        let listeners = ports.into_iter().map(build_state);
        let (http_listeners, listeners) = listeners.partition(|listener| listener.listen.is_http());
        let state = RankedMutex::new(ActiveConfig { config, tls });
        let limiter = web.xmpp_limiter.clone();
        let (lag, ready) = (LagMonitor::default(), AtomicBool::new(false));
        let disk = Arc::new(DiskMonitor::new(assembled.databases.data.path()));
        RunningNode {
            path,
            assembled,
            xmpp_limiter: limiter,
            xmpp_listeners: listeners,
            http_listeners,
            web,
            services,
            lag,
            disk,
            ready,
            accounts: LeafMutex::default(),
            account_count_state: LeafMutex::default(),
            log_handle: level,
            active: state,
        }
    }

    /// The buffer of the last log lines.
    pub(crate) fn log_buffer(&self) -> &Arc<api::log::LogBuffer> {
        &self.log_handle.ring
    }

    /// Accounts by domain, as last counted.
    pub(crate) fn accounts(&self) -> BTreeMap<String, u64> {
        self.accounts.lock().clone()
    }

    /// Counts the accounts again if their number may have changed. Counting uses at most a twentieth of the time,
    /// since a million accounts take a moment.
    pub(crate) async fn count_changed_accounts(&self) {
        let now = self.assembled.node.clock.now();
        let changes = self.account_change_count();
        let counted_domains = self.accounts.lock().len();
        let same_domains = counted_domains == self.assembled.node.hosts().len();
        {
            let counted = self.account_count_state.lock();
            if same_domains && (counted.account_changes == Some(changes) || now < counted.not_before) {
                return;
            }
        }
        self.count_accounts().await;
        let took = self.assembled.node.clock.now().since(now);
        *self.account_count_state.lock() = AccountCountState {
            account_changes: Some(changes),
            not_before: now.plus(took.saturating_mul(20)),
        };
    }

    /// Operations since the start that created or removed accounts.
    fn account_change_count(&self) -> u64 {
        let all = self.assembled.store_metrics.all().iter();
        let those = all
            .filter(|one| ["accounts.create", "accounts.create_bulk", "accounts.remove"].contains(&one.name));
        those.map(|one| one.latency.snapshot().count()).sum()
    }

    /// The certificates presented; none without TLS, and during a reload.
    pub(crate) fn shown_certificates(&self) -> Vec<net::tls::CertificateSummary> {
        let tls = self.active.try_lock().and_then(|state| state.tls.clone());
        tls.map_or_else(Vec::new, |tls| tls.certificates())
    }

    /// Counts the accounts of each domain again; a domain that cannot be counted is omitted.
    pub(crate) async fn count_accounts(&self) {
        let mut counted = BTreeMap::new();
        for host in self.assembled.node.hosts() {
            if let Ok(count) = self.assembled.node.stores.accounts.count(host.domain()).await {
                counted.insert(host.domain().to_owned(), count);
            }
        }
        *self.accounts.lock() = counted;
    }

    /// Seconds since 1970 at which the first certificate expires; 0 without TLS, and during a reload.
    pub(crate) fn first_certificate_expiry(&self) -> u64 {
        let tls = self.active.try_lock().and_then(|state| state.tls.clone());
        tls.map_or(0, |tls| tls.not_after())
    }

    /// Names and expiry of each certificate, as [`RunningNode::first_certificate_expiry`]; the first to expire first.
    pub(crate) fn certificates_in_use(&self) -> Vec<(Vec<String>, u64)> {
        let tls = self.active.try_lock().and_then(|state| state.tls.clone());
        tls.map_or_else(Vec::new, |tls| tls.certificate_expiries())
    }

    /// The default domain; empty during a reload.
    pub(crate) fn default_domain(&self) -> String {
        self.active.try_lock().map_or_else(String::new, |state| state.config.domain().to_owned())
    }

    /// Reloads certificates if their files changed. Blocks.
    pub(crate) fn refresh_certificates(&self) -> net::tls::TlsReloadOutcome {
        let tls = self.active.lock().tls.clone();
        tls.map_or(net::tls::TlsReloadOutcome::Unchanged, |tls| tls.reload())
    }

    /// Reloads the configuration. Blocks.
    ///
    /// # Errors
    /// Everything that is wrong; nothing was changed then.
    pub(crate) fn reload(&self) -> Result<ReloadReport> {
        let mut state = self.active.lock();
        let file = NodeConfig::load(self.path.as_deref())?;
        let mut report = ReloadReport {
            restart: changes_that_need_a_restart(&state.config, &file),
            ..ReloadReport::default()
        };
        let new = effective_config(&state.config, file);
        let old = &state.config;

        // Steps that may fail.
        let filter = crate::logs::filter(&new.log.level)?;
        let (hosts, rebuilt) = self.hosts(old, &new, &mut report)?;
        let tls = self.certificates(old, &new, state.tls.as_ref(), &mut report)?;
        let admins = new.admins.iter().filter_map(|admin| jid::Jid::parse(admin).ok());

        // Steps that cannot fail.
        let node = &self.assembled.node;
        if old.log.level != new.log.level {
            self.log_handle.set(filter);
            report.applied.push(format!("log level {}", new.log.level));
        }
        if old.limits != new.limits {
            node.set_limits(new.limits.clone());
            self.xmpp_limiter.set_limits(assemble::connection_limits(&new.limits));
            report.applied.push(format!("limits: {}", changed_limits(&old.limits, &new.limits).join(", ")));
        }
        if old.admins != new.admins {
            node.set_admins(admins);
            report.applied.push(format!("administrators {}", new.admins.join(", ")));
        }
        self.assembled.keys.set_iterations(new.scram_iterations);
        report_login_changes(old, &new, &mut report);
        if old.http != new.http || old.limits != new.limits {
            self.http_listeners
                .iter()
                .for_each(|listener_state| listener_state.limiter.set_limits(http_connection_limits(&new)));
        }
        if old.http != new.http {
            self.web.reconfigure(&new.http);
            self.assembled.node.presence_batcher.set_delay(new.http.presence_delay);
            report.applied.push("[http]".to_owned());
        }
        for listener_state in self.xmpp_listeners.iter().chain(&self.http_listeners) {
            let now = new
                .listen
                .iter()
                .find(|l| is_same_listener(l, &listener_state.listen))
                .unwrap_or(&listener_state.listen);
            let before = old.listen.iter().find(|l| is_same_listener(l, now));
            if before != Some(now) {
                report.applied.push(format!("[[listen]] {} {}", now.kind.name(), now.address));
            }
            listener_state.listener_config.update(|port| streams::set_stanza_limits(port, &new.limits));
            listener_state.proxied.store(now.proxy_protocol, Ordering::Relaxed);
            *listener_state.service.write() = self.assembled.service(&new, now, tls.clone());
        }
        let ended = node.set_hosts(hosts);
        self.assembled.providers.retain(&node.hosts());
        self.services.configure(&node.hosts(), &new);
        report.warnings.extend(crate::config_warnings::warnings(&new));
        report_domain_changes(old, &new, &rebuilt, ended, &mut report);
        *state = ActiveConfig { config: new, tls };
        Ok(report)
    }

    /// Hosts for the new configuration, and the domains whose modules changed. An unchanged host is retained.
    fn hosts(
        &self,
        old: &NodeConfig,
        new: &NodeConfig,
        report: &mut ReloadReport,
    ) -> Result<(Hosts, Vec<String>)> {
        let mut hosts = Hosts::new();
        let mut rebuilt = Vec::new();
        for domain in &new.hosts {
            let modules = new.modules_of(domain);
            let known = self.assembled.node.host(domain);
            let same_modules = modules == old.modules_of(domain);
            // Another one also if only the content of its files is different.
            let provider = self.assembled.providers.of(new, domain)?.map(|shared| shared.0);
            let current = known.as_ref().and_then(|host| host.account_provider());
            let same_provider = match (current, &provider) {
                (Some(current), Some(provider)) => Arc::ptr_eq(current, provider),
                (None, None) => true,
                _ => false,
            };
            if known.is_some() && !same_provider {
                report.applied.push(format!("account provider of {domain}"));
            }
            if known.is_some() && !same_modules {
                rebuilt.push(domain.clone());
            }
            let host = match known {
                Some(host) if same_modules && same_provider && old.limits == new.limits => host,
                _ => {
                    let enabled = features::registry::enable(&modules).map_err(|e| anyhow!("{e}"))?;
                    let assembled = &self.assembled;
                    let (state, providers) = (&assembled.feature_state, &assembled.providers);
                    Arc::new(assemble::build_host(new, domain, &enabled, state, providers)?)
                }
            };
            hosts.insert(domain.clone(), host);
        }
        feature_api::service::check_service_addresses(&hosts)?;
        Ok((hosts, rebuilt))
    }

    /// Certificates for the new configuration: the loaded ones, refreshed if files changed, unless other files or
    /// domains are configured.
    fn certificates(
        &self,
        old: &NodeConfig,
        new: &NodeConfig,
        loaded: Option<&Arc<net::tls::TlsConfig>>,
        report: &mut ReloadReport,
    ) -> Result<OptionalTls> {
        let same = old.tls == new.tls && old.hosts == new.hosts;
        let tls = match loaded {
            Some(tls) if same => {
                match tls.reload() {
                    net::tls::TlsReloadOutcome::Rejected(reason) => bail!("[tls] {reason}"),
                    net::tls::TlsReloadOutcome::Reloaded => report.applied.push("certificates".to_owned()),
                    net::tls::TlsReloadOutcome::Unchanged => {}
                }
                Some(tls.clone())
            }
            _ => {
                let tls = assemble::load_tls(new)?;
                if tls.is_some() {
                    report.applied.push("certificates".to_owned());
                }
                tls
            }
        };
        let uncovered = tls.iter().flat_map(|tls| tls.uncovered_domains());
        report.warnings.extend(uncovered.map(|domain| format!("no certificate is valid for {domain}")));
        Ok(tls)
    }

    /// Reloads off the worker threads.
    ///
    /// # Errors
    /// As [`RunningNode::reload`].
    pub(crate) async fn reload_in_background(self: &Arc<Self>) -> Result<ReloadReport> {
        let running = self.clone();
        let work = tokio::task::spawn_blocking(move || running.reload());
        let report = work
            .await
            .context("the connection to the node was lost during the reload; its result is unknown")??;
        self.resolve_admins().await;
        Ok(report)
    }

    /// A list of administrators set by a command remains in effect until the configuration changes its own.
    async fn resolve_admins(&self) {
        let configured: Vec<jid::Jid> =
            self.active.lock().config.admins.iter().filter_map(|a| jid::Jid::parse(a).ok()).collect();
        let node = &self.assembled.node;
        match features::administration::admins::effective_admins(&*node.stores.server_kv, &configured).await {
            Ok(admins) => {
                node.set_admins(admins);
                node.set_configured_admins(configured);
            }
            Err(error) => tracing::warn!(%error, "cannot read the list of administrators"),
        }
    }
}

/// Connection limits of an HTTP listener. Each has its own.
pub(crate) fn http_connection_limits(config: &NodeConfig) -> ConnectionLimits {
    let limits = assemble::connection_limits(&config.limits);
    // Clients of a proxy on this machine are no local clients.
    let local_proxy = config.http.settings.proxies.trusted.contains_loopback();
    ConnectionLimits {
        connections: config.http.connections,
        per_address: config.http.connections_per_address,
        accept_rate_on_loopback: limits.accept_rate_on_loopback || local_proxy,
        ..limits
    }
}

fn is_same_listener(a: &ListenConfig, b: &ListenConfig) -> bool {
    (a.kind, a.address) == (b.kind, b.address)
}

/// The changes that need a restart.
fn changes_that_need_a_restart(old: &NodeConfig, file: &NodeConfig) -> Vec<String> {
    let mut list = Vec::new();
    let mut note = |changed: bool, what: &str| {
        if changed {
            list.push(what.to_owned());
        }
    };
    note(old.data_dir != file.data_dir, "data_dir");
    note(old.storage_url != file.storage_url, "[storage] url");
    note(old.storage_password_file != file.storage_password_file, "[storage] password_file");
    note(old.pool_size != file.pool_size, "[storage] pool_size");
    note(old.storage_writers != file.storage_writers, "[storage] writers");
    note(old.auth_database != file.auth_database, "[auth] url or password_file");
    note(old.cluster != file.cluster, "[cluster]");
    let kept = |config: &NodeConfig| (config.storage_min_connections, config.storage_idle_seconds);
    note(kept(old) != kept(file), "[storage] min_connections or idle_timeout_seconds");
    note(old.log.json != file.log.json, "[log] format");
    for listen in &file.listen {
        let was_listed = old.listen.iter().any(|l| is_same_listener(l, listen));
        note(!was_listed, &format!("[[listen]] {} {} was added", listen.kind.name(), listen.address));
    }
    for listen in &old.listen {
        let still_listed = file.listen.iter().any(|l| is_same_listener(l, listen));
        note(!still_listed, &format!("[[listen]] {} {} was removed", listen.kind.name(), listen.address));
    }
    list
}

/// The file's configuration, with the running values where a change needs a restart.
fn effective_config(old: &NodeConfig, file: NodeConfig) -> NodeConfig {
    let mut listen = old.listen.clone();
    for one in &mut listen {
        if let Some(now) = file.listen.iter().find(|l| is_same_listener(l, one)) {
            *one = now.clone();
        }
    }
    // A new address is not listened on before a restart, so it is ignored here.
    let mut log = file.log.clone();
    log.json = old.log.json;
    NodeConfig {
        data_dir: old.data_dir.clone(),
        storage_url: old.storage_url.clone(),
        storage_password_file: old.storage_password_file.clone(),
        auth_database: old.auth_database.clone(),
        cluster: old.cluster.clone(),
        storage_writers: old.storage_writers,
        storage_min_connections: old.storage_min_connections,
        storage_idle_seconds: old.storage_idle_seconds,
        pool_size: old.pool_size,
        listen,
        log,
        ..file
    }
}

fn report_login_changes(old: &NodeConfig, new: &NodeConfig, report: &mut ReloadReport) {
    if old.scram_iterations != new.scram_iterations {
        report.applied.push(format!("SCRAM iterations for new passwords: {}", new.scram_iterations));
    }
    if old.auth != new.auth {
        report.applied.push("authentication of all domains".to_owned());
    }
    for domain in &new.hosts {
        let of = |config: &NodeConfig| config.host.get(domain).map_or(config.auth, |own| own.auth);
        if of(old) != of(new) && old.auth == new.auth {
            report.applied.push(format!("authentication of {domain}"));
        }
    }
}

fn report_domain_changes(
    old: &NodeConfig,
    new: &NodeConfig,
    rebuilt: &[String],
    ended: usize,
    report: &mut ReloadReport,
) {
    let names = |config: &NodeConfig| config.hosts.iter().cloned().collect::<BTreeSet<_>>();
    let (before, after) = (names(old), names(new));
    report.applied.extend(after.difference(&before).map(|domain| format!("domain {domain} was added")));
    for domain in before.difference(&after) {
        report.applied.push(format!("domain {domain} was removed"));
    }
    if ended > 0 {
        report.applied.push(format!("{ended} sessions of removed domains were ended"));
    }
    if old.domain() != new.domain() {
        report.applied.push(format!("default domain {}", new.domain()));
    }
    for domain in rebuilt {
        let (old, new) = (old.modules_of(domain), new.modules_of(domain));
        let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed: Vec<&str> =
            all.into_iter().filter(|name| old.get(*name) != new.get(*name)).map(String::as_str).collect();
        report.applied.push(format!("modules of {domain}: {}", changed.join(", ")));
    }
}

/// `throng reload`: requests a reload from the running node and prints the report.
pub(crate) fn command(config: Option<&std::path::Path>) -> Result<()> {
    // Only the path of the socket is needed, and the file may be invalid: the node reports that.
    let socket = NodeConfig::load(config)
        .map_or_else(|_| NodeConfig::socket_of(config), |config| Ok(config.socket()))?;
    crate::runtime::start()?.block_on(async {
        let stream = crate::admin::connect(&socket).await;
        let mut stream = stream.with_context(|| crate::admin::not_running(&socket, config))?;
        let response = crate::admin::send_request(&mut stream, &crate::admin::AdminRequest::Reload).await;
        let answer = response.context("nothing was changed")?;
        for line in answer.lines {
            crate::output::line(&line);
        }
        Ok(())
    })
}
