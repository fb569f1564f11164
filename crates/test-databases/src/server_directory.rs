//! Directories, files and processes of servers, which run as `nobody` if the test runs as root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Id of the user and the group `nobody` on Debian.
const NOBODY: u32 = 65_534;

pub(crate) fn make_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("throng-db-{}-{count}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("cannot make a temporary directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    if is_root(&directory) {
        chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    directory
}

/// Whether this process runs as root: then root owns the files that it makes.
fn is_root(made: &Path) -> bool {
    fs::metadata(made).is_ok_and(|made| made.uid() == 0 || made.uid() == NOBODY && made.gid() == NOBODY)
        && fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

/// A command that runs as `nobody` if this process runs as root.
pub(crate) fn unprivileged(program: impl AsRef<std::ffi::OsStr>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("TZ", "UTC").env("LC_ALL", "C.UTF-8").env("HOME", directory);
    // MariaDB removes the temporary tables of others at its start.
    command.env("TMPDIR", directory);
    if is_root(directory) {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Writes a file that only the server may read.
pub(crate) fn write_private(directory: &Path, name: &str, text: &str) -> PathBuf {
    let file = directory.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    if is_root(directory) {
        chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    file
}
