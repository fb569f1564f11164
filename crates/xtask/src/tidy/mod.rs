//! `cargo xtask tidy`: project rules that neither the compiler nor clippy checks.
//!
//! Covers layers of the crates, file sizes, type names, conventions of source files, the list of files with `unsafe`,
//! ranks of locks, modules of the engine, places of features, forbidden words, metaphors, links and keys in documents, citations, licences and number of
//! dependencies, and stale generated files. Each rule is a file in the folder of this module, a function from text to
//! findings, tested there with bad input. `tests/tidy.rs` runs all of them with the ordinary tests.
//!
//! Exits with 1 when a rule is broken. Warnings (a package in two versions) are printed but do not affect the exit
//! code.
//!
//! # Pitfalls
//!
//! A rule is followed if its fix is clear. A finding must say where, what, and what to do instead.

mod conventions;
mod debug_output;
mod documents;
mod engine_modules;
mod feature_places;
pub(crate) mod files;
mod forbidden_words;
mod layers;
mod licences;
mod lock_ranks;
mod metaphors;
mod package_limits;
mod packages;
pub(crate) mod rust_lexer;
mod source_files;
mod type_names;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use package_limits::PackageCounts;

/// The flags of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct TidyArgs {
    /// Also print what is fine: packages counted, the largest files.
    #[arg(long)]
    verbose: bool,
}

/// Violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, with a line if there is one, or the crate.
    place: String,
    /// Problem and fix in one sentence.
    text: String,
}

impl Finding {
    pub(crate) fn new(place: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding { place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Checks everything; exit code 1 and a list if there are violations.
pub(crate) fn run(args: &TidyArgs) -> ExitCode {
    let (code, lines) = match check(args.verbose) {
        Ok((findings, mut lines)) => {
            let code = if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            lines.extend(findings.iter().map(ToString::to_string));
            lines.push(match findings.len() {
                0 => "tidy: no findings".to_owned(),
                1 => "tidy: 1 finding".to_owned(),
                n => format!("tidy: {n} findings"),
            });
            (code, lines)
        }
        Err(error) => (ExitCode::from(2), vec![format!("tidy: {error:#}")]),
    };
    #[allow(clippy::print_stderr, reason = "the findings are what the command is for")]
    for line in lines {
        eprintln!("{line}");
    }
    code
}

/// Root of the workspace: two directories above this crate.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

fn check(verbose: bool) -> Result<(Vec<Finding>, Vec<String>)> {
    let root = root();
    let mut lines = Vec::new();
    let files = files::read(&root)?;
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(source_files::check(file));
        findings.extend(conventions::check(file));
        findings.extend(debug_output::check(file));
        findings.extend(forbidden_words::check(file));
        findings.extend(metaphors::check(file));
    }
    findings.extend(source_files::unused_exceptions(&files));
    findings.extend(documents::check(&files));
    findings.extend(type_names::check(&files));
    findings.extend(lock_ranks::check(&files));
    findings.extend(engine_modules::check(&files));
    findings.extend(feature_places::check(&files));
    findings.extend(crate::compliance::check(&files)?);

    let packages = packages::Packages::parse(&metadata(&root)?)?;
    findings.extend(layers::check(&packages));
    findings.extend(layers::check_documentation(&files));
    findings.extend(licences::check(&packages));
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock cannot be read")?;
    let counts = PackageCounts::new(&cargo(&root, &package_limits::TREE_ARGUMENTS)?, &lock);
    findings.extend(counts.check());
    for (name, versions) in packages.duplicates() {
        lines.push(format!("warning: {name} is built in the versions {}", versions.join(", ")));
    }
    findings.extend(stale_generated_files()?);

    if verbose {
        lines.push(format!("{} files, {} packages", files.len(), packages.all.len()));
        lines.push(format!("{} packages in the server, {} in the lock file", counts.server, counts.lock));
        lines.push(engine_modules::describe(&files));
        lines.extend(source_files::largest(&files, 10));
    }
    Ok((findings, lines))
}

/// Cargo's metadata of our crates and all their dependencies on this machine.
fn metadata(root: &Path) -> Result<String> {
    // Without the filter cargo would fetch the packages of all other operating systems.
    let host = command_output(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV does not name its host")?;
    cargo(root, &["metadata", "--format-version", "1", "--filter-platform", host])
}

/// Output of a cargo command.
fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // With this setting of cargo, the features that only tests need would count as the server's.
    command.args(arguments).current_dir(root).env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
    command_output(&mut command)
}

fn command_output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} cannot be run"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} did not print text"))
}

/// Runs this program to compare the generated files with what it would write.
fn stale_generated_files() -> Result<Vec<Finding>> {
    let own = std::env::current_exe().context("this program does not know its own path")?;
    let output = Command::new(own).args(["codegen", "--check"]).output().context("codegen cannot be run")?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let output = [output.stdout, output.stderr].concat();
    let output = String::from_utf8_lossy(&output).trim().replace('\n', "; ");
    Ok(vec![Finding::new("generated files", format!("run `cargo xtask codegen` and commit ({output})"))])
}
