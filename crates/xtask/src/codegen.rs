//! `cargo xtask codegen`: writes the generated files, or with `--check` reports which of them are stale.
//!
//! `features::codegen::docs`, [`crate::attacks`] and [`crate::compliance`] provide their contents; this file only knows
//! their paths.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

/// The flags of `cargo xtask codegen`.
#[derive(clap::Args)]
pub(crate) struct CodegenArgs {
    /// Compare instead of writing; exit 1 when a file is stale.
    #[arg(long)]
    check: bool,
    /// Folder with the sources of the specifications; their requirements are kept as they are without it.
    #[arg(long, value_name = "FOLDER")]
    specs: Option<PathBuf>,
}

/// Writes or compares; exit code 1 if a file is stale or cannot be written.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a program's answer")]
pub(crate) fn run(args: &CodegenArgs) -> ExitCode {
    match generated_files(args).and_then(|files| write_or_compare(files, args.check)) {
        Ok(stale) if stale.is_empty() => ExitCode::SUCCESS,
        Ok(stale) => {
            for path in &stale {
                if args.check {
                    eprintln!("{path} is stale; run `cargo xtask codegen`");
                } else {
                    println!("wrote {path}");
                }
            }
            if args.check { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("xtask codegen: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// All generated files: path from the root, and content.
fn generated_files(args: &CodegenArgs) -> anyhow::Result<Vec<(String, String)>> {
    let hooks = features::codegen::docs::hooks()?;
    let docs = [
        ("xeps", features::codegen::docs::xeps()),
        ("modules", features::codegen::docs::modules()),
        ("commands", features::codegen::docs::commands()),
        ("hooks", hooks),
    ];
    let mut files: Vec<_> = docs.map(|(name, text)| (format!("docs/{name}.md"), text)).into();
    files.push(("docs/attacks.md".to_owned(), crate::attacks::attacks_page(&root())?));
    files.push(("doap.xml".to_owned(), features::codegen::doap::doap()));
    let specs = args.specs.clone().unwrap_or_else(|| root().join("../shared/specs"));
    files.extend(crate::compliance::files(&root(), Some(&specs).filter(|folder| folder.exists()))?);
    for (name, text) in features::codegen::docs::golden_files()? {
        files.push((format!("crates/features/golden/{name}"), text));
    }
    Ok(files)
}

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes the files that differ, unless `check`; returns their paths.
fn write_or_compare(files: Vec<(String, String)>, check: bool) -> anyhow::Result<Vec<String>> {
    let root = root();
    let mut stale = Vec::new();
    for (path, text) in files {
        let target = root.join(&path);
        if std::fs::read_to_string(&target).is_ok_and(|current| current == text) {
            continue;
        }
        if !check {
            let folder = target.parent().unwrap_or(&root);
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            std::fs::write(&target, text).with_context(|| format!("cannot write {path}"))?;
        }
        stale.push(path);
    }
    Ok(stale)
}
