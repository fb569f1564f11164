//! Free loopback ports for the servers of a test.
//!
//! They are below the range from which the system takes ports of outgoing connections (32 768 and above on Linux): a connection
//! of another test would otherwise take a port between the choice and the start of the server, or while a server restarts.
//!
//! # Pitfalls
//!
//! A port was free when it was chosen; a program that listens on a fixed port may take it before the server does.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_240;
const COUNT: u32 = 22_000;
/// Ports for each process until another process may use the same ones.
const PER_PROCESS: u32 = 211;

/// `N` different ports. This process does not choose them again soon.
///
/// # Panics
/// If no port is free.
pub fn free<const N: usize>() -> [u16; N] {
    [(); N].map(|()| {
        static CHOSEN: AtomicU32 = AtomicU32::new(0);
        (0..COUNT)
            .find_map(|_| {
                let chosen = CHOSEN.fetch_add(1, Ordering::Relaxed);
                let place = std::process::id().wrapping_mul(PER_PROCESS).wrapping_add(chosen) % COUNT;
                let port = u16::try_from(FIRST + place).ok()?;
                TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
            })
            .expect("a port")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_below_those_of_outgoing_connections() {
        let mut all: Vec<u16> = (0..50).flat_map(|_| free::<3>()).collect();
        assert!(all.iter().all(|port| (10_240..32_768).contains(port)), "{all:?}");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 150);
    }
}
