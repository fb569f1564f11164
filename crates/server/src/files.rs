//! Files of features on the disk; see [`throng_core::file_storage`].
//!
//! A file is written under a temporary name, synchronised and renamed, then its folder and the folders above are
//! synchronised. Names that begin with a dot are unfinished: `.FILE.RANDOM` is being written, `.removed.RANDOM` is being
//! removed. Only the user of the process can read the files.
//!
//! # Pitfalls
//!
//! There are few threads for files, so an operation uses one for one chunk at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use feature_api::http_route::{HttpBodyError, HttpRouteBody};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use throng_core::file_storage::{
    FileDirectory, FileEntry, FileError, FileFuture, FileName, FilePath, FileStorage,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Bytes that are read or written at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Prefix of folders that are being removed.
const REMOVED: &str = ".removed.";

/// Directories below the data directory.
pub(crate) struct DiskStorage {
    data_dir: PathBuf,
    runtime: Handle,
}

impl DiskStorage {
    /// Storage for a data directory.
    pub(crate) fn new(data_dir: &Path, runtime: Handle) -> DiskStorage {
        DiskStorage { data_dir: data_dir.to_owned(), runtime }
    }
}

impl FileStorage for DiskStorage {
    fn directory(&self, path: &str) -> Arc<dyn FileDirectory> {
        let (data_dir, root) = (self.data_dir.clone(), self.data_dir.join(path));
        Arc::new(DiskDirectory { data_dir, root, runtime: self.runtime.clone() })
    }
}

#[derive(Clone)]
struct DiskDirectory {
    data_dir: PathBuf,
    root: PathBuf,
    runtime: Handle,
}

impl DiskDirectory {
    fn folder(&self, folder: &FileName) -> PathBuf {
        self.root.join(folder.as_str())
    }

    fn file(&self, file: &FilePath) -> PathBuf {
        self.folder(&file.folder).join(file.name.as_str())
    }

    /// Runs an operation on a thread that may block.
    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> io::Result<T> + Send + 'static) -> FileFuture<T> {
        let task = self.runtime.spawn_blocking(job);
        Box::pin(async move {
            match task.await {
                Ok(done) => done.map_err(file_error),
                Err(_) => Err(FileError::Disk("the node is stopping".to_owned())),
            }
        })
    }
}

fn file_error(error: io::Error) -> FileError {
    match error.kind() {
        ErrorKind::AlreadyExists => FileError::Exists,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::DiskFull,
        _ => FileError::Disk(error.to_string()),
    }
}

/// A missing file or folder is no error.
fn if_present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes an unfinished file when it is dropped.
struct UnfinishedFile {
    path: PathBuf,
    runtime: Handle,
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        drop(self.runtime.spawn_blocking(move || std::fs::remove_file(path)));
    }
}

