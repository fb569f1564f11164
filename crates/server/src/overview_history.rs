//! Persistence of the overview's last hour in `data_dir`: read at the start, written every minute and at shutdown.
//!
//! It is written to a temporary file and renamed, so a reader finds the old or the new one.
//!
//! Not implemented: syncing to the disk; a file that a power failure truncates is detected by its checksum and
//! ignored.
//!
//! # Pitfalls
//!
//! The history is a convenience, so no failure here may prevent a node from starting or stopping.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Api;
use api::overview::persistence::MAX_FILE_BYTES;

/// Seconds between two writes.
pub(crate) const SAVE_INTERVAL_SECONDS: u64 = 60;

/// Path of the file.
pub(crate) fn history_path(data_dir: &Path) -> PathBuf {
    data_dir.join("overview.history")
}

/// Restores the history that an earlier process wrote.
pub(crate) fn read(path: &Path, api: &Api) {
    let found = match load(path) {
        Ok(bytes) => api.restore_history(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => Err(error),
    };
    if let Err(error) = found {
        let file = path.display();
        tracing::warn!(%error, %file, "cannot read the saved metrics history of the overview; starting an \
         empty one");
    }
}

fn load(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large"));
    }
    Ok(bytes)
}

/// Writes the history, on a thread that may block on the disk.
pub(crate) async fn write(path: &Path, api: &Arc<Api>) {
    let (path, api) = (path.to_owned(), api.clone());
    let work = tokio::task::spawn_blocking(move || {
        let Some(bytes) = api.save_history()? else { return Ok(()) };
        write_file(&path, &bytes)
    });
    if let Ok(Err(error)) = work.await {
        tracing::warn!(%error, "cannot save the metrics history of the overview");
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("history.new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(&temporary, path)
}
