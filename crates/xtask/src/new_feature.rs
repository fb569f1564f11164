//! `cargo xtask new-feature NAME`: writes what a feature needs, so that the result builds and passes all checks.
//!
//! The feature's file and scenario are copies of `crates/features/templates`, which are built and tested as they are.
//! The lines in the registry, in the list of modules and in the table of namespaces are inserted into the existing
//! files. Then rustfmt and `cargo xtask codegen` run.
//!
//! Not implemented: reading the specification. Values that the flags do not give are placeholders.
//!
//! # Pitfalls
//!
//! The registry line is inserted at the end of a group. The position decides the order of handlers within a phase, so a
//! feature on the path of stanzas may need another one.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::tidy::root;

/// The flags of `cargo xtask new-feature`.
#[derive(clap::Args)]
pub(crate) struct NewFeatureArgs {
    /// The name of the module in the configuration and of its file: words joined by `_`.
    name: String,
    /// The specification.
    #[arg(long, value_name = "XEP", default_value = "XEP-0000")]
    spec: String,
    /// The title of the specification; absent: from the name.
    #[arg(long)]
    title: Option<String>,
    /// The version of the specification; absent: 0.1.0 for a XEP, none for an RFC.
    #[arg(long)]
    version: Option<String>,
    /// The namespace of the payload; absent: from the name. One that the server knows is not added again.
    #[arg(long, value_name = "URI")]
    namespace: Option<String>,
    /// What the feature does: answer requests to the server, store a value for each account, handle messages on
    /// their way, or provide a service with an address of its own.
    #[arg(long, value_enum, default_value = "request")]
    kind: FeatureKind,
}

/// Template of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FeatureKind {
    /// Answers IQ requests to the server.
    Request,
    /// Stores a value for each account, which its clients read and replace with IQ requests.
    Storage,
    /// Handles messages to local accounts.
    Message,
    /// Provides a service with an address of its own, which answers IQ requests.
    Service,
}

const NAMESPACES: &str = "crates/xml/src/ns.rs";
const PAYLOADS: &str = "crates/stanza/src/payload_set.rs";
const MODULES: &str = "crates/features/src/lib.rs";
const REGISTRY: &str = "crates/features/src/registry.rs";
/// Width of the lines of the list in [`PAYLOADS`], which rustfmt leaves alone.
const LIST_WIDTH: usize = 110;
/// First line of the registry's groups to which the templates are added.
const REQUEST_GROUP: &str = "    // Initial requests of clients.";
const SERVICE_GROUP: &str = "    // Services: they answer at their own addresses.";
const MESSAGE_GROUP: &str = "    // Copies are made of accepted messages";

/// A feature to be written, with all values.
#[derive(Debug)]
struct NewFeature {
    name: String,
    spec: String,
    title: String,
    version: String,
    namespace: String,
    kind: FeatureKind,
}

