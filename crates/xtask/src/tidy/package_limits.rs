//! Limits on the number of packages: in the server's build, and in the lock file.
//!
//! Each package costs build time and maintenance. A change that needs more packages removes others, or raises the limit
//! here with the reason in the commit.

use std::collections::BTreeSet;

use super::Finding;

/// Packages in the server's build on Linux, our own crates and build dependencies included.
const MAX_SERVER: usize = 304;
/// Packages in `Cargo.lock`, for all platforms and with development dependencies.
const MAX_LOCK: usize = 381;

/// Arguments of the cargo command whose output [`PackageCounts::new`] reads.
pub(crate) const TREE_ARGUMENTS: [&str; 8] = [
    "tree",
    "--package=throng-server",
    "--edges=normal,build",
    "--target=x86_64-unknown-linux-gnu",
    "--prefix=none",
    "--format={p}",
    "--color=never",
    "--locked",
];

/// Numbers of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackageCounts {
    /// In the server's build.
    pub(crate) server: usize,
    /// In the lock file.
    pub(crate) lock: usize,
}

impl PackageCounts {
    /// Counts the different packages that `cargo tree` printed, one a line, and the entries of a lock file.
    pub(crate) fn new(tree: &str, lock: &str) -> PackageCounts {
        let packages: BTreeSet<Vec<&str>> = tree
            .lines()
            .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>())
            .filter(|package| !package.is_empty())
            .collect();
        let lock = lock.lines().filter(|line| *line == "[[package]]").count();
        PackageCounts { server: packages.len(), lock }
    }

    /// Compares with the limits.
    pub(crate) fn check(self) -> Vec<Finding> {
        let compare = |place: &str, count: usize, limit: usize, command: &str| {
            (count > limit).then(|| {
                let text = format!(
                    "has {count} packages, and {limit} is the limit of xtask/src/tidy/package_limits.rs; drop features \
                     or packages, or unite versions ({command} lists those in two versions)"
                );
                Finding::new(place, text)
            })
        };
        let server =
            compare("the server's build", self.server, MAX_SERVER, "`cargo tree -p throng-server -d`");
        let lock = compare("Cargo.lock", self.lock, MAX_LOCK, "`cargo tree --workspace -d`");
        server.into_iter().chain(lock).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_for_each_version() {
        let tree =
            "throng-server v0.1.0 (/src/server)\nsyn v2.0.1 (proc-macro)\nsyn v2.0.1 (*)\n\nsyn v3.0.0\n";
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\n\n[[package]]\nname = \"b\"\n";
        assert_eq!(PackageCounts::new(tree, lock), PackageCounts { server: 3, lock: 2 });
    }

    #[test]
    fn one_package_above_a_limit_is_a_finding() {
        assert!(PackageCounts { server: MAX_SERVER, lock: MAX_LOCK }.check().is_empty());
        let findings = PackageCounts { server: MAX_SERVER + 1, lock: MAX_LOCK + 1 }.check();
        assert_eq!(findings.len(), 2);
        assert!(findings[0].text.contains("cargo tree"), "{}", findings[0]);
    }
}
