//! Copies of a database while programs use it.
//!
//! SQLite writes the copy in one read transaction (`VACUUM INTO`), which blocks neither readers nor writers of a database
//! in WAL mode. The copy has a temporary name until it is complete and on the disk.
//!
//! Not implemented: databases on servers, which have their own tools (docs/backup.md).
//!
//! # Pitfalls
//!
//! The write-ahead log cannot be checkpointed beyond the read transaction, so it grows while the copy is written.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use store::StoreError;

use crate::error::{self, setup};
use crate::location::Location;

/// Writes a copy of the database of a URL to a new file, readable by its owner only. Returns its size in bytes.
///
/// # Errors
/// `Setup` with one sentence if there is no database, or if the file exists or cannot be created; errors of the database.
pub async fn backup(url: &str, target: &Path) -> Result<u64, StoreError> {
    let location = Location::parse(url)?;
    let Some(path) = location.path() else {
        let shown = location.shown();
        return Err(setup(format!(
            "{shown} is not a file; copy it with pg_dump or mariadb-dump, see docs/backup.md"
        )));
    };
    if !path.is_file() {
        return Err(setup(format!("the database {} does not exist", path.display())));
    }
    // A link whose target is missing is there, too.
    if target.symlink_metadata().is_ok() {
        return Err(setup(format!("{} exists; name a file that does not", target.display())));
    }
    let partial = partial_name(target);
    let cannot =
        |error: std::io::Error| setup(format!("cannot write {}", target.display())).with_source(error);
    // SQLite accepts an empty file, and keeps its permissions.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).map_err(cannot)?;
    let written = write_copy(path, &partial).await;
    let finished = written.and_then(|()| finish(&partial, target).map_err(cannot));
    if finished.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    finished
}

async fn write_copy(path: &Path, partial: &Path) -> Result<(), StoreError> {
    let text = partial.to_str().ok_or_else(|| setup("the name of the file is not UTF-8"))?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .busy_timeout(Duration::from_secs(5))
        .disable_statement_logging();
    let mut conn: SqliteConnection = options.connect().await.map_err(error::from_sqlx)?;
    let copied = sqlx::query("VACUUM INTO ?").bind(text).execute(&mut conn).await;
    let closed = conn.close().await;
    copied.map_err(error::from_sqlx)?;
    closed.map_err(error::from_sqlx)
}

/// Makes the copy durable and gives it its name.
fn finish(partial: &Path, target: &Path) -> std::io::Result<u64> {
    let file = File::open(partial)?;
    file.sync_all()?;
    let size = file.metadata()?.len();
    std::fs::rename(partial, target)?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(size)
}

fn partial_name(target: &Path) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(".partial");
    PathBuf::from(name)
}
