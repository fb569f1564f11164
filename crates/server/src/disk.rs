//! What is left of the disk, and how large the database is. Looked up every half minute by [`DiskMonitor::refresh`], for a disk that does
//! not answer must not hold a request; everybody else reads what was found last.
//!
//! Left out: databases that are not files of this machine, of which there are none. The trap: what is free for root is not
//! free for the node.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Bytes that the node may still write where its database is.
    pub(crate) free: u64,
    /// Bytes of that file system.
    pub(crate) size: u64,
    /// Bytes of the database, with what is not yet in its main file.
    pub(crate) database: u64,
}

/// The disk under a database.
#[derive(Debug)]
pub(crate) struct DiskMonitor {
    database: PathBuf,
    latest: Mutex<Option<DiskUsage>>,
}

impl DiskMonitor {
    /// Nothing is looked up yet.
    pub(crate) fn new(database: &Path) -> DiskMonitor {
        DiskMonitor { database: database.to_owned(), latest: Mutex::default() }
    }

    /// What was found last; nothing before that, or if the system did not say.
    pub(crate) fn usage(&self) -> Option<DiskUsage> {
        *self.latest.lock()
    }

    /// Looks again. It may take as long as the disk takes.
    pub(crate) fn refresh(&self) {
        let found = read_disk_usage(&self.database);
        *self.latest.lock() = found;
    }
}

fn read_disk_usage(database: &Path) -> Option<DiskUsage> {
    let disk = rustix::fs::statvfs(database).ok()?;
    let bytes = |end: &str| {
        let mut name = OsString::from(database);
        name.push(end);
        std::fs::metadata(name).map_or(0, |found| found.len())
    };
    Some(DiskUsage {
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
    fn database_size_includes_the_wal_and_a_missing_path_has_no_usage() {
        let folder = std::env::temp_dir().join(format!("throng-disk-{}", base::id::random_id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("throng.db");
        let disk = DiskMonitor::new(&file);
        disk.refresh();
        assert_eq!(disk.usage(), None, "there is no such file");
        std::fs::write(&file, [0; 700]).unwrap();
        std::fs::write(folder.join("throng.db-wal"), [0; 50]).unwrap();
        disk.refresh();
        let found = disk.usage().unwrap();
        assert_eq!(found.database, 750);
        assert!(found.free <= found.size && found.size > 750, "{found:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
