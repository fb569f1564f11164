//! Test executables of the workspace, from the messages of `cargo test --no-run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{cargo, root};

/// A test executable, and what cargo knows about its package.
#[derive(Debug)]
pub(super) struct TestExecutable {
    /// Path of its main source file from the folder `crates`, such as `store-sql/tests/failures.rs`.
    pub(super) source: String,
    /// Path of the file to run.
    pub(super) executable: PathBuf,
    package_name: String,
    package_version: String,
    package_root: PathBuf,
}

impl TestExecutable {
    /// Reads a line of cargo; `None` if it is about something else.
    fn parse(line: &str, crates: &Path) -> Result<Option<TestExecutable>> {
        let message: Value = serde_json::from_str(line).context("cargo printed a line that is not JSON")?;
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let is_test = message.pointer("/profile/test").and_then(Value::as_bool) == Some(true);
        let (Some("compiler-artifact"), true, Some(executable)) =
            (text("/reason"), is_test, text("/executable"))
        else {
            return Ok(None);
        };
        let missing = |what| format!("cargo does not state {what} of {executable}");
        let source = Path::new(text("/target/src_path").with_context(|| missing("the source"))?);
        let manifest = Path::new(text("/manifest_path").with_context(|| missing("the manifest"))?);
        let package_root = manifest.parent().with_context(|| missing("the directory"))?;
        // `path+file:///throng/crates/xml#throng-xml@0.1.0`; without a name if the directory has the same.
        let id =
            text("/package_id").and_then(|id| id.rsplit_once('#')).with_context(|| missing("the package"))?.1;
        let directory = package_root.file_name().unwrap_or_default().to_string_lossy();
        let (name, version) = id.rsplit_once('@').unwrap_or((&*directory, id));
        Ok(Some(TestExecutable {
            source: source.strip_prefix(crates).unwrap_or(source).display().to_string(),
            executable: executable.into(),
            package_name: name.to_owned(),
            package_version: version.to_owned(),
            package_root: package_root.to_owned(),
        }))
    }

    /// How cargo announces it: `tests/failures.rs (target/debug/deps/failures-0123456789abcdef)`.
    pub(super) fn title(&self) -> String {
        let in_package = self.source.split_once('/').map_or(self.source.as_str(), |(_, path)| path);
        let kind = if in_package.starts_with("src/") { "unittests " } else { "" };
        let executable = self.executable.strip_prefix(root()).unwrap_or(&self.executable);
        format!("{kind}{in_package} ({})", executable.display())
    }

    /// The command that runs it, as cargo would.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package_root);
        command.env("CARGO", cargo().get_program());
        command.env("CARGO_MANIFEST_DIR", &self.package_root);
        command.env("CARGO_MANIFEST_PATH", self.package_root.join("Cargo.toml"));
        command.env("CARGO_PKG_NAME", &self.package_name).env("CARGO_PKG_VERSION", &self.package_version);
        command
    }

    /// File for its output, in a folder of the target directory that exists afterwards.
    pub(super) fn output_file(&self) -> Result<PathBuf> {
        // The executable is in `target/debug/deps`.
        let target =
            self.executable.ancestors().nth(3).context("an executable outside of a target directory")?;
        let folder = target.join("test-output");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder.join(self.source.replace('/', "-")).with_extension("log"))
    }

    #[cfg(test)]
    pub(super) fn example(source: &str) -> TestExecutable {
        TestExecutable {
            source: source.to_owned(),
            executable: "target/debug/deps/example".into(),
            package_name: "example".to_owned(),
            package_version: "1.0.0".to_owned(),
            package_root: ".".into(),
        }
    }
}

/// Builds all test executables of the workspace, and the programs that they start; in the order of their paths.
pub(super) fn build() -> Result<Vec<TestExecutable>> {
    // All packages in any case: cargo would build the dependencies of some of them with fewer features, again.
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests were not built: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("cargo printed something that is not text")?;
    let crates = root().join("crates");
    let parsed = text.lines().map(|line| TestExecutable::parse(line, &crates)).filter_map(Result::transpose);
    let mut executables = parsed.collect::<Result<Vec<_>>>()?;
    executables.sort_by(|a, b| a.source.cmp(&b.source));
    Ok(executables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(executable: &str, test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///throng/crates/store-sql#throng-store-sql@0.1.0",
            "manifest_path":"/throng/crates/store-sql/Cargo.toml","target":{{"kind":["test"],"name":"failures",
            "src_path":"/throng/crates/store-sql/tests/failures.rs"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn test_executables_are_recognised_among_the_messages_of_cargo() {
        let parse = |line: &str| TestExecutable::parse(line, Path::new("/throng/crates"));
        let path = r#""/throng/target/debug/deps/failures-0a""#;
        let found = parse(&artifact(path, true)).unwrap().unwrap();
        assert_eq!(found.source, "store-sql/tests/failures.rs");
        assert_eq!(
            (found.package_name.as_str(), found.package_version.as_str()),
            ("throng-store-sql", "0.1.0")
        );
        assert_eq!(found.title(), "tests/failures.rs (/throng/target/debug/deps/failures-0a)");
        assert_eq!(found.command().get_current_dir(), Some(Path::new("/throng/crates/store-sql")));
        // Programs, libraries, and messages about the build.
        for line in
            [&artifact(path, false), &artifact("null", true), r#"{"reason":"build-finished","success":true}"#]
        {
            assert!(parse(line).unwrap().is_none(), "{line}");
        }
        assert!(parse("Compiling").is_err());
    }

    #[test]
    fn the_title_is_that_of_cargo() {
        let title = |source| TestExecutable::example(source).title();
        assert_eq!(title("xml/src/lib.rs"), "unittests src/lib.rs (target/debug/deps/example)");
        assert_eq!(title("e2e/attacks/main.rs"), "attacks/main.rs (target/debug/deps/example)");
    }
}
