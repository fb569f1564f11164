//! Places of a feature with a listener or HTTP routes: what the program derives from its declaration names no feature.
//!
//! CONTRIBUTING lists four places that are written by hand for such a feature. Code of other crates that names its module
//! (`features::proxy65`), its listener or its route (`"socks5-proxy"`) would be a fifth.
//!
//! Not implemented: features without a listener and without routes; tests and tools, which may name any feature.

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::{has_word, without_tests};

/// Crates that may name any feature: the features, tools and tests.
const EXEMPT_CRATES: [&str; 4] = ["features", "xtask", "testkit", "e2e"];

/// What code outside of a feature must not contain.
#[derive(Debug, PartialEq, Eq)]
struct NamedFeature {
    name: &'static str,
    /// Kinds of its listeners, prefixes of its routes.
    parts: Vec<&'static str>,
}

/// Finds places that name a feature with a listener or HTTP routes.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    check_features(&named_features(), files)
}

fn named_features() -> Vec<NamedFeature> {
    let all = features::registry::ALL.iter().map(|feature| {
        let listeners = feature.listeners.iter().map(|spec| spec.kind);
        let routes = feature.http_routes.iter().map(|spec| spec.prefix);
        NamedFeature { name: feature.name, parts: listeners.chain(routes).collect() }
    });
    all.filter(|feature| !feature.parts.is_empty()).collect()
}

fn check_features(named: &[NamedFeature], files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_checked(&file.path)) {
        let product = without_tests(&file.text);
        for (number, line) in product.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            for feature in named.iter().filter(|feature| feature.is_in(line)) {
                findings.push(Finding::new(
                    format!("{}:{}", file.path, number + 1),
                    format!(
                        "names the feature {}; derive it from a declaration, as feature-api does for listeners and routes",
                        feature.name
                    ),
                ));
            }
        }
    }
    findings
}

impl NamedFeature {
    fn is_in(&self, line: &str) -> bool {
        let literal = |word: &str| line.contains(&format!("\"{word}\""));
        let imported = has_word(line, "features") && has_word(line, self.name);
        imported || literal(self.name) || self.parts.iter().any(|part| literal(part))
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Whether this is source code of the product.
fn is_checked(path: &str) -> bool {
    let inside = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
    inside.is_some_and(|(name, file)| {
        let test = file.ends_with("tests.rs") || file.contains("/tests/");
        file.starts_with("src/") && file.ends_with(".rs") && !test && !EXEMPT_CRATES.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let relay = NamedFeature { name: "relay", parts: vec!["relay-proxy"] };
        let files = [SourceFile { path: path.to_owned(), text: text.to_owned() }];
        check_features(&[relay], &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn product_code_must_not_name_a_feature_with_a_listener() {
        for code in [
            "use features::relay;",
            "use features::{ping, relay};",
            "kind == \"relay-proxy\"",
            "of(\"relay\")",
        ] {
            let found = findings("crates/server/src/a.rs", &format!("fn a() {{}}\n{code}\n"));
            assert_eq!(found.len(), 1, "{code}: {found:?}");
            assert!(found[0].starts_with("crates/server/src/a.rs:2: names the feature relay"), "{found:?}");
        }
        for code in ["// such as \"relay\"", "use features::registry;", "let relay = 1;", "\"relayed\""] {
            assert_eq!(findings("crates/server/src/a.rs", code), Vec::<String>::new(), "{code}");
        }
    }

    #[test]
    fn features_and_tests_may_name_it() {
        let test = "#[cfg(test)]\nmod tests {\n    const KIND: &str = \"relay-proxy\";\n}\n";
        assert_eq!(findings("crates/server/src/a.rs", test), Vec::<String>::new());
        for path in
            ["crates/features/src/relay/mod.rs", "crates/e2e/src/a.rs", "crates/server/src/a/tests.rs"]
        {
            assert_eq!(findings(path, "\"relay\""), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn the_features_with_listeners_or_routes_are_checked() {
        let named: Vec<&str> = named_features().iter().map(|feature| feature.name).collect();
        assert!(named.contains(&"proxy65") && named.contains(&"upload"), "{named:?}");
    }
}
