//! `throng reload` and SIGHUP: a running node takes over what has changed in its configuration.
//!
//! All or nothing: the file is read, certificates are loaded and hosts are built first; only when all of that went well is
//! anything swapped, and from there on nothing can fail. What holds from when:
//!
//! - at once, for everybody: log level, limits, administrators, the gate, modules and their options (hosts get
//!   successors, see `throng_core::host`; what features keep outlives them, see `throng_core::kept`), domains;
//! - for new connections: certificates, logins, policies of listeners, the size of stanzas;
//! - for new requests: everything in `[http]`;
//! - after a restart: what [`restart`] lists. It is said, and the node goes on with what it has.
//!
//! Left out: listeners that come and go. The trap: the configuration that is kept is the one in effect, not the one in the
//! file, or the second reload would not say again what waits for a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use base::clock::Millis;
use net::{Gate, GateLimits, PortSlot};
use parking_lot::{Mutex, RwLock};
use streams::Service;
use throng_core::{Host, Hosts};

use crate::config::{Config, Listen, changed_limits};
use crate::disk::Disk;
use crate::logs::Level;
use crate::status::Vitals;
use crate::web::Web;
use crate::wire::{self, Wired};

type Certificates = Option<Arc<net::tls::Config>>;

/// What is swapped, and under which configuration it was made.
struct State {
    config: Config,
    tls: Certificates,
}

/// A listener, seen from a reload.
pub(crate) struct Door {
    pub(crate) listen: Listen,
    pub(crate) port: PortSlot,
    pub(crate) gate: Gate,
    service: RwLock<Arc<Service>>,
    proxied: AtomicBool,
}

impl Door {
    /// What connections share that come now.
    pub(crate) fn service(&self) -> Arc<Service> {
        self.service.read().clone()
    }

    /// Whether connections that come now begin with a PROXY header.
    pub(crate) fn is_proxied(&self) -> bool {
        self.proxied.load(Ordering::Relaxed)
    }
}

/// A running node that can take over another configuration.
pub(crate) struct Running {
    path: Option<PathBuf>,
    pub(crate) wired: Wired,
    pub(crate) gate: Gate,
    /// Listeners for XMPP.
    pub(crate) doors: Vec<Arc<Door>>,
    /// Listeners for HTTP.
    pub(crate) http_doors: Vec<Arc<Door>>,
    pub(crate) web: Arc<Web>,
    pub(crate) vitals: Vitals,
    pub(crate) disk: Arc<Disk>,
    /// It takes clients.
    pub(crate) ready: AtomicBool,
    /// Accounts by domain, as they were last counted.
    accounts: Mutex<BTreeMap<String, u64>>,
    /// How they were counted.
    counted: Mutex<Counted>,
    level: Level,
    state: Mutex<State>,
}

/// When accounts were counted last.
#[derive(Default)]
struct Counted {
    /// [`Running::account_changes`] then.
    changes: Option<u64>,
    /// They are not counted again before.
    next: Millis,
}

/// What a reload did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) applied: Vec<String>,
    pub(crate) restart: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Report {
    /// Into the log.
    pub(crate) fn log(&self) {
        for what in &self.applied {
            tracing::info!(what, "reloaded");
        }
        for what in &self.restart {
            tracing::warn!(what, "needs a restart");
        }
        for what in &self.warnings {
            tracing::warn!(what, "after the reload");
        }
    }

    /// As lines for a person.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.applied.iter().map(|what| format!("applied: {what}")).collect();
        if lines.is_empty() {
            lines.push("nothing to apply".to_owned());
        }
        lines.extend(self.restart.iter().map(|what| format!("needs a restart: {what}")));
        lines.extend(self.warnings.iter().map(|what| format!("warning: {what}")));
        lines
    }
}

impl Running {
    /// Puts together what reloads work on. `ports` are those of `config.listen`.
    pub(crate) fn new(
        path: Option<PathBuf>,
        config: Config,
        wired: Wired,
        tls: Certificates,
        ports: Vec<(Listen, PortSlot, Gate)>,
        web: Arc<Web>,
        level: Level,
    ) -> Running {
        let door = |(listen, port, gate): (Listen, PortSlot, Gate)| {
            let service = RwLock::new(wired.service(&config, &listen, tls.clone()));
            let proxied = AtomicBool::new(listen.proxy_protocol);
            Arc::new(Door { listen, port, gate, service, proxied })
        };
        let doors = ports.into_iter().map(door);
        let (http_doors, doors) = doors.partition(|door| door.listen.is_http());
        let state = Mutex::new(State { config, tls });
        let gate = web.gate.clone();
        let (vitals, ready) = (Vitals::default(), AtomicBool::new(false));
        let disk = Arc::new(Disk::new(wired.database.path()));
        Running {
            path,
            wired,
            gate,
            doors,
            http_doors,
            web,
            vitals,
            disk,
            ready,
            accounts: Mutex::default(),
            counted: Mutex::default(),
            level,
            state,
        }
    }

