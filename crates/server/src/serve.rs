//! `throng serve`: the life of a node from startup to exit.
//!
//! SIGHUP reloads (see `reload`). SIGTERM and SIGINT stop: listeners close, streams end with `system-shutdown`, other nodes are sent what
//! is due, pending writes are flushed to the disk, and the process exits with 0 within ten seconds. The command `drain` ends the
//! streams at a rate before that. The service manager is notified when the node is ready and when it stops.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use access::session_log::write_delayed_lines;
use anyhow::{Context, Result, anyhow, bail};
use net::{AcceptRate, ConnectionLimiter, ConnectionPermit, Listener, ListenerKind, RemoteRole, Stream};
use stanza::{StreamCondition, StreamError};
use streams::C2sConnection;
use throng_commands::shutdown::{ShutdownKind, check_shutdown, wait_for_shutdown};
use throng_core::Node;
use throng_core::public_url::SharedPublicUrl;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::admin::{self, AdminHandler};
use crate::api_process::ApiProcess;
use crate::assemble::{self, AssembledNode};
use crate::command_hint::command_hint;
use crate::config::NodeConfig;
use crate::reload::{self, ListenerState, RunningNode};
use crate::runtime::{self, TokioSpawner};
use crate::service_listeners::{self, ServiceListeners};
use crate::service_manager::ServiceManager;
use crate::web::{self, HttpFrontend, HttpListenerHandler};
use crate::{config_warnings, logs, output, overview_history, status};

/// Maximum time to hand rooms over to other nodes.
const ROOMS_TIMEOUT: Duration = Duration::from_secs(2);

/// Time after the beginning of a stop at which streams must have ended. The whole stop takes less than 10 s.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(6);

/// Time after the beginning of a stop at which what is due for other nodes must have been sent.
const DUE_ITEMS_TIMEOUT: Duration = Duration::from_millis(6_500);

/// Time between two attempts to send what is due for other nodes.
const DUE_ITEMS_TICK: Duration = Duration::from_millis(20);

/// Attempts without progress, one second, after which other nodes are not waited for: one of them may be gone.
const STALLED_ATTEMPTS: u32 = 50;

/// Maximum time for leaving the cluster and removing this node's record: more than the leave takes if a node does not answer, because the
/// others would take this one for killed.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(cluster_nats::LEAVE_MILLIS + 800);

/// Runs a node until it is stopped.
pub(crate) fn serve(path: Option<&Path>) -> Result<()> {
    let config = NodeConfig::load(path)?;
    let level = logs::start(&config.log)?;
    let runtime = runtime::start()?;
    let result = runtime.block_on(run(path, config, level));
    // Remaining tasks have had their time.
    runtime.shutdown_timeout(Duration::from_millis(500));
    match result? {
        ShutdownKind::Stop | ShutdownKind::Drain(_) => Ok(()),
        ShutdownKind::Restart => restart_process(),
    }
}

/// Replaces the process by the same command.
fn restart_process() -> Result<()> {
    use std::os::unix::process::CommandExt;
    let program =
        std::env::current_exe().context("cannot determine the path of the program for the restart")?;
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(error).context("cannot restart the program")
}

