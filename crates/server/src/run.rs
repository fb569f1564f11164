//! `throng serve`: the life of a node from its first line of log to its last.
//!
//! SIGHUP reloads (see `reload`). SIGTERM and SIGINT drain: listeners close, streams end with `system-shutdown`, what waits for the disk is
//! written, and the process exits with 0 within [`DRAIN`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use net::{Gate, Kind, Listener, Pass, Stream};
use stanza::{StreamCondition, StreamError};
use streams::Connection;
use throng_core::Node;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{self, Admin};
use crate::config::Config;
use crate::hint::hint;
use crate::machine::Pages;
use crate::reload::{self, Door, Running};
use crate::runtime::{self, Tasks};
use crate::web::{self, Place, Web};
use crate::wire::{self, Wired};
use crate::{history, logs, out, status};

/// Longest time that streams get to end; the whole exit stays below 10 s.
const DRAIN: Duration = Duration::from_secs(7);

/// Runs a node until it is told to stop.
pub(crate) fn serve(path: Option<&Path>) -> Result<()> {
    let config = Config::load(path)?;
    let level = logs::start(&config.log)?;
    let runtime = runtime::start()?;
    let result = runtime.block_on(run(path, config, level));
    // What is still running has had its time.
    runtime.shutdown_timeout(Duration::from_millis(500));
    match result? {
        End::Stop => Ok(()),
        End::Restart => again(),
    }
}

/// What is to be after the end.
enum End {
    Stop,
    Restart,
}

/// Puts the same command in the place of this one.
fn again() -> Result<()> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().context("the program cannot be found again")?;
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(error).context("the program cannot be started again")
}

async fn run(path: Option<&Path>, config: Config, level: logs::Level) -> Result<End> {
    let tasks = Tasks(tokio::runtime::Handle::current());
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be received")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be received")?;
    let mut hangup = signal(SignalKind::hangup()).context("signals cannot be received")?;
    let socket = config.socket();
    if admin::connect(&socket).await.is_some() {
        bail!("another node is running on {}; stop it or use another data_dir", config.data_dir.display());
    }
    let wired = wire::wire(&config, &tasks).await?;
    let tls = wire::tls(&config)?;
    let seen = Seen {
        password: first_start(&config, &wired).await?,
        missing: crate::accounts::without_account(&config, &wired.node.stores).await,
        certificates: tls.as_ref().map_or_else(Vec::new, |tls| tls.certificates()),
    };

    let gate = Gate::new(wire::gate_limits(&config.limits));
    let (mut places, mut listeners, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for listen in &config.listen {
        // Operators must get in by one door when clients have taken another.
        let gate = if listen.is_http() { Gate::new(reload::http_gate(&config)) } else { gate.clone() };
        let listener = Listener::bind(listen.kind, listen.address, gate.clone(), |port| {
            wire::port_limits(port, &config.limits);
        })?;
        let local = listener.port().local;
        places.push(place(listen.kind, local));
        tracing::info!(kind = listen.kind.name(), address = %local, "listening");
        ports.push((listen.clone(), listener.slot(), gate));
        listeners.push(listener);
    }
    wired.node.gather.set_delay(config.http.presence_delay);
    let web = Web::new(&config.http, wired.node.clock.clone(), gate.clone(), tasks.0.clone());
    let greeting = greeting(&config, &places, &seen);
    let saved = history::place(&config.data_dir);
    let admin_stores = wired.node.stores.clone();
    let running = Arc::new(Running::new(path.map(Into::into), config, wired, tls, ports, web.clone(), level));
    let node = running.wired.node.clone();
    crate::metrics::register(&running);
    let pages = Arc::new(Pages { running: running.clone() });
    let api = api::Api::new(node.clone(), pages);
    history::read(&saved, &api);
    web.open(running.http_doors.clone(), api::router(api.clone()));
    let tokens = api.tokens.clone();
    let mut accepting = Vec::new();
    for listener in listeners {
        let local = listener.port().local;
        let all = running.doors.iter().chain(&running.http_doors);
        if let Some(door) = all.into_iter().find(|door| door.port.get().local == local) {
            accepting.push(tasks.0.spawn(accept(listener, door.clone(), web.clone())));
        }
    }
    let admin = Arc::new(Admin {
        stores: admin_stores,
        domains: Vec::new(),
        keys: running.wired.keys.clone(),
        tokens,
        config: path.map(Into::into),
        running: Some(running.clone()),
    });
    let admin_task = tasks.0.spawn(admin::serve(admin::bind(&socket)?, admin));
    // Before the first question, so that what is known does not depend on who asks when.
    look(&running).await;
    let chores = [
        tasks.0.spawn(chores(running.clone(), api.clone(), saved.clone())),
        tasks.0.spawn(probe(running.clone())),
        tasks.0.spawn(census(running.clone())),
        tasks.0.spawn(watch_disk(running.clone())),
        tasks.0.spawn(release(node.clone())),
    ];
    running.ready.store(true, Ordering::Relaxed);
    greeting.iter().for_each(|line| out::line(line));

    let end = loop {
        tokio::select! {
            _ = terminate.recv() => break End::Stop,
            _ = interrupt.recv() => break End::Stop,
            wish = node.shutdown() => break if wish.restart { End::Restart } else { End::Stop },
            _ = hangup.recv() => {
                tracing::info!("SIGHUP: the configuration is read again");
                // Beside this loop: a stop must not wait for a reload.
                let running = running.clone();
                tasks.0.spawn(async move {
                    match running.reload_later().await {
                        Ok(report) => report.log(),
                        Err(error) => tracing::error!("nothing was reloaded: {error:#}"),
                    }
                });
            }
        }
    };
    tracing::info!(sessions = node.table.sessions(), "stopping");
    running.ready.store(false, Ordering::Relaxed);
    for task in &accepting {
        task.abort();
    }
    drain(&running.wired, &web).await;
    admin_task.abort();
    chores.iter().for_each(tokio::task::JoinHandle::abort);
    history::write(&saved, &api).await;
    let _ = std::fs::remove_file(&socket);
    running.wired.database.close().await;
    tracing::info!("stopped");
    Ok(end)
}