impl FileDirectory for DiskDirectory {
    fn write(&self, file: &FilePath, size: u64, body: HttpRouteBody) -> FileFuture<()> {
        let (directory, folder, target) = (self.clone(), self.folder(&file.folder), self.file(file));
        let name = format!(".{}.{}", file.name.as_str(), base::id::random_id());
        Box::pin(async move {
            let path = folder.join(name);
            let (exists, created, runtime) = (target.clone(), path.clone(), directory.runtime.clone());
            let (data_dir, root) = (directory.data_dir.clone(), directory.root.clone());
            // The result of a job that nobody awaits any more is dropped, and with it the file.
            let open = directory.run(move || {
                create_folders(&data_dir, &folder)?;
                if exists.exists() {
                    return Err(ErrorKind::AlreadyExists.into());
                }
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&created)?;
                Ok((file, UnfinishedFile { path: created, runtime }))
            });
            let (mut open_file, unfinished) = open.await?;
            let mut body = body;
            let (mut left, mut chunks, mut buffered) = (size, Vec::new(), 0);
            while let Some(chunk) = body.chunk().await {
                let chunk = chunk?;
                left = left.checked_sub(chunk.len() as u64).ok_or(FileError::WrongSize)?;
                buffered += chunk.len();
                chunks.push(chunk);
                if buffered >= CHUNK_BYTES {
                    let full = std::mem::take(&mut chunks);
                    buffered = 0;
                    open_file = directory.run(move || append(open_file, &full)).await?;
                }
            }
            if left != 0 {
                return Err(FileError::WrongSize);
            }
            let publish = directory.run(move || {
                append(open_file, &chunks)?.sync_all()?;
                rename_new(&path, &target)?;
                sync_folder(&target)?;
                File::open(root)?.sync_all()
            });
            publish.await?;
            drop(unfinished);
            Ok(())
        })
    }

    fn size(&self, file: &FilePath) -> FileFuture<Option<u64>> {
        let path = self.file(file);
        self.run(move || Ok(if_present(std::fs::metadata(path))?.map(|found| found.len())))
    }

    fn read(&self, file: &FilePath, range: Range<u64>) -> FileFuture<Option<HttpRouteBody>> {
        let (path, runtime) = (self.file(file), self.runtime.clone());
        let length = range.end.saturating_sub(range.start);
        self.run(move || {
            if if_present(File::open(&path))?.is_none() {
                return Ok(None);
            }
            let (path, position) = (path.into(), range.start);
            let chunks =
                Box::pin(FileChunks { state: ReadState::Idle, path, position, left: length, runtime });
            Ok(Some(HttpRouteBody::Stream { chunks, length: Some(length) }))
        })
    }

    fn remove(&self, file: &FilePath) -> FileFuture<bool> {
        let path = self.file(file);
        self.run(move || Ok(if_present(std::fs::remove_file(path))?.is_some()))
    }

    fn list(&self, folder: &FileName) -> FileFuture<Vec<FileEntry>> {
        let path = self.folder(folder);
        self.run(move || {
            let mut files = Vec::new();
            let Some(entries) = if_present(std::fs::read_dir(path))? else { return Ok(files) };
            for entry in entries {
                let entry = entry?;
                let Some(name) = entry.file_name().to_str().and_then(FileName::new) else { continue };
                // It may have been removed meanwhile.
                let Some(metadata) = if_present(entry.metadata())? else { continue };
                files.push(FileEntry { name, size: metadata.len() });
            }
            Ok(files)
        })
    }

    fn folders(&self) -> FileFuture<Vec<FileName>> {
        let root = self.root.clone();
        self.run(move || {
            let mut folders = Vec::new();
            let Some(entries) = if_present(std::fs::read_dir(root))? else { return Ok(folders) };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.extend(entry.file_name().to_str().and_then(FileName::new));
                }
            }
            Ok(folders)
        })
    }

    fn remove_folder(&self, folder: &FileName) -> FileFuture<()> {
        let path = self.folder(folder);
        let removed = self.root.join(format!("{REMOVED}{}", base::id::random_id()));
        self.run(move || {
            // First out of the way, so that a write cannot finish in it.
            if if_present(std::fs::rename(path, &removed))?.is_some() {
                std::fs::remove_dir_all(removed)?;
            }
            Ok(())
        })
    }

    fn remove_unfinished(&self, since: u64) -> FileFuture<()> {
        let root = self.root.clone();
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since));
        self.run(move || {
            let Some(entries) = if_present(std::fs::read_dir(root))? else { return Ok(()) };
            let mut failed = None;
            for folder in entries {
                let folder = folder?;
                if !folder.file_type()?.is_dir() {
                    continue;
                }
                let done = match folder.file_name().to_str() {
                    Some(name) if name.starts_with(REMOVED) => {
                        if_present(std::fs::remove_dir_all(folder.path())).map(drop)
                    }
                    _ => remove_unfinished_of(&folder.path(), since),
                };
                failed = failed.or(done.err());
            }
            failed.map_or(Ok(()), Err)
        })
    }
}

/// Removes the unfinished files of a folder that nobody wrote to since a time; `None`: at any time.
fn remove_unfinished_of(folder: &Path, since: Option<SystemTime>) -> io::Result<()> {
    let Some(files) = if_present(std::fs::read_dir(folder))? else { return Ok(()) };
    for file in files {
        let file = file?;
        if !file.file_name().to_str().is_some_and(|name| name.starts_with('.')) {
            continue;
        }
        let Some(metadata) = if_present(file.metadata())? else { continue };
        if since.is_none_or(|since| metadata.modified().is_ok_and(|written| written < since)) {
            if_present(std::fs::remove_file(file.path()))?;
        }
    }
    Ok(())
}