/// Writes the files; exit code 2 if that is impossible.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a program's answer")]
pub(crate) fn run(args: &NewFeatureArgs) -> ExitCode {
    match write_feature(args) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask new-feature: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn write_feature(args: &NewFeatureArgs) -> Result<String> {
    let root = root();
    let feature = NewFeature::new(args)?;
    let files = feature.files(&root)?;
    for (path, text) in &files {
        std::fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for arguments in
        [&["fmt", "-p", "throng-features"][..], &["run", "--quiet", "-p", "throng-xtask", "--", "codegen"]]
    {
        let status = Command::new(&cargo).args(arguments).current_dir(&root).status();
        let status = status.with_context(|| format!("cargo {} cannot be run", arguments.join(" ")))?;
        if !status.success() {
            bail!(
                "`cargo {}` failed, see above. The files are written: correct them and run `cargo xtask codegen`, or \
                 restore them with git:\n{}",
                arguments.join(" "),
                paths(&files)
            );
        }
    }
    Ok(feature.summary(&files))
}

/// Keywords of Rust in the edition of this workspace, reserved ones included.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

impl NewFeature {
    fn new(args: &NewFeatureArgs) -> Result<NewFeature> {
        let name = &args.name;
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.split('_').all(is_word) {
            bail!(
                "\"{name}\" is not a name of a module; write small letters and digits, words joined by `_`"
            );
        }
        if KEYWORDS.contains(&name.as_str()) {
            bail!("\"{name}\" is a keyword of Rust; choose another name for the module");
        }
        let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let is_xep = args.spec.strip_prefix("XEP-").is_some_and(|n| n.len() == 4 && is_number(n));
        if !is_xep && !args.spec.strip_prefix("RFC ").is_some_and(is_number) {
            bail!("\"{}\" is not a specification; write it as XEP-0092 or \"RFC 6121\"", args.spec);
        }
        // The values are copied into string literals of Rust, the namespace into attributes of XML as well.
        for (flag, value, refused) in [
            ("--title", &args.title, "\"\\"),
            ("--version", &args.version, "\"\\"),
            ("--namespace", &args.namespace, "\"\\'<>& "),
        ] {
            let is_refused = |c: char| c.is_control() || refused.contains(c);
            if value.as_ref().is_some_and(|value| value.is_empty() || value.contains(is_refused)) {
                bail!("{flag} must not be empty and not contain line breaks or any of {refused}");
            }
        }
        let default_version = if is_xep { "0.1.0" } else { "" };
        Ok(NewFeature {
            name: name.clone(),
            spec: args.spec.clone(),
            title: args.title.clone().unwrap_or_else(|| words_of(name).join(" ")),
            version: args.version.clone().unwrap_or_else(|| default_version.to_owned()),
            namespace: args.namespace.clone().unwrap_or_else(|| format!("urn:xmpp:{name}:0")),
            kind: args.kind,
        })
    }

    /// All written files: path from the root, and content.
    fn files(&self, root: &Path) -> Result<Vec<(String, String)>> {
        let read = |path: &str| {
            std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
        };
        let module = format!("crates/features/src/{}.rs", self.name);
        let scenario = format!("crates/e2e/scenarios/{}.scenario", self.name);
        for path in [&module, &scenario, &format!("crates/features/src/{}", self.name)] {
            if root.join(path).exists() {
                bail!("{path} exists; choose another name");
            }
        }
        if features::registry::ALL.iter().any(|feature| feature.name == self.name) {
            bail!("a feature \"{}\" exists; choose another name", self.name);
        }
        let (module_template, scenario_template, group) = match self.kind {
            FeatureKind::Request => (
                include_str!("../../features/templates/request.rs"),
                include_str!("../../features/templates/request.scenario"),
                REQUEST_GROUP,
            ),
            FeatureKind::Storage => (
                include_str!("../../features/templates/storage.rs"),
                include_str!("../../features/templates/storage.scenario"),
                REQUEST_GROUP,
            ),
            FeatureKind::Message => (
                include_str!("../../features/templates/message.rs"),
                include_str!("../../features/templates/message.scenario"),
                MESSAGE_GROUP,
            ),
            FeatureKind::Service => (
                include_str!("../../features/templates/service.rs"),
                include_str!("../../features/templates/service.scenario"),
                SERVICE_GROUP,
            ),
        };
        let (number, namespaces) = self.with_namespace(&read(NAMESPACES)?)?;
        let mut files = vec![
            (module, self.fill(module_template, &number)),
            (REGISTRY.to_owned(), with_registry_line(&read(REGISTRY)?, group, &self.name)?),
            (MODULES.to_owned(), with_module(&read(MODULES)?, &self.name)?),
            (scenario, self.fill(scenario_template, &number)),
        ];
        files.extend(namespaces.map(|text| (NAMESPACES.to_owned(), text)));
        if self.kind == FeatureKind::Message {
            let payloads = with_payload(&read(PAYLOADS)?, &number)?;
            files.extend(payloads.map(|text| (PAYLOADS.to_owned(), text)));
        }
        Ok(files)
    }

    /// The template with this feature's values.
    fn fill(&self, template: &str, number: &str) -> String {
        let version = if self.version.is_empty() { String::new() } else { format!(" {}", self.version) };
        template
            .replace("XEP-0000 0.0.0", &format!("{}{version}", self.spec))
            .replace("example_feature", &self.name)
            // A label of a domain has no `_`.
            .replace("example-feature", &self.name.replace('_', "-"))
            .replace("Example Feature", &self.title)
            .replace("XEP-0000", &self.spec)
            .replace("0.0.0", &self.version)
            .replace("Ns::Receipts", &format!("Ns::{number}"))
            .replace("urn:xmpp:receipts", &self.namespace)
    }

    /// The namespace's name in `Ns`, and the table with it if it was not there.
    fn with_namespace(&self, table: &str) -> Result<(String, Option<String>)> {
        let line_end = format!(" = \"{}\",", self.namespace);
        if let Some(name) = table.lines().find_map(|line| line.strip_suffix(&line_end)) {
            return Ok((name.trim().to_owned(), None));
        }
        let base = words_of(&self.name).concat();
        let taken = |name: &str| table.lines().any(|line| line.starts_with(&format!("    {name} = \"")));
        let number = if taken(&base) { format!("{base}Payload") } else { base };
        if taken(&number) {
            bail!("{NAMESPACES} has a namespace {number}; add {} under another name first", self.namespace);
        }
        let end = table.find("\nnamespaces! {").and_then(|start| Some(start + table[start..].find("\n}\n")?));
        let (before, after) =
            table.split_at(end.with_context(|| format!("{NAMESPACES} has no table of namespaces"))?);
        let text = format!("{before}\n    /// {}.\n    {number}{line_end}{after}", self.spec);
        Ok((number, Some(text)))
    }

    fn summary(&self, files: &[(String, String)]) -> String {
        let mut out = "wrote, and ran rustfmt and `cargo xtask codegen`:\n".to_owned();
        out += &paths(files);
        let _ = write!(
            out,
            "Left to you:\n  1. crates/features/src/{0}.rs: what it does, its opening comment and its tests\n  2. {REGISTRY}: \
             the position, if the order of handlers matters\n  3. crates/e2e/scenarios/{0}.scenario: the conversation that \
             shows it\n  4. CHANGELOG.md: one line, if a user notices",
            self.name
        );
        out
    }
}

/// The paths of the files, one a line.
fn paths(files: &[(String, String)]) -> String {
    files.iter().fold(String::new(), |out, (path, _)| out + "  " + path + "\n")
}

/// The words of a name, capitalised.
fn words_of(name: &str) -> Vec<String> {
    name.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect()
}

/// The registry with this feature as the last of the group that begins with this comment.
fn with_registry_line(registry: &str, group: &str, name: &str) -> Result<String> {
    let lines: Vec<&str> = registry.lines().collect();
    let start = lines.iter().position(|line| line.starts_with(group));
    let start = start.with_context(|| format!("{REGISTRY} has no group \"{}\"", group.trim()))?;
    let is_comment = |line: &&&str| line.trim_start().starts_with("//");
    let comments = lines[start..].iter().take_while(is_comment).count();
    let entries =
        lines[start + comments..].iter().take_while(|line| line.starts_with("    &crate::")).count();
    let end = start + comments + entries;
    let line = format!("    &crate::{name}::FEATURE,");
    Ok(joined(lines[..end].iter().copied().chain([line.as_str()]).chain(lines[end..].iter().copied())))
}

/// The namespaces by which stanzas are selected, with this one in alphabetical order; `None` if it is there.
fn with_payload(list: &str, number: &str) -> Result<Option<String>> {
    let parts = list.split_once("\npayload_namespaces! {\n");
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once("\n}\n")?)));
    let (before, (names, after)) = parts.with_context(|| format!("{PAYLOADS} has no list of namespaces"))?;
    let mut names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.contains(&number) {
        return Ok(None);
    }
    names.push(number);
    names.sort_unstable();
    let mut lines = vec![String::from("   ")];
    for name in names {
        if lines.last().is_some_and(|line| line.len() + name.len() + 2 > LIST_WIDTH) {
            lines.push(String::from("   "));
        }
        if let Some(line) = lines.last_mut() {
            let _ = write!(line, " {name},");
        }
    }
    Ok(Some(format!("{before}\npayload_namespaces! {{\n{}\n}}\n{after}", lines.join("\n"))))
}

