//! Acceptor of worker connections: listeners, and a handshake with each client.
//!
//! Handshakes run on separate threads, few at a time, so that a silent unauthenticated client delays nobody.
//!
//! # Pitfalls
//!
//! The acceptor closes when the run begins; a worker that connects later finds no listener.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};

use super::handshake::{self, JoinedWorker};
use super::worker::keep_alive;

/// Maximum number of simultaneous handshakes; further connections wait in the kernel.
const AT_ONCE: usize = 16;

/// Result of a connection.
pub(crate) enum HandshakeOutcome {
    /// An authenticated worker.
    Worker(Box<JoinedWorker>),
    /// An unauthenticated client, or a worker that may not join: its address, and one sentence.
    Rejected(SocketAddr, String),
}

/// Listeners and pending handshakes.
pub(crate) struct WorkerAcceptor {
    listeners: Vec<TcpListener>,
    token: String,
    results: Receiver<HandshakeOutcome>,
    sender: SyncSender<HandshakeOutcome>,
    /// Handshakes in progress.
    busy: usize,
}

impl WorkerAcceptor {
    /// Listens on loopback, and on `listen` too. Workers must know the token.
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
        let (sender, results) = sync_channel(AT_ONCE);
        Ok(Self { listeners, token, results, sender, busy: 0 })
    }

    /// Address for local workers.
    pub(crate) fn local(&self) -> Result<SocketAddr> {
        Ok(self.listeners[0].local_addr()?)
    }

    /// Address for workers of other machines, if enabled.
    pub(crate) fn public(&self) -> Option<SocketAddr> {
        self.listeners.get(1)?.local_addr().ok()
    }

    /// Results since the last call; never waits.
    pub(crate) fn poll(&mut self) -> Vec<HandshakeOutcome> {
        let mut outcomes = Vec::new();
        while let Ok(one) = self.results.try_recv() {
            self.busy -= 1;
            outcomes.push(one);
        }
        for listener in &self.listeners {
            while self.busy < AT_ONCE {
                let (stream, from) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                let (sender, token) = (self.sender.clone(), self.token.clone());
                self.busy += 1;
                std::thread::spawn(move || {
                    let admit = || {
                        stream.set_nonblocking(false)?;
                        keep_alive(&stream)?;
                        handshake::admit(stream, &token)
                    };
                    let result = match admit() {
                        Ok(joined) => HandshakeOutcome::Worker(Box::new(joined)),
                        Err(error) => HandshakeOutcome::Rejected(from, format!("{error:#}")),
                    };
                    // The acceptor may be closed.
                    let _ = sender.send(result);
                });
            }
        }
        outcomes
    }
}
