//! What is left of the disk, and how large the database is. Looked up every half minute by [`Disk::look`], for a disk that does
//! not answer must not hold a request; everybody else reads what was found last.
//!
//! Left out: databases that are not files of this machine, of which there are none. The trap: what is free for root is not
//! free for the node.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes that the node may still write where its database is.
    pub(crate) free: u64,
    /// Bytes of that file system.
    pub(crate) size: u64,
    /// Bytes of the database, with what is not yet in its main file.
    pub(crate) database: u64,
}

/// The disk under a database.
#[derive(Debug)]
pub(crate) struct Disk {
    database: PathBuf,
    found: Mutex<Option<Space>>,
}

impl Disk {
    /// Nothing is looked up yet.
    pub(crate) fn new(database: &Path) -> Disk {
        Disk { database: database.to_owned(), found: Mutex::default() }
    }

    /// What was found last; nothing before that, or if the system did not say.
    pub(crate) fn space(&self) -> Option<Space> {
        *self.found.lock()
    }

    /// Looks again. It may take as long as the disk takes.
    pub(crate) fn look(&self) {
        let found = space(&self.database);
        *self.found.lock() = found;
    }
}

fn space(database: &Path) -> Option<Space> {
    let disk = rustix::fs::statvfs(database).ok()?;
    let bytes = |end: &str| {
        let mut name = OsString::from(database);
        name.push(end);
        std::fs::metadata(name).map_or(0, |found| found.len())
    };
    Some(Space {
        free: disk.f_bavail.saturating_mul(disk.f_frsize),
        size: disk.f_blocks.saturating_mul(disk.f_frsize),
        // SQLite's log and its index stand beside the file (https://sqlite.org/wal.html section 2).
        database: ["", "-wal", "-shm"].into_iter().map(bytes).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_measured_with_its_log_and_nothing_is_no_disk() {
        let folder = std::env::temp_dir().join(format!("throng-disk-{}", base::id::random_id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("throng.db");
        let disk = Disk::new(&file);
        disk.look();
        assert_eq!(disk.space(), None, "there is no such file");
        std::fs::write(&file, [0; 700]).unwrap();
        std::fs::write(folder.join("throng.db-wal"), [0; 50]).unwrap();
        disk.look();
        let found = disk.space().unwrap();
        assert_eq!(found.database, 750);
        assert!(found.free <= found.size && found.size > 750, "{found:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
