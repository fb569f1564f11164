//! `cargo xtask peers`: a server with accounts and rosters for a person to measure by hand.
//!
//! `up` keeps the server in the foreground; SIGINT, SIGTERM and SIGHUP end it in order. Data of earlier starts is replaced.
//! The lines that begin with `port`, `pid` and `pids` are for scripts.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Subcommand;

use super::super::report::{note, out};
use super::{Peer, Wanted, recipe, up};

/// The flags of `cargo xtask peers`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Install from Debian what is missing: ejabberd, Prosody, Tsung, Chromium and the tools for lossy networks.
    Setup,
    /// Start a server with fresh accounts and keep it until Ctrl-C.
    Up {
        /// The server.
        #[arg(value_enum)]
        peer: Peer,
        #[command(flatten)]
        wanted: Wanted,
    },
}

/// Carries a command out. Exit code 2 when it could not be.
pub(crate) fn run(args: &Args) -> ExitCode {
    let result = match &args.what {
        What::Setup => setup(),
        What::Up { peer, wanted } => keep(*peer, wanted),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("xtask peers: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Installs what is missing.
pub(super) fn setup() -> Result<()> {
    let status = Command::new("sh").arg(recipe("setup.sh")).status()?;
    ensure!(status.success(), "setup.sh ended with {status}");
    Ok(())
}

fn keep(peer: Peer, wanted: &Wanted) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before the server starts: a signal that comes earlier must not leave it behind.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let mut server = up(peer, wanted)?;
    let pids: Vec<String> = server.pids().iter().map(u32::to_string).collect();
    out(&format!("port {}", server.address().port()));
    out(&format!("pid {}", server.id()));
    out(&format!("pids {}", pids.join(" ")));
    note("Ctrl-C ends it");
    runtime.block_on(async {
        loop {
            tokio::select! {
                () = signals.any() => return Ok(()),
                () = tokio::time::sleep(Duration::from_secs(1)) => server.check()?,
            }
        }
    })
}

/// The signals that end the command.
struct Signals([tokio::signal::unix::Signal; 3]);

impl Signals {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let [int, term, hup] = &mut self.0;
        tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hup.recv() => {} }
    }
}
