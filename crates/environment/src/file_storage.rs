//! Files of features: directories on a disk of this node, which the program provides.
//!
//! A directory has folders, and folders have files. A file is written once, as a whole: it appears complete or not at
//! all, and once `write` has succeeded it survives a crash. Names are words of lower-case letters, digits and `-`, so
//! that no name leads out of the directory.
//!
//! Not implemented: object stores; changing a file.
//!
//! # Pitfalls
//!
//! A directory belongs to one node. Files of another node are not found, unless the nodes share a file system.

use std::ops::Range;
use std::sync::Arc;

use base::spawn::BoxFuture;

use crate::http_body::{HttpBodyError, HttpRouteBody};

/// A folder or file name: 1 to 200 lower-case letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Box<str>);

impl FileName {
    /// `None` if the text is not a valid name.
    pub fn new(name: &str) -> Option<FileName> {
        let known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let valid = (1..=200).contains(&name.len()) && name.bytes().all(known);
        valid.then(|| FileName(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePath {
    /// Its folder.
    pub folder: FileName,
    /// Its name in the folder.
    pub name: FileName,
}

/// A file as listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileEntry {
    /// Its name in the folder.
    pub name: FileName,
    /// Its size in bytes.
    pub size: u64,
}

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum FileError {
    /// The file exists.
    #[error("the file exists")]
    Exists,
    /// The disk or its quota is full.
    #[error("the disk is full")]
    DiskFull,
    /// The body has another size.
    #[error("the body has another size than announced")]
    WrongSize,
    /// The body failed.
    #[error("{0}")]
    Body(#[from] HttpBodyError),
    /// Any other error of the disk, for the log.
    #[error("{0}")]
    Disk(String),
}

/// A pending file operation.
pub type FileFuture<T> = BoxFuture<'static, Result<T, FileError>>;

/// Directories on a disk.
pub trait FileStorage: Send + Sync {
    /// A directory, which is created with its first file. A relative path is relative to the node's data directory.
    fn directory(&self, path: &str) -> Arc<dyn FileDirectory>;
}

/// The type under which a program provides it.
pub type SharedFileStorage = Arc<dyn FileStorage>;

/// One directory.
pub trait FileDirectory: Send + Sync {
    /// Writes a file of exactly `size` bytes. Nothing is left of a file that fails.
    fn write(&self, file: &FilePath, size: u64, body: HttpRouteBody) -> FileFuture<()>;

    /// The size of a file; `None` if it does not exist.
    fn size(&self, file: &FilePath) -> FileFuture<Option<u64>>;

    /// Reads a range of a file; `None` if it does not exist. The range must be inside of it.
    fn read(&self, file: &FilePath, range: Range<u64>) -> FileFuture<Option<HttpRouteBody>>;

    /// Removes a file; false if it did not exist.
    fn remove(&self, file: &FilePath) -> FileFuture<bool>;

    /// The files of a folder, in no order.
    fn list(&self, folder: &FileName) -> FileFuture<Vec<FileEntry>>;

    /// The folders, in no order.
    fn folders(&self) -> FileFuture<Vec<FileName>>;

    /// Removes a folder with its files, also those that are being written.
    fn remove_folder(&self, folder: &FileName) -> FileFuture<()>;

    /// Removes what interrupted writes left: unfinished files that nobody wrote to since this time, in seconds since 1970. What
    /// cannot be read or removed does not stop the rest; the first error is the result.
    fn remove_unfinished(&self, since: u64) -> FileFuture<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_its_folder() {
        for name in ["a", "0", "4a771ac1-f0b2", "-"] {
            assert_eq!(FileName::new(name).unwrap().as_str(), name);
        }
        for name in ["", ".", "..", "a/b", "/a", "a\\b", "a.b", "A", "é", "a\0", &"a".repeat(201)] {
            assert_eq!(FileName::new(name), None, "{name:?}");
        }
    }
}
