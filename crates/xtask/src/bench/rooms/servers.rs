//! The servers of the bench, each with its accounts and rooms.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::super::clients::{ClientOptions, ClientSecurity};
use super::super::peers::{PeerOptions, PeerServer, RoomPresence, RunningPeer, command, start_peer};
use super::super::server_under_test::{BenchOptions, ServerUnderTest};
use super::RoomBench;

/// A server that is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(in super::super) enum RoomServerKind {
    /// The loop.
    Loop,
    /// Ours.
    Throng,
    /// ejabberd of Debian.
    Ejabberd,
    /// Prosody of Debian.
    Prosody,
}

impl RoomServerKind {
    pub(in super::super) const ALL: [RoomServerKind; 4] =
        [Self::Loop, Self::Throng, Self::Ejabberd, Self::Prosody];

    /// Its name in tables.
    pub(in super::super) fn name(self) -> &'static str {
        self.peer().map_or("loop", PeerServer::name)
    }

    fn peer(self) -> Option<PeerServer> {
        match self {
            Self::Loop => None,
            Self::Throng => Some(PeerServer::Throng),
            Self::Ejabberd => Some(PeerServer::Ejabberd),
            Self::Prosody => Some(PeerServer::Prosody),
        }
    }
}

/// Installs the packages of the servers.
pub(in super::super) fn install(servers: &[RoomServerKind]) -> Result<()> {
    let packages: Vec<&str> = servers
        .iter()
        .filter(|it| matches!(it, RoomServerKind::Ejabberd | RoomServerKind::Prosody))
        .map(|it| it.name())
        .collect();
    if packages.is_empty() {
        return Ok(());
    }
    command::setup(&packages)
        .context("ejabberd and Prosody are needed from Debian's packages; --only leaves them out")
}

/// A running server.
pub(in super::super) struct RoomServer {
    measured: ServerUnderTest,
    peer: Option<RunningPeer>,
}

impl RoomServer {
    /// Starts a server with accounts from `u0` on.
    pub(super) fn start(
        bench: &RoomBench<'_>,
        kind: RoomServerKind,
        accounts: usize,
        presence: RoomPresence,
    ) -> Result<Self> {
        let wanted = PeerOptions { rooms: Some(presence), ..PeerOptions::new(accounts, 0) };
        Self::start_peer(bench.options, &bench.program, kind, wanted)
    }

    /// Starts one with a PubSub service instead of rooms.
    pub(in super::super) fn start_with_nodes(
        options: &BenchOptions,
        program: &Path,
        kind: RoomServerKind,
        accounts: usize,
    ) -> Result<Self> {
        let wanted = PeerOptions { nodes: true, ..PeerOptions::new(accounts, 0) };
        Self::start_peer(options, program, kind, wanted)
    }

    fn start_peer(
        options: &BenchOptions,
        program: &Path,
        kind: RoomServerKind,
        wanted: PeerOptions,
    ) -> Result<Self> {
        let Some(peer) = kind.peer() else {
            return Ok(Self { measured: ServerUnderTest::gathering_relay(options)?, peer: None });
        };
        let running = start_peer(peer, &PeerOptions { server: Some(program.to_owned()), ..wanted })?;
        let clients = options.clients(running.id(), running.address(), ClientSecurity::None)?;
        Ok(Self { measured: ServerUnderTest::running(clients), peer: Some(running) })
    }

    /// Options of its clients.
    pub(in super::super) fn clients(&self) -> &ClientOptions {
        &self.measured.clients
    }

    /// Ends the server at once: its data are not used again.
    pub(in super::super) fn end(mut self) {
        if let Some(peer) = self.peer.take() {
            peer.kill();
        }
    }
}
