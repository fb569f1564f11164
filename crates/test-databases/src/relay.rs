//! A TCP relay that is a link with a latency: bytes of both directions are delayed, and those behind them do not wait longer.
//!
//! Not implemented: the latency of a new connection, which the relay accepts at once.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Pieces of a direction that are on the way; a longer queue holds back the sender.
const PIECES: usize = 1_024;

/// A relay; it accepts no more connections when it is dropped.
#[derive(Debug)]
pub struct DelayRelay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    delay_micros: AtomicU64,
    ended: AtomicBool,
}

impl DelayRelay {
    /// Starts a relay to this server, on a free port of the server's own address and without a delay.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(server: SocketAddr) -> DelayRelay {
        let listener = TcpListener::bind((server.ip(), 0)).unwrap();
        let relay = DelayRelay { address: listener.local_addr().unwrap(), shared: Arc::default() };
        let shared = relay.shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                for stream in [&client, &server] {
                    let _ = stream.set_nodelay(true);
                }
                let (Ok(client_copy), Ok(server_copy)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                carry(client, server_copy, shared.clone());
                carry(server, client_copy, shared.clone());
            }
        });
        relay
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays each piece by this time, in each direction.
    pub fn delay(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay_micros.store(micros, Ordering::Release);
    }
}

impl Drop for DelayRelay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Carries one direction until its end, which is delayed, too.
fn carry(mut from: TcpStream, mut to: TcpStream, shared: Arc<Shared>) {
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(PIECES);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let due = Instant::now() + Duration::from_micros(shared.delay_micros.load(Ordering::Acquire));
            let piece = buffer.get(..length).unwrap_or_default().to_vec();
            if sender.send((due, piece)).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Read);
    });
    std::thread::spawn(move || {
        for (due, piece) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn bytes_are_delayed_and_those_behind_them_do_not_wait_longer() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = DelayRelay::start(server.local_addr().unwrap());
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        let delay = Duration::from_millis(200);
        relay.delay(delay);
        let begun = Instant::now();
        for piece in 0..10 {
            client.write_all(&[piece]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut read = [0; 10];
        accepted.read_exact(&mut read).unwrap();
        assert_eq!(read, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(begun.elapsed() >= delay && begun.elapsed() < 10 * delay, "{:?}", begun.elapsed());
        drop(client);
        assert_eq!(accepted.read(&mut read).unwrap(), 0);
    }
}
