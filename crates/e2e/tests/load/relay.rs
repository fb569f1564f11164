//! Relay between clients and a node that drops connections on request, as a failing network does.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Stops when dropped.
pub(crate) struct CuttableRelay {
    pub(crate) address: SocketAddr,
    /// Number of connections to cut; closed when the relay is dropped.
    cut: Option<mpsc::Sender<usize>>,
    thread: Option<JoinHandle<()>>,
}

impl CuttableRelay {
    /// Forwards connections from a free loopback port.
    pub(crate) fn start(target: &str) -> CuttableRelay {
        let target: SocketAddr = target.parse().expect("an address");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("a bound port");
        let (cut, cuts) = mpsc::channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(relay(listener, target, cuts));
        });
        CuttableRelay { address, cut: Some(cut), thread: Some(thread) }
    }

    /// Drops the oldest `count` open connections in both directions, with the data in flight.
    pub(crate) fn cut(&self, count: usize) {
        self.cut.as_ref().expect("a relay").blocking_send(count).expect("a running relay");
    }
}

impl Drop for CuttableRelay {
    fn drop(&mut self) {
        self.cut = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn relay(listener: std::net::TcpListener, target: SocketAddr, mut cuts: mpsc::Receiver<usize>) {
    let listener = TcpListener::from_std(listener).expect("a socket");
    let mut tasks = JoinSet::new();
    let mut connections = Vec::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut client, _) = accepted.expect("a connection");
                connections.push(tasks.spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }));
            }
            count = cuts.recv() => {
                let Some(count) = count else { return };
                // The generator's reachability check made a connection that has ended.
                connections.retain(|connection: &AbortHandle| !connection.is_finished());
                assert!(connections.len() >= count, "only {} connections", connections.len());
                connections.drain(..count).for_each(|connection| connection.abort());
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}
