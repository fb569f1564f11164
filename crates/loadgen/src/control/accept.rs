//! Where workers come in: listeners, and a handshake with each who connects.
//!
//! Handshakes run on threads of their own, few at a time, so that a stranger who says nothing delays nobody.
//! Trap: the gate closes when the run begins; a worker that comes later finds nobody listening.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};

use super::handshake::{self, JoinedWorker};
use super::worker::keep_alive;

/// Handshakes at one time; further connections wait in the kernel.
const AT_ONCE: usize = 16;

/// What came of a connection.
pub(crate) enum HandshakeOutcome {
    /// A worker.
    Worker(Box<JoinedWorker>),
    /// Somebody else, or a worker that may not join: who, and one sentence.
    Stranger(SocketAddr, String),
}

/// See the module.
pub(crate) struct WorkerAcceptor {
    listeners: Vec<TcpListener>,
    token: String,
    results: Receiver<HandshakeOutcome>,
    tell: SyncSender<HandshakeOutcome>,
    /// Handshakes that are going on.
    busy: usize,
}

impl WorkerAcceptor {
    /// Listens on loopback, and at `listen` too. Workers must know the token.
    pub(crate) fn open(listen: Option<SocketAddr>, token: String) -> Result<Self> {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listeners = Vec::new();
        for address in std::iter::once(loopback).chain(listen) {
            let listener = TcpListener::bind(address).with_context(|| {
                format!("cannot listen on {address} for workers; choose another address with --listen")
            })?;
            listener.set_nonblocking(true)?;
            listeners.push(listener);
        }
        let (tell, results) = sync_channel(AT_ONCE);
        Ok(Self { listeners, token, results, tell, busy: 0 })
    }

    /// Where local workers join.
    pub(crate) fn local(&self) -> Result<SocketAddr> {
        Ok(self.listeners[0].local_addr()?)
    }

    /// Where workers of other machines join, if they may.
    pub(crate) fn public(&self) -> Option<SocketAddr> {
        self.listeners.get(1)?.local_addr().ok()
    }

    /// What has come since the last call; never waits.
    pub(crate) fn poll(&mut self) -> Vec<HandshakeOutcome> {
        let mut came = Vec::new();
        while let Ok(one) = self.results.try_recv() {
            self.busy -= 1;
            came.push(one);
        }
        for listener in &self.listeners {
            while self.busy < AT_ONCE {
                let (stream, from) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                let (tell, token) = (self.tell.clone(), self.token.clone());
                self.busy += 1;
                std::thread::spawn(move || {
                    let admit = || {
                        stream.set_nonblocking(false)?;
                        keep_alive(&stream)?;
                        handshake::admit(stream, &token)
                    };
                    let result = match admit() {
                        Ok(joined) => HandshakeOutcome::Worker(Box::new(joined)),
                        Err(error) => HandshakeOutcome::Stranger(from, format!("{error:#}")),
                    };
                    // The gate may be closed by now.
                    let _ = tell.send(result);
                });
            }
        }
        came
    }
}