fn append(mut file: File, chunks: &[Bytes]) -> io::Result<File> {
    for chunk in chunks {
        file.write_all(chunk)?;
    }
    Ok(file)
}

/// Creates the folders between a folder, which exists, and one below it, so that they survive a crash.
fn create_folders(above: &Path, folder: &Path) -> io::Result<()> {
    if folder == above || folder.is_dir() {
        return Ok(());
    }
    let Some(parent) = folder.parent() else { return Ok(()) };
    create_folders(above, parent)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

/// Renames a file, unless the new name exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems lack it, such as NFS.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if !to.exists() => std::fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Err(ErrorKind::AlreadyExists.into()),
        other => Ok(other?),
    }
}

fn sync_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Chunks of a file, read when the receiver takes them. The file is open only while a chunk is read: clients that do not read
/// what they request must not use up the descriptors of the process.
struct FileChunks {
    state: ReadState,
    path: Arc<Path>,
    /// Position of the next chunk.
    position: u64,
    /// Bytes still to be read.
    left: u64,
    runtime: Handle,
}

enum ReadState {
    Idle,
    Reading(JoinHandle<io::Result<Bytes>>),
    Ended,
}

impl futures_core::Stream for FileChunks {
    type Item = Result<Bytes, HttpBodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.state, ReadState::Ended) {
                ReadState::Ended => return Poll::Ready(None),
                ReadState::Idle if self.left == 0 => return Poll::Ready(None),
                ReadState::Idle => {
                    let length = usize::try_from(self.left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                    let (path, position) = (self.path.clone(), self.position);
                    let task = self.runtime.spawn_blocking(move || read_chunk(&path, position, length));
                    self.state = ReadState::Reading(task);
                }
                ReadState::Reading(mut task) => {
                    let Poll::Ready(done) = Pin::new(&mut task).poll(cx) else {
                        self.state = ReadState::Reading(task);
                        return Poll::Pending;
                    };
                    let done = done.map_err(io::Error::other).and_then(|read| read);
                    return Poll::Ready(Some(match done {
                        Ok(chunk) => {
                            let length = chunk.len() as u64;
                            self.left = self.left.saturating_sub(length);
                            self.position = self.position.saturating_add(length);
                            self.state = ReadState::Idle;
                            Ok(chunk)
                        }
                        Err(error) => Err(HttpBodyError::Source(error.to_string())),
                    }));
                }
            }
        }
    }
}

