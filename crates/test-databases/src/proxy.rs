//! A TCP proxy between a client and a database server.
//!
//! A round trip is a burst of bytes from the client that is followed by bytes of the server. The protocols of the
//! databases are half-duplex, so that counts what the network sees, whatever the client library does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    round_trips: AtomicU64,
    delay_micros: AtomicU64,
    refusing: AtomicBool,
    ended: AtomicBool,
    /// Number of the period; connections of an earlier one carry nothing.
    period: AtomicU64,
    /// Text in a request after which the connection is cut, once the server has answered and before the client has
    /// the answer.
    cut_after: Mutex<Option<Vec<u8>>>,
    /// The server does not get the request.
    cut_before_request: AtomicBool,
    /// Further connections are refused, too.
    refuse_after_cut: AtomicBool,
    cuts: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy to this server.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if own.ended.load(Ordering::Acquire) {
                    return;
                }
                let Ok(client) = client else { continue };
                if own.refusing.load(Ordering::Acquire) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                carry(client, server, &own);
            }
        });
        Proxy { address, shared }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Round trips so far.
    pub fn round_trips(&self) -> u64 {
        self.shared.round_trips.load(Ordering::Acquire)
    }

    /// Delays each answer.
    pub fn delay(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay_micros.store(micros, Ordering::Release);
    }

    /// Keeps all connections open, but carries nothing over them, as if the server had lost its power. Later
    /// connections work. The server does not learn that the client has closed one of them.
    pub fn strand(&self) {
        self.shared.period.fetch_add(1, Ordering::AcqRel);
    }

    /// Cuts all connections and refuses further ones, or accepts them again.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::Release);
        if refuse {
            self.cut();
        }
    }

    /// Refuses further connections, or accepts them again; those that are open stay so.
    pub fn refuse_new(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::Release);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the next connection whose request contains this text, after the server has answered the request and before
    /// the client has the answer.
    pub fn cut_answer_to(&self, text: &str) {
        *self.shared.cut_after.lock().unwrap() = Some(text.as_bytes().to_vec());
    }

    /// As [`Self::cut_answer_to`], and refuses all connections from then on.
    pub fn cut_answer_and_refuse(&self, text: &str) {
        self.shared.refuse_after_cut.store(true, Ordering::Release);
        self.cut_answer_to(text);
    }

    /// As [`Self::cut_answer_and_refuse`], and the server does not get the request.
    pub fn cut_request_and_refuse(&self, text: &str) {
        self.shared.cut_before_request.store(true, Ordering::Release);
        self.cut_answer_and_refuse(text);
    }

    /// Connections cut by [`Self::cut_answer_to`].
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// A connection is cut because of its request.
    fn count_cut(&self) {
        if self.refuse_after_cut.swap(false, Ordering::AcqRel) {
            self.refusing.store(true, Ordering::Release);
        }
        self.cuts.fetch_add(1, Ordering::AcqRel);
    }
}

fn carry(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) {
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
        shared.streams.lock().unwrap().extend(stream.try_clone());
    }
    let (Ok(mut from_client), Ok(mut to_server)) = (client.try_clone(), server.try_clone()) else { return };
    let requested = Arc::new(AtomicBool::new(false));
    let cut_next = Arc::new(AtomicBool::new(false));
    let period = shared.period.load(Ordering::Acquire);
    let (own, sent, cut) = (shared.clone(), requested.clone(), cut_next.clone());
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_client.read(&mut buffer) {
            let Some(bytes) = buffer.get(..length) else { break };
            let mut cut_after = own.cut_after.lock().unwrap();
            if cut_after.as_ref().is_some_and(|text| bytes.windows(text.len()).any(|part| part == text)) {
                *cut_after = None;
                if own.cut_before_request.swap(false, Ordering::AcqRel) {
                    own.count_cut();
                    let _ = (from_client.shutdown(Shutdown::Both), to_server.shutdown(Shutdown::Both));
                    break;
                }
                cut.store(true, Ordering::Release);
            }
            drop(cut_after);
            if own.period.load(Ordering::Acquire) != period {
                continue;
            }
            sent.store(true, Ordering::Release);
            if to_server.write_all(bytes).is_err() {
                break;
            }
        }
        if own.period.load(Ordering::Acquire) == period {
            let _ = to_server.shutdown(Shutdown::Both);
        }
    });
    let own = shared.clone();
    std::thread::spawn(move || {
        let (mut server, mut client) = (server, client);
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            if requested.swap(false, Ordering::AcqRel) {
                own.round_trips.fetch_add(1, Ordering::AcqRel);
                if cut_next.load(Ordering::Acquire) {
                    own.count_cut();
                    break;
                }
                let delay = own.delay_micros.load(Ordering::Acquire);
                if delay > 0 {
                    std::thread::sleep(Duration::from_micros(delay));
                }
            }
            if buffer.get(..length).is_none_or(|bytes| client.write_all(bytes).is_err()) {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    });
}
