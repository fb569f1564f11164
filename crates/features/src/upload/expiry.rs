//! The periodic job: removes expired files, and counts the bytes of the others.

use feature_api::periodic_job::PeriodicJobCtx;
use throng_core::file_storage::{FileDirectory, FileError, FileName, FilePath};

use super::Uploads;
use super::quota::occupied_bytes;
use super::signed_url::StoredName;

/// Seconds after which an unfinished file is one of an earlier process.
const UNFINISHED_SECONDS: u64 = 24 * 60 * 60;

/// Runs once. Every folder is read by itself, so that nothing is held for long. What cannot be read or removed does not stop
/// the rest; the first error is the result.
pub(super) async fn run(uploads: Uploads, ctx: PeriodicJobCtx) -> Result<(), String> {
    let Some(environment) = uploads.environment(&ctx.node, ctx.host.domain()) else { return Ok(()) };
    let (files, now) = (environment.files, environment.now);
    let mut failed = files.remove_unfinished(now.saturating_sub(UNFINISHED_SECONDS)).await.err();
    let before = uploads.quota.begin_count(now);
    let (mut bytes, mut removed) = (0_u64, 0_u64);
    for folder in files.folders().await.map_err(|error| error.to_string())? {
        match run_folder(&*files, folder, now).await {
            Ok(done) => {
                bytes = bytes.saturating_add(done.bytes);
                removed += done.removed;
                failed = failed.or(done.failed);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    uploads.quota.set_counted(bytes, before);
    if removed > 0 {
        tracing::debug!(domain = ctx.host.domain(), removed, bytes, "removed expired uploads");
    }
    failed.map_or(Ok(()), |error| Err(error.to_string()))
}

/// Result for one folder.
#[derive(Default)]
struct ExpiredFolder {
    /// Bytes of the files that remain.
    bytes: u64,
    removed: u64,
    failed: Option<FileError>,
}

async fn run_folder(
    files: &dyn FileDirectory,
    folder: FileName,
    now: u64,
) -> Result<ExpiredFolder, FileError> {
    let mut done = ExpiredFolder::default();
    for entry in files.list(&folder).await? {
        if StoredName::parse(&entry.name).is_some_and(|name| name.is_expired(now)) {
            match files.remove(&FilePath { folder: folder.clone(), name: entry.name }).await {
                Ok(_) => {
                    done.removed += 1;
                    continue;
                }
                Err(error) => done.failed = done.failed.or(Some(error)),
            }
        }
        done.bytes = done.bytes.saturating_add(occupied_bytes(entry.size));
    }
    Ok(done)
}
