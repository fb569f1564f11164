//! Temporary folder of a test. It is removed with the value, and kept for the reader when the test fails.
//!
//! # Pitfalls
//!
//! The path of a node's admin socket may have about a hundred bytes, so names are short.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Temporary folder of a test.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder that only this process uses. Tests of one process choose different names.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new(name: &str) -> TempFolder {
        let path = std::env::temp_dir().join(format!("throng-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        TempFolder(path)
    }
}

impl Deref for TempFolder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TempFolder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
