//! `cargo xtask peers`: a server with accounts and rosters, to measure by hand.
//!
//! `up` keeps the server in the foreground; SIGINT, SIGTERM and SIGHUP end it in order. Data of earlier starts are
//! replaced. The lines that begin with `port`, `pid` and `pids` are for scripts.

use std::io;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Subcommand;

use super::super::report::{print_progress, print_result};
use super::{PeerOptions, PeerServer, peers_file, start_peer};

/// The flags of `cargo xtask peers`.
#[derive(clap::Args)]
pub(crate) struct PeersArgs {
    #[command(subcommand)]
    what: PeersCommand,
}

#[derive(Subcommand)]
enum PeersCommand {
    /// Install missing packages from Debian: ejabberd, Prosody, Tsung, Chromium and the tools for lossy networks.
    Setup,
    /// Start a server with fresh accounts and keep it until Ctrl-C.
    Up {
        /// The server.
        #[arg(value_enum)]
        peer: PeerServer,
        #[command(flatten)]
        wanted: PeerOptions,
    },
}

/// Runs a command. Exit code 2 when it fails.
pub(crate) fn run(args: &PeersArgs) -> ExitCode {
    let result = match &args.what {
        PeersCommand::Setup => setup(&[]),
        PeersCommand::Up { peer, wanted } => run_until_signal(*peer, wanted),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_progress(&format!("xtask peers: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Installs the missing ones of these packages; of all in `setup.sh` when there are none.
pub(crate) fn setup(packages: &[&str]) -> Result<()> {
    let status = Command::new("sh").arg(peers_file("setup.sh")).args(packages).status()?;
    ensure!(status.success(), "setup.sh ended with {status}");
    Ok(())
}

fn run_until_signal(peer: PeerServer, wanted: &PeerOptions) -> Result<()> {
    let ready = Arc::new(AtomicBool::new(false));
    let ended = signals(Arc::clone(&ready))?;
    let mut server = start_peer(peer, wanted)?;
    ready.store(true, Ordering::SeqCst);
    let pids: Vec<String> = server.pids().iter().map(u32::to_string).collect();
    print_result(&format!("port {}", server.address().port()));
    print_result(&format!("pid {}", server.id()));
    print_result(&format!("pids {}", pids.join(" ")));
    print_progress("Ctrl-C ends it");
    while ended.recv_timeout(Duration::from_secs(1)).is_err() {
        server.check()?;
    }
    Ok(())
}

/// Waits for a signal in a thread. Before the server is ready it ends the program and its children immediately;
/// afterwards it is sent through the channel, and the server ends in order.
pub(crate) fn signals(ready: Arc<AtomicBool>) -> Result<Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (sender, receiver) = sync_channel(1);
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let streams: io::Result<Vec<_>> = runtime.block_on(async { kinds.into_iter().map(signal).collect() });
    let mut streams = streams?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let [int, term, hup] = &mut streams[..] else { return };
            tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hup.recv() => {} }
        });
        if !ready.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
        // The receiver waits while the server runs.
        let _ = sender.try_send(());
    })?;
    Ok(receiver)
}
