//! A server with faults, in threads of its own: what it answers is up to a test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs, each using a part")]

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use base::lock::LeafMutex;
use environment::account_provider::conformance::SourceFault;

/// The protocol of a server.
pub trait Protocol: Send + Sync + 'static {
    /// Reads one request; an error ends the connection.
    fn read(&self, stream: &mut TcpStream) -> io::Result<Vec<u8>>;
    /// The bytes of the response; none ends the connection.
    fn answer(&self, request: &[u8]) -> Vec<u8>;
}

/// A server on a port of its own.
pub struct FaultyServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    protocol: Arc<dyn Protocol>,
    fault: LeafMutex<Option<SourceFault>>,
    connections: LeafMutex<Vec<TcpStream>>,
    /// Increased when the listener must end.
    generation: AtomicU64,
    /// Requests that were answered.
    answered: AtomicU64,
    /// Connections that were accepted.
    accepted: AtomicU64,
}

impl FaultyServer {
    pub fn start(protocol: Arc<dyn Protocol>) -> FaultyServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            protocol,
            fault: LeafMutex::new(None),
            connections: LeafMutex::default(),
            generation: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
        });
        accept(listener, shared.clone(), 0);
        FaultyServer { address, shared }
    }

    /// Switches a fault on or off. All connections are closed, so that it concerns every later request.
    pub fn set_fault(&self, fault: Option<SourceFault>) {
        let before = std::mem::replace(&mut *self.shared.fault.lock(), fault);
        if fault == Some(SourceFault::Dead) {
            self.stop();
        } else if before == Some(SourceFault::Dead) {
            let listener = TcpListener::bind(self.address).unwrap();
            accept(listener, self.shared.clone(), self.shared.generation.load(Ordering::SeqCst));
        }
        self.close_connections();
    }

    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }

    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Closes the connections, as a server does that restarts.
    pub fn close_connections(&self) {
        for connection in self.shared.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Ends the listener. A connection wakes its thread.
    fn stop(&self) {
        self.shared.generation.fetch_add(1, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        // Until the thread has closed the listener.
        while TcpStream::connect(self.address).is_ok() {
            thread::yield_now();
        }
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        if *self.shared.fault.lock() != Some(SourceFault::Dead) {
            self.stop();
        }
        self.close_connections();
    }
}

fn accept(listener: TcpListener, shared: Arc<Shared>, generation: u64) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.generation.load(Ordering::SeqCst) != generation {
                return;
            }
            let Ok(stream) = stream else { continue };
            shared.accepted.fetch_add(1, Ordering::SeqCst);
            if let Ok(copy) = stream.try_clone() {
                shared.connections.lock().push(copy);
            }
            let shared = shared.clone();
            thread::spawn(move || {
                // The other end may be gone; then there is nothing to do.
                let _ = serve(stream, &shared);
            });
        }
    });
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    // A thread must end although a test fails.
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    loop {
        let request = shared.protocol.read(&mut stream)?;
        let fault = *shared.fault.lock();
        let answer = match fault {
            Some(SourceFault::Silent) => continue,
            Some(SourceFault::Garbage) => b"\x00\xff220 this is no answer\r\n\r\n".to_vec(),
            None | Some(SourceFault::Dead | SourceFault::Cut) => shared.protocol.answer(&request),
        };
        if answer.is_empty() {
            return stream.shutdown(Shutdown::Both);
        }
        if fault == Some(SourceFault::Cut) {
            stream.write_all(&answer[..answer.len() / 2])?;
            return stream.shutdown(Shutdown::Both);
        }
        // Before the client has the response and looks at the count.
        shared.answered.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&answer)?;
        if fault == Some(SourceFault::Garbage) {
            return stream.shutdown(Shutdown::Both);
        }
    }
}

/// Runs a case of the conformance suite.
pub fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}