    /// The last lines of the log.
    pub(crate) fn log(&self) -> &Arc<api::log::Ring> {
        &self.level.ring
    }

    /// Accounts by domain, as they were last counted.
    pub(crate) fn accounts(&self) -> BTreeMap<String, u64> {
        self.accounts.lock().clone()
    }

    /// Counts the accounts again if there may be more or fewer. A count takes a twentieth of the time at most, for a million
    /// accounts take a moment.
    pub(crate) async fn count_changed_accounts(&self) {
        let now = self.wired.node.clock.now();
        let changes = self.account_changes();
        let same_domains = self.accounts.lock().len() == self.wired.node.hosts().len();
        {
            let counted = self.counted.lock();
            if same_domains && (counted.changes == Some(changes) || now < counted.next) {
                return;
            }
        }
        self.count_accounts().await;
        let took = self.wired.node.clock.now().since(now);
        *self.counted.lock() = Counted { changes: Some(changes), next: now.plus(took.saturating_mul(20)) };
    }

    /// Operations that make accounts or remove them, since the start.
    fn account_changes(&self) -> u64 {
        let all = self.wired.operations.all().iter();
        let those = all
            .filter(|one| ["accounts.create", "accounts.create_bulk", "accounts.remove"].contains(&one.name));
        those.map(|one| one.time.snapshot().count()).sum()
    }

    /// The certificates that are presented; none without TLS, and while a reload is under way.
    pub(crate) fn shown_certificates(&self) -> Vec<net::tls::Shown> {
        let tls = self.state.try_lock().and_then(|state| state.tls.clone());
        tls.map_or_else(Vec::new, |tls| tls.certificates())
    }

    /// Counts the accounts of each domain again; a domain that cannot be counted is left out.
    pub(crate) async fn count_accounts(&self) {
        let mut counted = BTreeMap::new();
        for host in self.wired.node.hosts() {
            if let Ok(count) = self.wired.node.stores.accounts.count(host.domain()).await {
                counted.insert(host.domain().to_owned(), count);
            }
        }
        *self.accounts.lock() = counted;
    }

    /// Seconds since 1970 at which the first certificate expires; 0 without TLS, and while a reload is under way.
    pub(crate) fn not_after(&self) -> u64 {
        let tls = self.state.try_lock().and_then(|state| state.tls.clone());
        tls.map_or(0, |tls| tls.not_after())
    }

    /// Names and end of each certificate, as [`Running::not_after`]; the first to expire first.
    pub(crate) fn certificates_in_use(&self) -> Vec<(Vec<String>, u64)> {
        let tls = self.state.try_lock().and_then(|state| state.tls.clone());
        tls.map_or_else(Vec::new, |tls| tls.validity())
    }

    /// The domain of those who name none; nothing while a reload is under way.
    pub(crate) fn default_domain(&self) -> String {
        self.state.try_lock().map_or_else(String::new, |state| state.config.domain().to_owned())
    }

    /// Reads certificates again if their files changed. Blocks.
    pub(crate) fn refresh_certificates(&self) -> net::tls::Reload {
        let tls = self.state.lock().tls.clone();
        tls.map_or(net::tls::Reload::Unchanged, |tls| tls.reload())
    }

