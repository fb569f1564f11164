//! Free loopback ports for the nodes of a test.
//!
//! # Pitfalls
//!
//! A port was free when it was chosen; another process may take it before the node does.

use std::net::{Ipv4Addr, TcpListener};

/// `N` different ports.
///
/// # Panics
/// If no port is free.
pub fn free<const N: usize>() -> [u16; N] {
    // All are bound until the last is found; otherwise the system could return one twice.
    let all = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    all.map(|listener| listener.local_addr().expect("a bound port").port())
}
