//! Check of third-party licences: only those that an Apache-2.0 program may include without conditions.

use super::Finding;
use super::packages::Packages;

/// Allowed SPDX names.
const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks all packages.
pub(crate) fn check(packages: &Packages) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.all.values() {
        let place = format!("{} {}", package.name, package.version);
        match package.licence.as_deref() {
            None => findings.push(Finding::new(place, "states no licence in its manifest; do not use it")),
            Some(expression) if !allowed(expression) => {
                let text =
                    format!("its licence \"{expression}\" is not on the list in xtask/src/tidy/licences.rs");
                findings.push(Finding::new(place, text));
            }
            Some(_) => {}
        }
    }
    findings
}

/// Whether the allowed licences satisfy an SPDX expression. `/` is the legacy form of `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    or_expression(&words, &mut at) && at == words.len()
}

fn or_expression(words: &[&str], at: &mut usize) -> bool {
    let mut good = and_expression(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= and_expression(words, at);
    }
    good
}

fn and_expression(words: &[&str], at: &mut usize) -> bool {
    let mut good = licence_term(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= licence_term(words, at);
    }
    good
}

fn licence_term(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let good = or_expression(words, at);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return good && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let name = format!("{word} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return ALLOWED.contains(&name.as_str());
    }
    ALLOWED.contains(word)
}

#[cfg(test)]
mod tests {
    use super::super::packages::test_packages;
    use super::*;

    #[test]
    fn spdx_expressions_are_evaluated() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "Apache-2.0 AND ISC",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND SSPL-1.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_without_licence_is_found() {
        let mut packages = test_packages(&["a:", "b:"]);
        packages.all.get_mut("a").unwrap().licence = None;
        packages.all.get_mut("b").unwrap().licence = Some("AGPL-3.0-only".to_owned());
        assert_eq!(check(&packages).len(), 2);
    }
}
