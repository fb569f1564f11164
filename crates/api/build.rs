//! Embeds strophe.js for the page `/chat`, if `chat/fetch.sh` has put it into `chat/node_modules`.
//!
//! Without it the crate builds all the same and the page explains what to do (`src/chat.rs`). The file is served with
//! the library's licence on top, since it is a copy of it. It is looked up beside the page and not in cargo's target
//! folder: a build script does not know where that is, and what its `OUT_DIR` suggests depends on the profile, the
//! triple and the version of cargo.
//!
//! # Pitfalls
//!
//! Cargo treats a watched path that does not exist as changed at every build. So the folder of the page is watched,
//! which always exists; adding or removing the library changes it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let page = variable("CARGO_MANIFEST_DIR").join("../../chat");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", page.display());
    fs::write(variable("OUT_DIR").join("strophe.js"), library(&page.join("node_modules/strophe.js")))
}

/// The library with its licence; empty if it was not fetched.
fn library(folder: &Path) -> String {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (Some(code), Some(licence)) = (read("strophe.js"), read("LICENSE.txt")) else {
        return String::new();
    };
    // Developer tools would request the source map, which is not served.
    let code: Vec<&str> = code.lines().filter(|line| !line.starts_with("//# sourceMappingURL=")).collect();
    format!("/*! strophe.js\n\n{}\n*/\n{}\n", licence.trim().replace("*/", "* /"), code.join("\n"))
}