async fn accept(listener: Listener, door: Arc<Door>, web: Arc<Web>) {
    let runtime = tokio::runtime::Handle::current();
    let place = door.listen.is_http().then(|| Arc::new(Place { web: web.clone(), door: door.clone() }));
    loop {
        let accepted = listener.accept_proxied(|| door.is_proxied()).await;
        if door.is_proxied() {
            // Its header may take a while.
            let (door, web, place, inner) = (door.clone(), web.clone(), place.clone(), runtime.clone());
            runtime.spawn(async move {
                if let Some((stream, pass)) = web::introduce(accepted, &door, &web.http).await {
                    start(stream, pass, &door, place.as_ref(), &inner);
                }
            });
        } else if let Some((stream, pass)) = web::stream(accepted, &door) {
            start(stream, pass, &door, place.as_ref(), &runtime);
        }
    }
}

/// Serves a connection, of HTTP or of XMPP.
fn start(
    stream: Stream,
    pass: Pass,
    door: &Door,
    place: Option<&Arc<Place>>,
    runtime: &tokio::runtime::Handle,
) {
    match place {
        Some(place) => place.serve(stream, pass),
        None => {
            runtime.spawn(Connection::new(stream, pass, door.service()));
        }
    }
}

/// Counts accounts when there may be more or fewer, beside the chores: a million of them take a moment.
async fn census(running: Arc<Running>) {
    let mut tick = tokio::time::interval(Duration::from_secs(2));
    loop {
        tick.tick().await;
        running.count_changed_accounts().await;
    }
}

/// Looks every half minute what is left of the disk. A task of its own: a disk that hangs must not hold the chores.
async fn watch_disk(running: Arc<Running>) {
    let mut tick = tokio::time::interval(Duration::from_secs(30));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    tick.tick().await;
    loop {
        tick.tick().await;
        look(&running).await;
    }
}

async fn look(running: &Arc<Running>) {
    let disk = running.disk.clone();
    let _ = tokio::task::spawn_blocking(move || disk.look()).await;
}

/// Lets presence go that has waited for long enough. Those that are due within a few milliseconds go together.
async fn release(node: Arc<Node>) {
    const GRAIN: Duration = Duration::from_millis(5);
    loop {
        let due = std::future::poll_fn(|cx| node.gather.poll_due(cx)).await;
        let wait = Duration::from_millis(due.since(node.clock.now())).max(GRAIN);
        tokio::time::sleep(wait).await;
        node.gather.release(node.clock.now());
    }
}

/// Measures how late a task is that is due ten times a second.
async fn probe(running: Arc<Running>) {
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let due = tick.tick().await;
        running.vitals.probed(due.elapsed());
    }
}

/// What happens by the clock: alarms every second, a point for the overview every two, certificates every five, the overview's
/// history to the disk every minute, expiry every hour.
async fn chores(running: Arc<Running>, api: Arc<api::Api>, saved: PathBuf) {
    let node = running.wired.node.clone();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for second in 0_u64.. {
        let due = tick.tick().await;
        running.vitals.late(due.elapsed());
        node.sweep();
        running.web.sweep();
        if second % api::overview::INTERVAL == 0 {
            api.sample();
        }
        if second % 5 == 4 {
            refresh(&running).await;
        }
        if second % history::EVERY == history::EVERY - 1 {
            history::write(&saved, &api).await;
        }
        if second % 3600 == 3599 {
            let now = node.clock.unix_millis();
            match node.stores.offline.expire(now, 100_000).await {
                Ok(count) => {
                    node.metrics.offline_expired.inc_by(count.into());
                    tracing::debug!(count, "stored messages expired");
                }
                Err(error) => tracing::warn!(%error, "stored messages could not be expired"),
            }
        }
    }
}

