//! Lists the files of `scenarios/` for `tests/scenarios.rs`, which has a test for each: a scenario that is added runs
//! without an entry in a list.
//!
//! # Pitfalls
//!
//! The name of a file becomes that of a test, so it must be an identifier; another name does not compile.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=scenarios");
    let mut names = Vec::new();
    for entry in fs::read_dir("scenarios")? {
        let name = entry?.file_name();
        if let Some(name) = name.to_string_lossy().strip_suffix(".scenario") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    let folder = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&folder).join("scenarios.rs"), format!("scenarios! {{ {} }}\n", names.join(", ")))
}