async fn run(path: Option<&Path>, config: NodeConfig, level: logs::LogHandle) -> Result<ShutdownKind> {
    let tasks = TokioSpawner::new(tokio::runtime::Handle::current());
    let mut terminate = signal(SignalKind::terminate()).context("cannot install the signal handlers")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot install the signal handlers")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot install the signal handlers")?;
    let socket = config.socket();
    if admin::connect(&socket).await.is_some() {
        bail!("another node is using {}; stop it or use another data_dir", config.data_dir.display());
    }
    let assembled = Box::pin(assemble::assemble(&config, &tasks)).await?;
    let tls = assemble::load_tls(&config)?;
    let notes = StartupNotes {
        password: create_first_administrator(&config, &assembled).await?,
        admins_without_account: crate::accounts::admins_without_account(&config, &assembled.node.stores)
            .await,
        certificates: tls.as_ref().map_or_else(Vec::new, |tls| tls.certificates()),
    };

    let accept_rate = AcceptRate::new(assembled.node.clock.clone());
    let limiter =
        ConnectionLimiter::with_accept_rate(assemble::connection_limits(&config.limits), accept_rate.clone());
    let (mut listener_lines, mut listeners, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    let services = ServiceListeners::start(&assembled.node, &config);
    let mut bound_services = Vec::new();
    for listen in &config.listen {
        if let Some(listener) = services.bind(listen)? {
            let local = listener.config().local_address;
            listener_lines.push(listener_line(listen.kind, local));
            tracing::info!(kind = listen.kind.name(), address = %local, "listening");
            bound_services.push(listener);
            continue;
        }
        // Operators must get in on one listener when clients have exhausted another.
        let limiter = if listen.is_http() {
            ConnectionLimiter::with_accept_rate(reload::http_connection_limits(&config), accept_rate.clone())
        } else {
            limiter.clone()
        };
        let listener = Listener::bind(listen.kind, listen.address, limiter.clone(), |port| {
            streams::set_stanza_limits(port, &config.limits);
        })?;
        let local = listener.config().local_address;
        listener_lines.push(listener_line(listen.kind, local));
        tracing::info!(kind = listen.kind.name(), address = %local, "listening");
        ports.push((listen.clone(), listener.config_cell(), limiter));
        listeners.push(listener);
    }
    assembled.node.presence_batcher.set_delay(config.http.presence_delay);
    config_warnings::warnings(&config).iter().for_each(|warning| tracing::warn!("{warning}"));
    let web =
        HttpFrontend::new(&config.http, assembled.node.clock.clone(), limiter.clone(), tasks.handle.clone());
    streams::connect_bosh_sessions(&assembled.node, &web.bosh);
    streams::take_offered_sessions(&assembled.node);
    assembled.node.extensions.insert::<SharedPublicUrl>(web.clone());
    let banner = startup_banner(&config, &listener_lines, &notes);
    let saved = overview_history::history_path(&config.data_dir);
    let admin_stores = assembled.node.stores.clone();
    let running = Arc::new(RunningNode::new(
        path.map(Into::into),
        config,
        assembled,
        tls,
        ports,
        (web.clone(), services),
        level,
    ));
    let node = running.assembled.node.clone();
    crate::metrics::register(&running);
    let pages = Arc::new(ApiProcess { running: running.clone() });
    let api = api::Api::new(node.clone(), pages);
    overview_history::read(&saved, &api);
    web.set_listeners(running.http_listeners.clone(), api::router(api.clone()));
    let tokens = api.tokens.clone();
    let mut accepting: Vec<(bool, JoinHandle<()>)> = bound_services
        .into_iter()
        .filter_map(|listener| running.services.accept(listener, &tasks.handle))
        .map(|task| (false, task))
        .collect();
    for listener in listeners {
        let local = listener.config().local_address;
        let all = running.xmpp_listeners.iter().chain(&running.http_listeners);
        if let Some(listener_state) =
            all.into_iter().find(|listener_state| listener_state.listener_config.get().local_address == local)
        {
            let task = tasks.handle.spawn(accept_loop(listener, listener_state.clone(), web.clone()));
            accepting.push((listener_state.listen.is_http(), task));
        }
    }
    let admin = Arc::new(AdminHandler {
        stores: admin_stores,
        domains: Vec::new(),
        provided_domains: Vec::new(),
        keys: running.assembled.keys.clone(),
        tokens,
        config: path.map(Into::into),
        running: Some(running.clone()),
    });
    let admin_task = tasks.handle.spawn(admin::serve(admin::bind(&socket)?, admin));
    // Before the first request, so that its response does not depend on timing.
    refresh_disk_usage(&running).await;
    let mut periodic_tasks = vec![
        tasks.handle.spawn(run_periodic_tasks(running.clone(), api.clone(), saved.clone())),
        tasks.handle.spawn(measure_scheduler_lag(running.clone())),
        tasks.handle.spawn(recount_accounts(running.clone())),
        tasks.handle.spawn(watch_disk(running.clone())),
        tasks.handle.spawn(flush_presence_batches(node.clone())),
        tasks.handle.spawn(back_up_overdue_messages(node.clone())),
        tasks.handle.spawn(report_usage(node.clone())),
    ];
    periodic_tasks.push(running.services.sweep(&tasks.handle));
    let manager = Arc::new(ServiceManager::from_environment());
    let watched = manager.clone();
    periodic_tasks.push(tasks.handle.spawn(async move { watched.keep_watchdog_quiet().await }));
    running.ready.store(true, Ordering::Relaxed);
    manager.ready();
    banner.iter().for_each(|line| output::line(line));

    let end = loop {
        tokio::select! {
            _ = terminate.recv() => break ShutdownKind::Stop,
            _ = interrupt.recv() => break ShutdownKind::Stop,
            shutdown = wait_for_shutdown(&node) => break shutdown.kind,
            _ = hangup.recv() => {
                tracing::info!("received SIGHUP: reloading the configuration");
                // Concurrently with this loop: a stop must not wait for a reload.
                let running = running.clone();
                tasks.handle.spawn(async move {
                    match running.reload_in_background().await {
                        Ok(report) => report.write_to_log(),
                        Err(error) => tracing::error!("the configuration was not reloaded: {error:#}"),
                    }
                });
            }
        }
    };
    tracing::info!(sessions = node.routing_table.sessions(), "stopping");
    running.ready.store(false, Ordering::Relaxed);
    // Pages, the API and metrics stay available while the node drains.
    if let ShutdownKind::Drain(drain) = &end {
        abort(accepting.extract_if(.., |(is_http, _)| !*is_http));
        web.refuse_streams();
        tokio::select! {
            () = crate::draining::drain(&node, drain) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
    abort(accepting.drain(..));
    // The process that follows at a restart has the same id and says that it is ready.
    if !matches!(end, ShutdownKind::Restart) {
        manager.stopping();
    }
    // They begin here: what takes long leaves less time to what follows.
    let (streams_end, due_items_end) =
        (tokio::time::sleep(STREAMS_TIMEOUT), tokio::time::sleep(DUE_ITEMS_TIMEOUT));
    // Before the sessions end: their clients learn that the rooms of this node are gone, unless other nodes have them.
    if tokio::time::timeout(ROOMS_TIMEOUT, peers::slices::shut_down(&node)).await.is_err() {
        tracing::warn!("rooms were not handed over or ended in time");
    }
    end_streams(&running.assembled, &web, streams_end).await;
    // After the sessions have ended, so that the others learn of it.
    peers::send_last_usage_reports(&node);
    send_due_items(&node, due_items_end).await;
    if tokio::time::timeout(LEAVE_TIMEOUT, node.cluster.leave()).await.is_err() {
        tracing::warn!("the cluster was not left in time; the other nodes notice it after ten seconds");
    }
    admin_task.abort();
    periodic_tasks.iter().for_each(JoinHandle::abort);
    overview_history::write(&saved, &api).await;
    let _ = std::fs::remove_file(&socket);
    running.assembled.databases.close().await;
    tracing::info!("stopped");
    Ok(end)
}

/// Ends accepting on listeners.
fn abort(accepting: impl Iterator<Item = (bool, JoinHandle<()>)>) {
    accepting.for_each(|(_, task)| task.abort());
}

async fn accept_loop(listener: Listener, listener_state: Arc<ListenerState>, web: Arc<HttpFrontend>) {
    let runtime = tokio::runtime::Handle::current();
    let http_handler = listener_state
        .listen
        .is_http()
        .then(|| Arc::new(HttpListenerHandler { web: web.clone(), listener: listener_state.clone() }));
    // Second of the last one that was logged.
    let mut last_refusal = None;
    loop {
        let accepted =
            listener.accept_with_role(|peer| web::remote_role(peer, &listener_state, &web.http)).await;
        match accepted.role {
            RemoteRole::Client => {
                if let Some((stream, permit)) = web::into_stream(accepted, &listener_state) {
                    serve_connection(stream, permit, &listener_state, http_handler.as_ref(), &runtime);
                }
            }
            RemoteRole::Proxy => {
                // The PROXY header may take a while.
                let (listener_state, http_handler, inner) =
                    (listener_state.clone(), http_handler.clone(), runtime.clone());
                runtime.spawn(async move {
                    if let Some((stream, permit)) = web::accept_proxied(accepted, &listener_state).await {
                        serve_connection(stream, permit, &listener_state, http_handler.as_ref(), &inner);
                    }
                });
            }
            RemoteRole::Untrusted => {
                let now = listener_state.service().node.seconds();
                // Unauthenticated clients must not fill the log.
                if last_refusal.replace(now) != Some(now) {
                    tracing::info!(peer = %accepted.peer, "refused a connection: only [http] trusted_proxies can \
                     connect to a listener with proxy_protocol");
                }
            }
        }
    }
}

/// Serves an HTTP or XMPP connection.
fn serve_connection(
    stream: Stream,
    permit: ConnectionPermit,
    listener_state: &ListenerState,
    http_handler: Option<&Arc<HttpListenerHandler>>,
    runtime: &tokio::runtime::Handle,
) {
    match http_handler {
        Some(http_handler) => http_handler.serve(stream, permit),
        None => {
            runtime.spawn(C2sConnection::new(stream, permit, listener_state.service()));
        }
    }
}

/// Counts accounts when their number may have changed, separately from the periodic tasks: a million accounts take a
/// moment.
async fn recount_accounts(running: Arc<RunningNode>) {
    let mut tick = tokio::time::interval(Duration::from_secs(2));
    loop {
        tick.tick().await;
        running.count_changed_accounts().await;
    }
}

/// Checks the free disk space every half minute. A separate task, because a hanging disk must not block the periodic
/// tasks.
async fn watch_disk(running: Arc<RunningNode>) {
    let mut tick = tokio::time::interval(Duration::from_secs(30));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    tick.tick().await;
    loop {
        tick.tick().await;
        refresh_disk_usage(&running).await;
    }
}

async fn refresh_disk_usage(running: &Arc<RunningNode>) {
    let disk = running.disk.clone();
    let _ = tokio::task::spawn_blocking(move || disk.refresh()).await;
}

/// Flushes batched presence that is due. Batches due within a few milliseconds are flushed together.
async fn flush_presence_batches(node: Arc<Node>) {
    const GRAIN: Duration = Duration::from_millis(5);
    loop {
        let due = std::future::poll_fn(|cx| node.presence_batcher.poll_due(cx)).await;
        let wait = Duration::from_millis(due.since(node.clock.now())).max(GRAIN);
        tokio::time::sleep(wait).await;
        node.presence_batcher.flush_due(node.clock.now());
    }
}

/// Stores backups of messages that their clients have not taken in time. Checks due within a few milliseconds run together,
/// so that the store writes their messages in one group.
async fn back_up_overdue_messages(node: Arc<Node>) {
    const GRAIN: Duration = Duration::from_millis(10);
    loop {
        let due = std::future::poll_fn(|cx| node.delivery_watch.poll_due(cx)).await;
        let wait = Duration::from_millis(due.since(node.clock.now())).max(GRAIN);
        tokio::time::sleep(wait).await;
        while node.back_up_overdue() {
            tokio::task::yield_now().await;
        }
    }
}

/// Reports to the other nodes what clients have used up of limits: the first event at once, those of the next tenth of a
/// second together.
async fn report_usage(node: Arc<Node>) {
    let reports = node.extensions.get_or_default::<cluster::UsageReports>();
    loop {
        let due = std::future::poll_fn(|cx| reports.schedule().poll_due(cx)).await;
        tokio::time::sleep(Duration::from_millis(due.since(node.clock.now()))).await;
        peers::send_usage_reports(&node);
    }
}

/// Measures the delay of a task that is due ten times a second.
async fn measure_scheduler_lag(running: Arc<RunningNode>) {
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let due = tick.tick().await;
        running.lag.record_scheduler_lag(due.elapsed());
    }
}

/// Periodic tasks: deadlines every second, an overview sample every two, certificates every five, the overview's
/// history to the disk every minute.
async fn run_periodic_tasks(running: Arc<RunningNode>, api: Arc<api::Api>, saved: PathBuf) {
    let node = running.assembled.node.clone();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for second in 0_u64.. {
        let due = tick.tick().await;
        running.lag.record_sweep_lag(due.elapsed());
        node.sweep();
        check_shutdown(&node);
        write_delayed_lines(&node);
        running.web.sweep();
        if second % api::overview::INTERVAL == 0 {
            api.sample();
        }
        if second % 5 == 4 {
            reload_changed_certificates(&running).await;
        }
        if second % overview_history::SAVE_INTERVAL_SECONDS == overview_history::SAVE_INTERVAL_SECONDS - 1 {
            overview_history::write(&saved, &api).await;
        }
    }
}

/// Reloads certificates if their files changed.
async fn reload_changed_certificates(running: &Arc<RunningNode>) {
    let running = running.clone();
    match tokio::task::spawn_blocking(move || running.refresh_certificates()).await {
        Ok(net::tls::TlsReloadOutcome::Reloaded) => tracing::info!("reloaded the certificates"),
        Ok(net::tls::TlsReloadOutcome::Rejected(reason)) => {
            tracing::error!(reason, "cannot use the new certificates; keeping the previous ones");
        }
        _ => {}
    }
}

/// Ends all streams, and waits until they are closed and what they caused is complete, or the time is up. A session that
/// ends leaves tasks that store its undelivered messages.
async fn end_streams(assembled: &AssembledNode, web: &HttpFrontend, end: Sleep) {
    let bye = StreamError::new(StreamCondition::SystemShutdown).text("shutting down");
    tokio::pin!(end);
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let mut passed = 0_u32;
    web.drain();
    loop {
        if assembled.node.outboxes.is_empty() {
            // Held BOSH requests without a stream.
            web.bosh.close_all();
            if !web.is_busy() && !assembled.tasks.is_busy() {
                return;
            }
        }
        // Again each time: a connection may have arrived in between.
        assembled.node.outboxes.close_all(&bye);
        tokio::select! {
            _ = tick.tick() => {
                passed += 1;
                if passed.is_multiple_of(50) {
                    assembled.node.sweep();
                    write_delayed_lines(&assembled.node);
                    web.sweep();
                }
            }
            () = &mut end => {
                tracing::warn!(
                    connections = assembled.node.outboxes.len(),
                    unfinished_tasks = assembled.tasks.is_busy(),
                    "some connections or tasks did not end in time; messages may be lost"
                );
                return;
            }
        }
    }
}

/// Sends what is due for other nodes: it would be lost with this one. Ends if nothing is left, if they take nothing for a while, or at
/// `end`.
async fn send_due_items(node: &Arc<Node>, end: Sleep) {
    tokio::pin!(end);
    let mut tick = tokio::time::interval(DUE_ITEMS_TICK);
    // A runtime that was late must not count many attempts at once.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut least, mut stalled) = (usize::MAX, 0);
    loop {
        let left = peers::send_due_items(node);
        if left == 0 {
            return;
        }
        stalled = if left < least { 0 } else { stalled + 1 };
        least = least.min(left);
        if stalled == STALLED_ATTEMPTS {
            break;
        }
        tokio::select! {
            _ = tick.tick() => {}
            () = &mut end => break,
        }
    }
    let discarded = peers::discard_due_items(node);
    let nodes: Vec<String> = discarded.nodes.iter().map(ToString::to_string).collect();
    tracing::warn!(
        nodes = nodes.join(", "),
        lost_errors = discarded.errors,
        "other nodes did not take what was due in time; they repeat the exchange of presence"
    );
}

/// Without a configuration file and without accounts: creates the administrator and returns the password.
async fn create_first_administrator(
    config: &NodeConfig,
    assembled: &AssembledNode,
) -> Result<Option<String>> {
    if config.path.is_some() {
        return Ok(None);
    }
    let Some(admin) = config.admins.first() else { return Ok(None) };
    let jid = jid::Jid::parse(admin).map_err(|e| anyhow!("{e}"))?;
    let accounts = &assembled.node.stores.accounts;
    if accounts.count(jid.domain()).await.map_err(|e| anyhow!("{e}"))? > 0 {
        return Ok(None);
    }
    let password = base::id::random_id();
    let credentials = admin::derive_credentials(&*assembled.node.passwords, password.clone()).await?;
    accounts.create(&jid, &credentials).await.map_err(|e| anyhow!("{e}"))?;
    Ok(Some(password))
}

fn listener_line(kind: ListenerKind, address: std::net::SocketAddr) -> String {
    match kind {
        ListenerKind::C2s => format!("clients        {address}"),
        ListenerKind::C2sTls => format!("clients, TLS   {address}"),
        ListenerKind::Https => format!("HTTPS          https://{address}/"),
        ListenerKind::Service(name) => format!("{:<15}{address}", service_listeners::purpose(name)),
        _ => format!("HTTP           http://{address}/"),
    }
}

/// Startup message with the addresses of the node.
fn startup_banner(config: &NodeConfig, listener_lines: &[String], notes: &StartupNotes) -> Vec<String> {
    let mut lines = vec![format!("Throng {} serves {}", env!("CARGO_PKG_VERSION"), config.hosts.join(", "))];
    lines.extend(listener_lines.iter().map(|line| format!("  {line}")));
    for one in &notes.certificates {
        lines.extend(describe_certificate(one).into_iter().map(|line| format!("  {line}")));
    }
    if let (Some(password), Some(admin)) = (&notes.password, config.admins.first()) {
        lines.push(format!("  administrator  {admin}, password {password} (shown only this once)"));
    }
    let path = config.path.as_deref();
    for admin in &notes.admins_without_account {
        lines.push(format!("  administrator  {admin} has no account; add it with:"));
        lines.push(format!("                 {}", command_hint(path, "account add", admin.as_str())));
    }
    let alice = format!("alice@{}", config.domain());
    lines.push(format!("  add a user     {}", command_hint(path, "account add", &alice)));
    lines.push("Stop with Ctrl-C.".to_owned());
    lines
}

/// Findings of a start that the operator should know.
#[derive(Default)]
struct StartupNotes {
    /// Password of the administrator that it created.
    password: Option<String>,
    /// Administrators without an account.
    admins_without_account: Vec<jid::Jid>,
    certificates: Vec<net::tls::CertificateSummary>,
}

/// Describes a certificate for a person, including how to trust it if it is self-signed.
pub(crate) fn describe_certificate(one: &net::tls::CertificateSummary) -> Vec<String> {
    let (names, until) = (one.names.join(", "), status::format_date(one.not_after));
    let file = crate::accounts::absolute_path(&one.file);
    if !one.is_self_signed {
        return vec![format!("certificate    {file}, for {names}, until {until}")];
    }
    vec![
        format!("certificate    self-signed, for {names}, until {until}"),
        format!("  SHA-256      {}", one.sha256),
        format!("  to trust it  compare the fingerprint in the client, or import {file}"),
    ]
}
