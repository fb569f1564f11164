//! Files in memory, and the conformance suite of [`throng_core::file_storage`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::lock::LeafMutex;
use feature_api::http_route::{HttpBodyError, HttpRouteBody};
use throng_core::file_storage::{
    FileDirectory, FileEntry, FileError, FileFuture, FileName, FilePath, FileStorage,
};

/// Directories in memory, by path.
#[derive(Default)]
pub struct MemoryFileStorage(LeafMutex<BTreeMap<String, Arc<MemoryDirectory>>>);

impl FileStorage for MemoryFileStorage {
    fn directory(&self, path: &str) -> Arc<dyn FileDirectory> {
        self.0.lock().entry(path.to_owned()).or_default().clone()
    }
}

/// One directory in memory.
#[derive(Default)]
pub struct MemoryDirectory(Arc<LeafMutex<Folders>>);

type Folders = BTreeMap<FileName, BTreeMap<FileName, Vec<u8>>>;

impl FileDirectory for MemoryDirectory {
    fn write(&self, file: &FilePath, size: u64, mut body: HttpRouteBody) -> FileFuture<()> {
        let (folders, file) = (self.0.clone(), file.clone());
        Box::pin(async move {
            let exists = |folder: &BTreeMap<FileName, Vec<u8>>| folder.contains_key(&file.name);
            if folders.lock().entry(file.folder.clone()).or_default().contains_key(&file.name) {
                return Err(FileError::Exists);
            }
            let mut content = Vec::new();
            while let Some(chunk) = body.chunk().await {
                content.extend_from_slice(&chunk?);
                if content.len() as u64 > size {
                    return Err(FileError::WrongSize);
                }
            }
            if content.len() as u64 != size {
                return Err(FileError::WrongSize);
            }
            match folders.lock().get_mut(&file.folder) {
                None => Err(FileError::Disk("the folder was removed".to_owned())),
                Some(folder) if exists(folder) => Err(FileError::Exists),
                Some(folder) => {
                    folder.insert(file.name, content);
                    Ok(())
                }
            }
        })
    }

    fn size(&self, file: &FilePath) -> FileFuture<Option<u64>> {
        let found = self.with(file, |content| content.len() as u64);
        Box::pin(async move { Ok(found) })
    }

    fn read(&self, file: &FilePath, range: Range<u64>) -> FileFuture<Option<HttpRouteBody>> {
        let range = usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0);
        let found = self.with(file, |content| content.get(range).map(<[u8]>::to_vec));
        Box::pin(async move {
            Ok(found.map(|content| match content {
                Some(content) => HttpRouteBody::Full(content.into()),
                None => HttpRouteBody::Stream { chunks: Box::pin(FailingBody(Vec::new())), length: None },
            }))
        })
    }

    fn remove(&self, file: &FilePath) -> FileFuture<bool> {
        let removed = self.0.lock().get_mut(&file.folder).and_then(|folder| folder.remove(&file.name));
        Box::pin(async move { Ok(removed.is_some()) })
    }

    fn list(&self, folder: &FileName) -> FileFuture<Vec<FileEntry>> {
        let entry = |(name, content): (&FileName, &Vec<u8>)| FileEntry {
            name: name.clone(),
            size: content.len() as u64,
        };
        let files =
            self.0.lock().get(folder).map_or_else(Vec::new, |files| files.iter().map(entry).collect());
        Box::pin(async move { Ok(files) })
    }

    fn folders(&self) -> FileFuture<Vec<FileName>> {
        let folders = self.0.lock().keys().cloned().collect();
        Box::pin(async move { Ok(folders) })
    }

    fn remove_folder(&self, folder: &FileName) -> FileFuture<()> {
        self.0.lock().remove(folder);
        Box::pin(async { Ok(()) })
    }

    fn remove_unfinished(&self, _since: u64) -> FileFuture<()> {
        Box::pin(async { Ok(()) })
    }
}

impl MemoryDirectory {
    fn with<T>(&self, file: &FilePath, read: impl FnOnce(&Vec<u8>) -> T) -> Option<T> {
        self.0.lock().get(&file.folder)?.get(&file.name).map(read)
    }
}

fn name(text: &str) -> FileName {
    FileName::new(text).expect("a name")
}