/// Reads certificates again if their files changed.
async fn refresh(running: &Arc<Running>) {
    let running = running.clone();
    match tokio::task::spawn_blocking(move || running.refresh_certificates()).await {
        Ok(net::tls::Reload::Reloaded) => tracing::info!("certificates are loaded again"),
        Ok(net::tls::Reload::Kept(reason)) => {
            tracing::error!(reason, "the new certificates cannot be used; the old ones stay");
        }
        _ => {}
    }
}

/// Ends all streams, and waits until they are gone or the time is up.
async fn drain(wired: &Wired, web: &Web) {
    let bye = StreamError::new(StreamCondition::SystemShutdown).text("the server stops");
    let end = tokio::time::sleep(DRAIN);
    tokio::pin!(end);
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let mut passed = 0_u32;
    web.drain();
    loop {
        if wired.node.links.is_empty() {
            // Requests that are held for no stream.
            web.bosh.end_all();
            if !web.is_busy() {
                return;
            }
        }
        // Again each time: a connection may have come in between.
        wired.node.links.close_all(&bye);
        tokio::select! {
            _ = tick.tick() => {
                passed += 1;
                if passed.is_multiple_of(50) {
                    wired.node.sweep();
                    web.sweep();
                }
            }
            () = &mut end => {
                tracing::warn!(connections = wired.node.links.len(), "some connections did not end in time");
                return;
            }
        }
    }
}

/// Without a configuration file and without accounts: makes the administrator and returns the password.
async fn first_start(config: &Config, wired: &Wired) -> Result<Option<String>> {
    if config.path.is_some() {
        return Ok(None);
    }
    let Some(admin) = config.admins.first() else { return Ok(None) };
    let jid = jid::Jid::parse(admin).map_err(|e| anyhow!("{e}"))?;
    let accounts = &wired.node.stores.accounts;
    if accounts.count(jid.domain()).await.map_err(|e| anyhow!("{e}"))? > 0 {
        return Ok(None);
    }
    let password = base::id::random_id();
    let credentials = admin::derive(&*wired.node.passwords, password.clone()).await?;
    accounts.create(&jid, &credentials).await.map_err(|e| anyhow!("{e}"))?;
    Ok(Some(password))
}

fn place(kind: Kind, address: std::net::SocketAddr) -> String {
    match kind {
        Kind::C2s => format!("clients        {address}"),
        Kind::C2sTls => format!("clients, TLS   {address}"),
        Kind::Https => format!("HTTPS          https://{address}/"),
        _ => format!("HTTP           http://{address}/"),
    }
}

/// Says where to go.
fn greeting(config: &Config, places: &[String], seen: &Seen) -> Vec<String> {
    let mut lines = vec![format!("Throng {} serves {}", env!("CARGO_PKG_VERSION"), config.hosts.join(", "))];
    lines.extend(places.iter().map(|place| format!("  {place}")));
    for one in &seen.certificates {
        lines.extend(certificate(one).into_iter().map(|line| format!("  {line}")));
    }
    if let (Some(password), Some(admin)) = (&seen.password, config.admins.first()) {
        lines.push(format!("  administrator  {admin}, password {password} (shown only this once)"));
    }
    let path = config.path.as_deref();
    for admin in &seen.missing {
        lines.push(format!("  administrator  {admin} has no account; add it with:"));
        lines.push(format!("                 {}", hint(path, "account add", admin.as_str())));
    }
    let alice = format!("alice@{}", config.domain());
    lines.push(format!("  add a user     {}", hint(path, "account add", &alice)));
    lines.push("Stop with Ctrl-C.".to_owned());
    lines
}

/// What a start found that the operator should know.
#[derive(Default)]
struct Seen {
    /// Of the administrator that it made.
    password: Option<String>,
    /// Administrators without an account.
    missing: Vec<jid::Jid>,
    certificates: Vec<net::tls::Shown>,
}

/// A certificate for a person: what it is, and how to trust it if nobody does yet.
pub(crate) fn certificate(one: &net::tls::Shown) -> Vec<String> {
    let (names, until) = (one.names.join(", "), status::day(one.not_after));
    let file = crate::accounts::whole(&one.file);
    if !one.is_self_signed {
        return vec![format!("certificate    {file}, for {names}, until {until}")];
    }
    vec![
        format!("certificate    self-signed, for {names}, until {until}"),
        format!("  SHA-256      {}", one.sha256),
        format!("  to trust it  compare this when a client asks, or give clients {file}"),
    ]
}
