//! Reader of the project's text files.
//!
//! It walks directories and does not ask git, so tidy also works in an unpacked archive.
//!
//! Not implemented: build output and fetched files (`target`, `node_modules`, …), fuzz corpora, and files that are not
//! UTF-8.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Names of directories that are never ours.
const SKIPPED: [&str; 8] =
    [".git", ".venv", "__pycache__", "corpus", "data", "load-runs", "node_modules", "target"];

/// A text file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Content.
    pub(crate) text: String,
}

/// All text files below `root`, sorted by path.
pub(crate) fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<SourceFile>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("{} cannot be read", folder.display()))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().with_context(|| format!("{path} cannot be read"))?;
        if kind.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(entry.path())
            && let Ok(text) = String::from_utf8(bytes)
        {
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_are_found_and_build_output_is_not() {
        let files = read(&super::super::root()).unwrap();
        assert!(files.iter().any(|f| f.path == "crates/xtask/src/tidy/files.rs"));
        assert!(files.iter().all(|f| !f.path.starts_with("target/") && !f.path.starts_with(".git/")));
    }
}