/// Reads a chunk of exactly this length.
fn read_chunk(path: &Path, position: u64, length: usize) -> io::Result<Bytes> {
    let mut chunk = vec![0; length];
    File::open(path)?.read_exact_at(&mut chunk, position)?;
    Ok(chunk.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ScratchDirectory(PathBuf);

    impl ScratchDirectory {
        fn new() -> ScratchDirectory {
            let path = std::env::temp_dir().join(format!("throng-files-{}", base::id::random_id()));
            std::fs::create_dir_all(&path).unwrap();
            ScratchDirectory(path)
        }
    }

    impl Drop for ScratchDirectory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_on_the_disk_pass_the_conformance_suite() {
        let scratch = ScratchDirectory::new();
        let runtime = crate::runtime::start().unwrap();
        let storage = DiskStorage::new(&scratch.0, runtime.handle().clone());
        runtime.block_on(testkit::files::conformance(&*storage.directory("upload/example.com")));
    }

    #[test]
    fn old_unfinished_files_are_removed_and_young_ones_stay() {
        let scratch = ScratchDirectory::new();
        let runtime = crate::runtime::start().unwrap();
        let storage = DiskStorage::new(&scratch.0, runtime.handle().clone());
        let directory = storage.directory("d");
        let folder = scratch.0.join("d/folder");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(scratch.0.join("d/.removed.abc/x")).unwrap();
        for (name, written) in [(".a.old", 1000), (".b.young", 3000), ("a", 1000)] {
            let file = File::create_new(folder.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(written)).unwrap();
        }
        runtime.block_on(directory.remove_unfinished(2000)).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".b.young", "a"]);
        assert!(!scratch.0.join("d/.removed.abc").exists());
    }

    #[test]
    fn what_is_not_a_folder_does_not_stop_the_others() {
        let scratch = ScratchDirectory::new();
        let runtime = crate::runtime::start().unwrap();
        let storage = DiskStorage::new(&scratch.0, runtime.handle().clone());
        let directory = storage.directory("d");
        std::fs::create_dir_all(scratch.0.join("d/folder")).unwrap();
        std::fs::write(scratch.0.join("d/readme"), "").unwrap();
        std::fs::write(scratch.0.join("d/folder/.a.old"), "").unwrap();
        runtime.block_on(async {
            assert_eq!(directory.folders().await, Ok(vec![FileName::new("folder").unwrap()]));
            assert_eq!(directory.remove_unfinished(u64::MAX).await, Ok(()));
        });
        assert!(!scratch.0.join("d/folder/.a.old").exists());
    }

    #[test]
    fn only_the_user_of_the_process_can_read_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = ScratchDirectory::new();
        let runtime = crate::runtime::start().unwrap();
        let storage = DiskStorage::new(&scratch.0, runtime.handle().clone());
        let directory = storage.directory("upload/example.com");
        let file = FilePath { folder: FileName::new("f").unwrap(), name: FileName::new("n").unwrap() };
        runtime.block_on(directory.write(&file, 1, HttpRouteBody::Full("x".into()))).unwrap();
        for (path, mode) in
            [("upload", 0o700), ("upload/example.com/f", 0o700), ("upload/example.com/f/n", 0o600)]
        {
            let found = std::fs::metadata(scratch.0.join(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{path}");
        }
    }

    #[test]
    fn a_file_whose_reader_waits_is_not_open() {
        let scratch = ScratchDirectory::new();
        let runtime = crate::runtime::start().unwrap();
        let storage = DiskStorage::new(&scratch.0, runtime.handle().clone());
        let directory = storage.directory("d");
        let file = FilePath { folder: FileName::new("f").unwrap(), name: FileName::new("n").unwrap() };
        let path = scratch.0.join("d/f/n");
        let is_open = || {
            let mut descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
            descriptors.any(|one| std::fs::read_link(one.unwrap().path()).is_ok_and(|target| target == path))
        };
        let content = vec![7; 3 * CHUNK_BYTES];
        runtime.block_on(async {
            let body = HttpRouteBody::Full(content.clone().into());
            directory.write(&file, content.len() as u64, body).await.unwrap();
            let mut body = directory.read(&file, 0..content.len() as u64).await.unwrap().unwrap();
            let mut received = Vec::new();
            while let Some(chunk) = body.chunk().await {
                received.extend_from_slice(&chunk.unwrap());
                assert!(!is_open());
            }
            assert!(received == content);
        });
    }

    #[test]
    fn a_dropped_write_leaves_no_file() {
        let scratch = ScratchDirectory::new();
        let runtime = crate::runtime::start().unwrap();
        let storage = DiskStorage::new(&scratch.0, runtime.handle().clone());
        let directory = storage.directory("d");
        let file = FilePath { folder: FileName::new("f").unwrap(), name: FileName::new("n").unwrap() };
        let folder = scratch.0.join("d/f");
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let chunks = Box::pin(NeverEnding(Some(sender)));
        let write = directory.write(&file, 10, HttpRouteBody::Stream { chunks, length: None });
        runtime.block_on(async {
            let writing = Handle::current().spawn(write);
            receiver.await.unwrap();
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
            writing.abort();
            let _ = writing.await;
            // A runtime that is dropped forgets blocking work that has not begun, so the test waits for it.
            let removed = async {
                while std::fs::read_dir(&folder).unwrap().next().is_some() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), removed).await.expect("the file stays");
        });
    }

    /// Reports that it is read, and never has a chunk.
    struct NeverEnding(Option<tokio::sync::oneshot::Sender<()>>);

    impl futures_core::Stream for NeverEnding {
        type Item = Result<Bytes, HttpBodyError>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            if let Some(sender) = self.0.take() {
                let _ = sender.send(());
            }
            Poll::Pending
        }
    }
}
