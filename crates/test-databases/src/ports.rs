//! Free loopback ports for the servers of a test.
//!
//! An outgoing connection of another test must not take a port between the choice and the start of the server, or while a server
//! restarts. The process therefore keeps a socket bound to each chosen port. It does not listen and has `SO_REUSEADDR`, so a
//! server with this option can listen there, but Linux selects the port neither for an outgoing connection nor for port 0.
//!
//! Each process has blocks of ports of its own, by locked files in the temporary directory: test programs run at the same time.
//! The system releases the lock at the end of the process.
//!
//! # Pitfalls
//!
//! A program that listens on a fixed port may take a chosen port before the server does. The bound sockets have no effect in
//! other network namespaces.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use socket2::{Domain, Socket, Type};

const FIRST: u16 = 10_240;
/// Ports of a block.
const BLOCK: u16 = 200;
const BLOCKS: u16 = 110;

/// The blocks of this process, and the ports that it has not chosen yet.
struct PortBlocks {
    locks: Vec<File>,
    unused: Range<u16>,
    /// One for each chosen port.
    bound: Vec<Socket>,
}

static OWN: Mutex<PortBlocks> = Mutex::new(PortBlocks { locks: Vec::new(), unused: 0..0, bound: Vec::new() });

/// `N` different ports. This process does not choose them again, and no other one does while this one lives.
///
/// # Panics
/// If no port is free.
pub fn free<const N: usize>() -> [u16; N] {
    // After a panic the blocks are as they were before.
    let mut own = OWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    [(); N].map(|()| {
        loop {
            match own.unused.next() {
                Some(port) => {
                    if let Some(socket) = bind(port) {
                        own.bound.push(socket);
                        return port;
                    }
                }
                None => {
                    let (lock, ports) = lock_block().expect("a block of ports that no other process has");
                    own.locks.push(lock);
                    own.unused = ports;
                }
            }
        }
    })
}

/// A socket that is bound to the port and does not listen, if nothing else uses the port.
fn bind(port: u16) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.set_reuse_address(true).ok()?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).ok()?;
    Some(socket)
}

/// A block that no other process has, and its lock.
fn lock_block() -> Option<(File, Range<u16>)> {
    let folder = std::env::temp_dir().join("throng-test-ports");
    // It may exist; then users other than its owner need the permission to write.
    if fs::create_dir(&folder).is_ok() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o777));
    }
    // Different beginnings, so that ports of a process that has just ended are not chosen again at once.
    let start = std::process::id() % u32::from(BLOCKS);
    (0..BLOCKS).find_map(|number| {
        let number = u16::try_from((u32::from(number) + start) % u32::from(BLOCKS)).ok()?;
        // A file of another user can be locked without the permission to write.
        let path = folder.join(number.to_string());
        let file = File::open(&path).or_else(|_| File::create(&path)).ok()?;
        file.try_lock().ok()?;
        let first = FIRST + number * BLOCK;
        Some((file, first..first + BLOCK))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn ports_are_different() {
        let mut all: Vec<u16> = (0..100).flat_map(|_| free::<3>()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300);
    }

    #[test]
    fn a_server_can_listen_and_restart_on_a_chosen_port_and_nothing_else_gets_it() {
        let [port] = free();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        for _ in 0..2 {
            let server = TcpListener::bind(address).unwrap();
            assert!(bind(port).is_none(), "a port with a listener is in use");
            let client = TcpStream::connect(address).unwrap();
            // The server closes first, so that its side of the connection waits for late packets at the restart.
            drop(server.accept().unwrap());
            drop(client);
        }
        // Not even a connection that asks for this port without SO_REUSEADDR.
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        assert!(client.bind(&address.into()).is_err());
    }

    #[test]
    fn a_locked_block_is_not_given_to_another_process() {
        let (first, ports) = lock_block().unwrap();
        let (_second, others) = lock_block().unwrap();
        // Locks belong to open files, so this process is refused like another one.
        assert_ne!(ports, others);
        drop(first);
    }
}