    /// Takes over the configuration as it is now. Blocks.
    ///
    /// # Errors
    /// Everything that is wrong; nothing was changed then.
    pub(crate) fn reload(&self) -> Result<Report> {
        let mut state = self.state.lock();
        let file = Config::load(self.path.as_deref())?;
        let mut report = Report { restart: restart(&state.config, &file), ..Report::default() };
        let new = in_effect(&state.config, file);
        let old = &state.config;

        // What may fail.
        let filter = crate::logs::filter(&new.log.level)?;
        let (hosts, rebuilt) = self.hosts(old, &new)?;
        let tls = self.certificates(old, &new, state.tls.as_ref(), &mut report)?;
        let admins = new.admins.iter().filter_map(|admin| jid::Jid::parse(admin).ok());

        // What cannot.
        let node = &self.wired.node;
        if old.log.level != new.log.level {
            self.level.set(filter);
            report.applied.push(format!("log level {}", new.log.level));
        }
        if old.limits != new.limits {
            node.set_limits(new.limits.clone());
            self.gate.set_limits(wire::gate_limits(&new.limits));
            report.applied.push(format!("limits: {}", changed_limits(&old.limits, &new.limits).join(", ")));
        }
        if old.admins != new.admins {
            node.set_admins(admins);
            report.applied.push(format!("administrators {}", new.admins.join(", ")));
        }
        self.wired.keys.set_iterations(new.scram_iterations);
        logins(old, &new, &mut report);
        if old.http != new.http {
            self.web.change(&new.http);
            self.wired.node.gather.set_delay(new.http.presence_delay);
            self.http_doors.iter().for_each(|door| door.gate.set_limits(http_gate(&new)));
            report.applied.push("[http]".to_owned());
        }
        for door in self.doors.iter().chain(&self.http_doors) {
            let now = new.listen.iter().find(|l| same(l, &door.listen)).unwrap_or(&door.listen);
            let before = old.listen.iter().find(|l| same(l, now));
            if before != Some(now) {
                report.applied.push(format!("[[listen]] {} {}", now.kind.name(), now.address));
            }
            door.port.change(|port| wire::port_limits(port, &new.limits));
            door.proxied.store(now.proxy_protocol, Ordering::Relaxed);
            *door.service.write() = self.wired.service(&new, now, tls.clone());
        }
        let ended = node.set_hosts(hosts);
        domains(old, &new, &rebuilt, ended, &mut report);
        *state = State { config: new, tls };
        Ok(report)
    }

    /// Hosts for the new configuration, and the domains whose modules changed. A host stays if nothing of it did.
    fn hosts(&self, old: &Config, new: &Config) -> Result<(Hosts, Vec<String>)> {
        let mut hosts = Hosts::new();
        let mut rebuilt = Vec::new();
        for domain in &new.hosts {
            let modules = new.modules_of(domain);
            let known = self.wired.node.host(domain);
            let same_modules = modules == old.modules_of(domain);
            if known.is_some() && !same_modules {
                rebuilt.push(domain.clone());
            }
            let host = match known {
                Some(host) if same_modules && old.limits == new.limits => host,
                _ => {
                    let enabled = features::registry::enable(&modules).map_err(|e| anyhow!("{e}"))?;
                    Arc::new(Host::build_with(domain, &enabled, &new.limits, &self.wired.kept)?)
                }
            };
            hosts.insert(domain.clone(), host);
        }
        Ok((hosts, rebuilt))
    }

    /// Certificates for the new configuration: what is loaded, read again if files changed, unless other files are wanted.
    fn certificates(
        &self,
        old: &Config,
        new: &Config,
        loaded: Option<&Arc<net::tls::Config>>,
        report: &mut Report,
    ) -> Result<Certificates> {
        let same = old.tls == new.tls && old.hosts == new.hosts;
        let tls = match loaded {
            Some(tls) if same => {
                match tls.reload() {
                    net::tls::Reload::Kept(reason) => bail!("[tls] {reason}"),
                    net::tls::Reload::Reloaded => report.applied.push("certificates".to_owned()),
                    net::tls::Reload::Unchanged => {}
                }
                Some(tls.clone())
            }
            _ => {
                let tls = wire::tls(new)?;
                if tls.is_some() {
                    report.applied.push("certificates".to_owned());
                }
                tls
            }
        };
        let uncovered = tls.iter().flat_map(|tls| tls.uncovered());
        report.warnings.extend(uncovered.map(|domain| format!("no certificate is good for {domain}")));
        Ok(tls)
    }

    /// Carries a reload out away from the worker threads.
    ///
    /// # Errors
    /// As [`Running::reload`].
    pub(crate) async fn reload_later(self: &Arc<Self>) -> Result<Report> {
        let running = self.clone();
        let work = tokio::task::spawn_blocking(move || running.reload());
        let report = work.await.context("the reload broke off; nothing more is known")??;
        self.settle_admins().await;
        Ok(report)
    }

