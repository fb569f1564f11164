//! Free disk space and size of the database. [`DiskMonitor::refresh`] updates them every half minute, since a hanging
//! disk must not block a request; all other code reads the last values.
//!
//! A database on a server has no values here.
//!
//! # Pitfalls
//!
//! Space that is free for root is not free for the node.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base::lock::LeafMutex;

/// Result of the last refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Bytes available to the node on the database's file system.
    pub(crate) free: u64,
    /// Size of that file system in bytes.
    pub(crate) size: u64,
    /// Bytes of the database, including what is not yet in its main file.
    pub(crate) database: u64,
}

/// Monitor of the disk that holds a database.
#[derive(Debug)]
pub(crate) struct DiskMonitor {
    database: Option<PathBuf>,
    latest: LeafMutex<Option<DiskUsage>>,
}

impl DiskMonitor {
    /// A monitor without values; `database` is the file, if the database is a file.
    pub(crate) fn new(database: Option<&Path>) -> DiskMonitor {
        DiskMonitor { database: database.map(Path::to_owned), latest: LeafMutex::default() }
    }

    /// The last values; `None` before the first refresh, or if the system did not report them.
    pub(crate) fn usage(&self) -> Option<DiskUsage> {
        *self.latest.lock()
    }

    /// Refreshes the values. Blocks as long as the disk does.
    pub(crate) fn refresh(&self) {
        let found = self.database.as_deref().and_then(read_disk_usage);
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
        // SQLite's log and its index are beside the file (https://sqlite.org/wal.html, section 2).
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
        let disk = DiskMonitor::new(Some(&file));
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
