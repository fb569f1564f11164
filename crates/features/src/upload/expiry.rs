//! The periodic job: removes expired files, and counts the bytes of the others.

use throng_core::periodic_job::PeriodicJobCtx;

use super::Uploads;
use super::quota::occupied_bytes;
use super::signed_url::StoredName;

/// Runs once. Every folder is read by itself, so that nothing is held for long.
pub(super) async fn run(uploads: Uploads, ctx: PeriodicJobCtx) -> Result<(), String> {
    let Some(environment) = uploads.environment(&ctx.node, ctx.host.domain()) else { return Ok(()) };
    let files = environment.files;
    files.remove_unfinished().await.map_err(|error| error.to_string())?;
    let before = uploads.quota.begin_count(environment.now);
    let (mut bytes, mut removed) = (0_u64, 0_u64);
    for folder in files.folders().await.map_err(|error| error.to_string())? {
        for entry in files.list(&folder).await.map_err(|error| error.to_string())? {
            let expired = StoredName::parse(&entry.name).is_some_and(|name| name.is_expired(environment.now));
            if expired {
                let path = throng_core::file_storage::FilePath { folder: folder.clone(), name: entry.name };
                files.remove(&path).await.map_err(|error| error.to_string())?;
                removed += 1;
            } else {
                bytes = bytes.saturating_add(occupied_bytes(entry.size));
            }
        }
    }
    uploads.quota.set_counted(bytes, before);
    if removed > 0 {
        tracing::debug!(domain = ctx.host.domain(), removed, bytes, "removed expired uploads");
    }
    Ok(())
}