    /// A list of administrators that a command made counts until the configuration has another one.
    async fn settle_admins(&self) {
        let configured: Vec<jid::Jid> =
            self.state.lock().config.admins.iter().filter_map(|a| jid::Jid::parse(a).ok()).collect();
        let node = &self.wired.node;
        match features::administration::admins::settle(&*node.stores.settings, &configured).await {
            Ok(admins) => {
                node.set_admins(admins);
                node.set_configured_admins(configured);
            }
            Err(error) => tracing::warn!(%error, "the list of administrators could not be read"),
        }
    }
}

/// What the gate of an HTTP listener lets in. Each has its own.
pub(crate) fn http_gate(config: &Config) -> GateLimits {
    GateLimits {
        connections: config.http.connections,
        per_address: config.http.connections_per_address,
        ..wire::gate_limits(&config.limits)
    }
}

fn same(a: &Listen, b: &Listen) -> bool {
    (a.kind, a.address) == (b.kind, b.address)
}

/// What has changed and needs a restart, one by one.
fn restart(old: &Config, file: &Config) -> Vec<String> {
    let mut list = Vec::new();
    let mut note = |changed: bool, what: &str| {
        if changed {
            list.push(what.to_owned());
        }
    };
    note(old.data_dir != file.data_dir, "data_dir");
    note(old.storage_url != file.storage_url, "[storage] url");
    note(old.pool_size != file.pool_size, "[storage] pool_size");
    note(old.log.json != file.log.json, "[log] format");
    for listen in &file.listen {
        let known = old.listen.iter().any(|l| same(l, listen));
        note(!known, &format!("[[listen]] {} {} is new", listen.kind.name(), listen.address));
    }
    for listen in &old.listen {
        let kept = file.listen.iter().any(|l| same(l, listen));
        note(!kept, &format!("[[listen]] {} {} is gone", listen.kind.name(), listen.address));
    }
    list
}

/// The file, with what is running where only a restart could change it.
fn in_effect(old: &Config, file: Config) -> Config {
    let mut listen = old.listen.clone();
    for one in &mut listen {
        if let Some(now) = file.listen.iter().find(|l| same(l, one)) {
            *one = now.clone();
        }
    }
    // An address that is new is not listened at, so it decides nothing.
    let mut log = file.log.clone();
    log.json = old.log.json;
    Config {
        data_dir: old.data_dir.clone(),
        storage_url: old.storage_url.clone(),
        pool_size: old.pool_size,
        listen,
        log,
        ..file
    }
}

fn logins(old: &Config, new: &Config, report: &mut Report) {
    if old.scram_iterations != new.scram_iterations {
        report.applied.push(format!("{} iterations for new passwords", new.scram_iterations));
    }
    if old.auth != new.auth {
        report.applied.push("logins of all domains".to_owned());
    }
    for domain in &new.hosts {
        let of = |config: &Config| config.host.get(domain).map_or(config.auth, |own| own.auth);
        if of(old) != of(new) && old.auth == new.auth {
            report.applied.push(format!("logins of {domain}"));
        }
    }
}

fn domains(old: &Config, new: &Config, rebuilt: &[String], ended: usize, report: &mut Report) {
    let names = |config: &Config| config.hosts.iter().cloned().collect::<BTreeSet<_>>();
    let (before, after) = (names(old), names(new));
    report.applied.extend(after.difference(&before).map(|domain| format!("domain {domain} is served")));
    for domain in before.difference(&after) {
        report.applied.push(format!("domain {domain} is gone"));
    }
    if ended > 0 {
        report.applied.push(format!("{ended} sessions of domains that are gone were ended"));
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

/// `throng reload`: asks the running node and says what it did.
pub(crate) fn command(config: Option<&std::path::Path>) -> Result<()> {
    // Only the place of the socket is needed, and the file may be wrong: that is for the node to say.
    let socket =
        Config::load(config).map_or_else(|_| Config::socket_of(config), |config| Ok(config.socket()))?;
    crate::runtime::start()?.block_on(async {
        let stream = crate::admin::connect(&socket).await;
        let mut stream = stream.with_context(|| crate::admin::not_running(&socket, config))?;
        let asked = crate::admin::ask(&mut stream, &crate::admin::Request::Reload).await;
        let answer = asked.context("nothing was changed")?;
        for line in answer.lines {
            crate::out::line(&line);
        }
        Ok(())
    })
}
