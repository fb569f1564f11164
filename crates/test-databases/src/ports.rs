//! Free loopback ports for the servers of a test.
//!
//! They are below the range from which the system takes ports of outgoing connections (32 768 and above on Linux): a connection
//! of another test would otherwise take a port between the choice and the start of the server, or while a server restarts.
//! For the same reason each process has blocks of ports of its own, by locked files in the temporary directory: test programs
//! run at the same time. The system releases the lock at the end of the process.
//!
//! # Pitfalls
//!
//! A port was free when it was chosen; a program that listens on a fixed port may take it before the server does.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

const FIRST: u16 = 10_240;
/// Ports of a block.
const BLOCK: u16 = 200;
const BLOCKS: u16 = 110;

/// The blocks of this process, and the ports that it has not chosen yet.
struct PortBlocks {
    locks: Vec<File>,
    unused: Range<u16>,
}

static OWN: Mutex<PortBlocks> = Mutex::new(PortBlocks { locks: Vec::new(), unused: 0..0 });

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
                Some(port) if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() => return port,
                Some(_) => {}
                None => {
                    let (lock, ports) = lock_block().expect("a block of ports that no other process has");
                    own.locks.push(lock);
                    own.unused = ports;
                }
            }
        }
    })
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

    #[test]
    fn ports_are_different_and_below_those_of_outgoing_connections() {
        let mut all: Vec<u16> = (0..100).flat_map(|_| free::<3>()).collect();
        assert!(all.iter().all(|port| (10_240..32_768).contains(port)), "{all:?}");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300);
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
