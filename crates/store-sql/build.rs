//! Lists the files of `migrations/` for `src/migrate.rs`: a migration that is added runs without an entry in a list.
//!
//! # Pitfalls
//!
//! The number in the name of a file is its position, so a number that is missing or used twice does not build.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    let folder = Path::new("migrations/sqlite");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_string_lossy().strip_suffix(".sql") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    let mut list = "&[\n".to_owned();
    for (at, name) in names.iter().enumerate() {
        let number = name.split('_').next().and_then(|number| number.parse().ok());
        if number != Some(at + 1) {
            return Err(io::Error::other(format!("{name}.sql must have the number {:04}", at + 1)));
        }
        let path = fs::canonicalize(folder.join(format!("{name}.sql")))?;
        let path = path.display();
        let _ = writeln!(list, "Migration {{ name: \"{name}\", sql: include_str!(r#\"{path}\"#) }},");
    }
    list += "]\n";
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("sqlite_migrations.rs"), list)
}