async fn content(directory: &dyn FileDirectory, file: &FilePath, range: Range<u64>) -> Option<Vec<u8>> {
    let mut body = directory.read(file, range).await.expect("it is read")?;
    let mut content = Vec::new();
    while let Some(chunk) = body.chunk().await {
        content.extend_from_slice(&chunk.expect("a chunk"));
    }
    Some(content)
}

/// Chunks of a body, and an error at its end.
struct FailingBody(Vec<&'static [u8]>);

impl futures_core::Stream for FailingBody {
    type Item = Result<bytes::Bytes, HttpBodyError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let next = self.0.pop().map(bytes::Bytes::from_static).ok_or(HttpBodyError::Incomplete);
        std::task::Poll::Ready(Some(next))
    }
}

/// What every directory does. It must be empty.
///
/// # Panics
/// If it does something else.
pub async fn conformance(directory: &dyn FileDirectory) {
    let file = |folder: &str, file: &str| FilePath { folder: name(folder), name: name(file) };
    let full = |bytes: &[u8]| HttpRouteBody::Full(bytes.to_vec().into());
    let (one, other) = (file("alice", "one"), file("alice", "other"));

    // A directory that does not exist is empty.
    assert_eq!(directory.folders().await, Ok(vec![]));
    assert_eq!(directory.list(&one.folder).await, Ok(vec![]));
    assert_eq!((directory.size(&one).await, directory.remove(&one).await), (Ok(None), Ok(false)));
    assert_eq!(content(directory, &one, 0..0).await, None);
    assert_eq!(
        (directory.remove_folder(&one.folder).await, directory.remove_unfinished(u64::MAX).await),
        (Ok(()), Ok(()))
    );

    // A file has exactly the announced size, or does not exist.
    for (size, bytes) in [(4, "12345"), (6, "12345"), (0, "1")] {
        assert_eq!(directory.write(&one, size, full(bytes.as_bytes())).await, Err(FileError::WrongSize));
    }
    let failing = HttpRouteBody::Stream { chunks: Box::pin(FailingBody(vec![b"ab", b"cd"])), length: None };
    let failed = directory.write(&one, 5, failing).await;
    assert_eq!(failed, Err(FileError::Body(HttpBodyError::Incomplete)));
    assert_eq!(directory.size(&one).await, Ok(None));

    // It is written once.
    let large: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    directory.write(&one, 300_000, full(&large)).await.expect("it is written");
    assert_eq!(directory.write(&one, 1, full(b"x")).await, Err(FileError::Exists));
    directory.write(&other, 0, HttpRouteBody::Empty).await.expect("an empty file is written");

    // Ranges.
    for range in [0..300_000, 0..1, 65_535..65_537, 299_999..300_000, 5..5] {
        let want = &large[usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0)];
        assert!(content(directory, &one, range.clone()).await.as_deref() == Some(want), "{range:?}");
    }

    // A range beyond the end fails when it is read.
    let mut beyond = directory.read(&one, 299_999..300_001).await.expect("it exists").expect("a body");
    let mut last = None;
    while let Some(chunk) = beyond.chunk().await {
        last = Some(chunk.is_ok());
        if last == Some(false) {
            break;
        }
    }
    assert_eq!(last, Some(false));

    // Lists.
    directory.write(&file("bob", "one"), 1, full(b"x")).await.expect("it is written");
    let mut folders = directory.folders().await.expect("they are listed");
    folders.sort();
    assert_eq!(folders, [name("alice"), name("bob")]);
    let mut files = directory.list(&one.folder).await.expect("they are listed");
    files.sort();
    let entry = |text: &str, size| FileEntry { name: name(text), size };
    assert_eq!(files, [entry("one", 300_000), entry("other", 0)]);

    // Removal.
    assert_eq!((directory.remove(&other).await, directory.size(&other).await), (Ok(true), Ok(None)));
    assert_eq!(directory.remove_folder(&one.folder).await, Ok(()));
    assert_eq!(directory.size(&one).await, Ok(None));
    assert_eq!(directory.folders().await, Ok(vec![name("bob")]));
    directory.write(&one, 1, full(b"x")).await.expect("the folder is created again");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual_spawner::ManualSpawner;

    #[test]
    fn files_in_memory_pass_the_conformance_suite() {
        ManualSpawner::default().block_on(conformance(&MemoryDirectory::default()));
    }
}
