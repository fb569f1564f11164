//! Lists the files of `migrations/` for `src/migrate.rs`: a migration that is added runs without an entry in a list.
//!
//! # Pitfalls
//!
//! The number in the name of a file is the schema that it makes. The first file of a database may have any number; one
//! that is missing or used twice after it does not build.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    for database in ["sqlite", "postgres", "mysql"] {
        let list = migrations(&Path::new("migrations").join(database))?;
        fs::write(Path::new(&out).join(format!("{database}_migrations.rs")), list)?;
    }
    Ok(())
}

/// The migrations of a database as source code.
fn migrations(folder: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_string_lossy().strip_suffix(".sql") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    let mut list = "&[\n".to_owned();
    let mut next = None;
    for name in &names {
        let number = name.split('_').next().and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number.filter(|number| next.is_none_or(|next| next == *number)) else {
            let next = next.unwrap_or(1);
            return Err(io::Error::other(format!("{name}.sql must have the number {next:04}")));
        };
        next = Some(number + 1);
        let path = fs::canonicalize(folder.join(format!("{name}.sql")))?;
        let path = path.display();
        let _ = writeln!(
            list,
            "Migration {{ version: {number}, name: \"{name}\", sql: include_str!(r#\"{path}\"#) }},"
        );
    }
    list += "]\n";
    Ok(list)
}
