//! Takes in strophe.js for the page `/chat`, when `chat/fetch.sh` has put it into cargo's target folder.
//!
//! Without it the crate builds all the same and the page says what to do (`src/chat.rs`). The file is served with the library's
//! licence on top, since it is a copy of it.
//!
//! The trap: a path that does not exist counts as changed at every build. So the folder that is watched is made here, and
//! only what is in it decides.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let library = match target(&out) {
        Some(target) => {
            let folder = target.join("chat");
            fs::create_dir_all(&folder)?;
            println!("cargo:rerun-if-changed={}", folder.display());
            library(&folder)
        }
        None => String::new(),
    };
    fs::write(out.join("strophe.js"), library)
}

/// Cargo's target folder: `OUT_DIR` is `TARGET[/TRIPLE]/PROFILE/build/PACKAGE/out`, and cargo marks the folder with a file.
fn target(out: &Path) -> Option<&Path> {
    out.ancestors().skip(4).take(2).find(|folder| folder.join("CACHEDIR.TAG").is_file())
}

/// The library with its licence; empty if it was not fetched.
fn library(folder: &Path) -> String {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (Some(code), Some(licence)) = (read("strophe.js"), read("strophe.LICENSE.txt")) else {
        return String::new();
    };
    // A browser's tools would ask for the map, and it is not served.
    let code: Vec<&str> = code.lines().filter(|line| !line.starts_with("//# sourceMappingURL=")).collect();
    format!("/*! strophe.js\n\n{}\n*/\n{}\n", licence.trim().replace("*/", "* /"), code.join("\n"))
}
