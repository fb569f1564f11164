//! The servers of the bench, each with its accounts and rooms.

use anyhow::{Context as _, Result};

use super::super::clients::{ClientOptions, ClientSecurity};
use super::super::peers::{PeerOptions, PeerServer, RoomPresence, RunningPeer, command, start_peer};
use super::super::server_under_test::ServerUnderTest;
use super::RoomBench;

/// A server that is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(super) enum RoomServerKind {
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
    pub(super) const ALL: [RoomServerKind; 4] = [Self::Loop, Self::Throng, Self::Ejabberd, Self::Prosody];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
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
pub(super) fn install(servers: &[RoomServerKind]) -> Result<()> {
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
pub(super) struct RoomServer {
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
        let Some(peer) = kind.peer() else {
            return Ok(Self { measured: ServerUnderTest::gathering_relay(bench.options)?, peer: None });
        };
        let wanted = PeerOptions {
            rooms: Some(presence),
            server: Some(bench.program.clone()),
            ..PeerOptions::new(accounts, 0)
        };
        let running = start_peer(peer, &wanted)?;
        let clients = bench.options.clients(running.id(), running.address(), ClientSecurity::None)?;
        Ok(Self { measured: ServerUnderTest::running(clients), peer: Some(running) })
    }

    /// Options of its clients.
    pub(super) fn clients(&self) -> &ClientOptions {
        &self.measured.clients
    }

    /// Ends the server at once: its data are not used again.
    pub(super) fn end(mut self) {
        if let Some(peer) = self.peer.take() {
            peer.kill();
        }
    }
}