/// `lib.rs` with this module, in alphabetical order.
fn with_module(lib: &str, name: &str) -> Result<String> {
    let line = format!("pub mod {name};");
    let lines: Vec<&str> = lib.lines().collect();
    let last = lines.iter().rposition(|line| line.starts_with("pub mod "));
    let last = last.with_context(|| format!("{MODULES} has no modules"))?;
    let at = lines.iter().position(|other| other.starts_with("pub mod ") && **other > *line);
    let at = at.unwrap_or(last + 1);
    Ok(joined(lines[..at].iter().copied().chain([line.as_str()]).chain(lines[at..].iter().copied())))
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.fold(String::new(), |out, line| out + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(name: &str, namespace: Option<&str>, kind: FeatureKind) -> NewFeatureArgs {
        NewFeatureArgs {
            name: name.to_owned(),
            spec: "XEP-0224".to_owned(),
            title: None,
            version: Some("1.0".to_owned()),
            namespace: namespace.map(str::to_owned),
            kind,
        }
    }

    fn feature(name: &str, namespace: Option<&str>, kind: FeatureKind) -> Result<NewFeature> {
        NewFeature::new(&args(name, namespace, kind))
    }

    /// The files that are written for a feature, from those of the repository.
    fn written(name: &str, namespace: Option<&str>, kind: FeatureKind) -> Vec<(String, String)> {
        feature(name, namespace, kind).unwrap().files(&root()).unwrap()
    }

    fn text<'a>(files: &'a [(String, String)], path: &str) -> &'a str {
        &files.iter().find(|(other, _)| other == path).unwrap().1
    }

    /// Lines of `new` that are not in the repository's file.
    fn added(path: &str, new: &str) -> Vec<String> {
        let old = std::fs::read_to_string(root().join(path)).unwrap();
        let mut old = old.lines().peekable();
        let added: Vec<String> =
            new.lines().filter(|line| old.next_if_eq(line).is_none()).map(str::to_owned).collect();
        assert_eq!(old.next(), None, "{path} lost lines");
        added
    }

    #[test]
    fn a_feature_is_two_new_files_and_a_line_in_each_of_three() {
        let files = written("getting_attention", None, FeatureKind::Request);
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "crates/features/src/getting_attention.rs",
                REGISTRY,
                MODULES,
                "crates/e2e/scenarios/getting_attention.scenario",
                NAMESPACES,
            ]
        );
        assert_eq!(added(MODULES, text(&files, MODULES)), ["pub mod getting_attention;"]);
        assert_eq!(added(REGISTRY, text(&files, REGISTRY)), ["    &crate::getting_attention::FEATURE,"]);
        assert_eq!(
            added(NAMESPACES, text(&files, NAMESPACES)),
            ["    /// XEP-0224.", "    GettingAttention = \"urn:xmpp:getting_attention:0\","]
        );
    }

    #[test]
    fn all_placeholders_of_the_templates_are_replaced() {
        for kind in [FeatureKind::Request, FeatureKind::Storage, FeatureKind::Message, FeatureKind::Service] {
            let files = written("getting_attention", None, kind);
            for path in [files[0].0.as_str(), files[3].0.as_str()] {
                let text = text(&files, path);
                for placeholder in [
                    "example_feature",
                    "example-feature",
                    "Example Feature",
                    "XEP-0000",
                    "0.0.0",
                    "Receipts",
                    "urn:xmpp:receipts",
                ] {
                    assert!(!text.contains(placeholder), "{path} has {placeholder}");
                }
                assert!(text.contains("getting_attention") && text.contains("XEP-0224"), "{path}");
            }
        }
    }

    #[test]
    fn a_known_namespace_is_used_under_its_name() {
        let files = written("getting_attention", Some("urn:xmpp:hints"), FeatureKind::Message);
        assert!(files.iter().all(|(path, _)| path != NAMESPACES && path != PAYLOADS));
        assert!(files[0].1.contains("PayloadNs::Hints") && files[3].1.contains("urn:xmpp:hints"));
    }

    #[test]
    fn a_handler_of_messages_can_be_selected_by_its_namespace() {
        let files = written("getting_attention", None, FeatureKind::Message);
        let list = text(&files, PAYLOADS);
        assert!(list.contains(" Eme, GettingAttention,") || list.contains(" Eme,\n    GettingAttention,"));
        let without = list.replace(" GettingAttention,", "");
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&without), names(&std::fs::read_to_string(root().join(PAYLOADS)).unwrap()));
        assert!(list.lines().all(|line| line.len() <= 120));
    }

    #[test]
    fn modules_stay_in_alphabetical_order_and_groups_together() {
        let lib = "//! Text.\n\npub mod b;\npub mod d;\n";
        for (name, want) in [("a", "a b d"), ("c", "b c d"), ("e", "b d e")] {
            let text = with_module(lib, name).unwrap();
            let modules: Vec<&str> =
                text.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
            assert_eq!(modules.join(" "), want);
        }
        let registry = "[\n    // One,\n    // two.\n    &crate::a::FEATURE,\n    // Three.\n    &crate::b::FEATURE,\n];\n";
        assert_eq!(
            with_registry_line(registry, "    // One", "n").unwrap(),
            registry.replace("    // Three", "    &crate::n::FEATURE,\n    // Three")
        );
        assert!(with_registry_line(registry, "    // Four", "n").is_err());
    }

    #[test]
    fn existing_names_and_non_identifiers_are_refused() {
        let files =
            |name: &str| feature(name, None, FeatureKind::Request).and_then(|feature| feature.files(&root()));
        for name in ["", "Ping", "ping-2", "2ping", "ping_", "ping", "carbons", "rfc6121"] {
            assert!(files(name).is_err(), "{name:?}");
        }
        for name in ["type", "match", "async", "gen", "roster", "subscription"] {
            assert!(files(name).is_err(), "{name:?} would not compile, or is taken in another folder");
        }
        assert!(files("ping2").is_ok());
    }

    #[test]
    fn an_rfc_has_no_version() {
        let mut args = args("getting_attention", None, FeatureKind::Request);
        (args.spec, args.version) = ("RFC 9999".to_owned(), None);
        let files = NewFeature::new(&args).unwrap().files(&root()).unwrap();
        assert!(files[0].1.starts_with("//! Getting Attention: RFC 9999, section 1.\n"), "{}", files[0].1);
        assert!(files[0].1.contains("name: \"RFC 9999\"") && files[0].1.contains("version: \"\""));
    }

    #[test]
    fn values_that_would_not_compile_are_refused() {
        let refused = |change: fn(&mut NewFeatureArgs)| {
            let mut args = args("getting_attention", None, FeatureKind::Request);
            change(&mut args);
            NewFeature::new(&args).is_err()
        };
        assert!(!refused(|_| {}));
        assert!(refused(|args| args.spec = "XEP-224".to_owned()));
        assert!(refused(|args| args.spec = "XEP-abcd".to_owned()));
        assert!(refused(|args| args.spec = "RFC".to_owned()));
        assert!(refused(|args| args.title = Some("\"Attention\"".to_owned())));
        assert!(refused(|args| args.title = Some("Attention\n".to_owned())));
        assert!(refused(|args| args.version = Some("1.0\\".to_owned())));
        assert!(refused(|args| args.namespace = Some("urn:'x'".to_owned())));
        assert!(refused(|args| args.namespace = Some(String::new())));
    }
}
