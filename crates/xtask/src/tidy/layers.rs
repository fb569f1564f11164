//! Layering rule: which crate may use which. `ARCHITECTURE.md` explains the table, this file enforces it.
//!
//! Tests at or above the layer of the engine may also use `testkit`, which drives the engine, and the storage and
//! cluster contracts of layer 1, whose in-memory implementations every engine in a test is built from. Tests of lower
//! layers may not. `counting-allocator` is for all tests, and for nothing that is shipped.

use std::collections::BTreeSet;

use super::Finding;
use super::files::SourceFile;
use super::packages::Packages;

/// One crate of the table.
struct LayerRule {
    /// Name without `throng-`.
    name: &'static str,
    /// Layer; a crate uses lower layers only.
    layer: u8,
    /// Crates that it may use.
    uses: &'static [&'static str],
    /// Third-party packages that it must never contain, not even transitively.
    never: &'static [&'static [&'static str]],
}

/// Async runtimes and packages that open sockets.
const SOCKETS: &[&str] =
    &["async-std", "axum", "hyper", "mio", "reqwest", "rustls", "smol", "socket2", "tokio", "tokio-rustls"];
/// Database clients.
const SQL: &[&str] = &["diesel", "libsqlite3-sys", "mysql", "postgres", "rusqlite", "sqlx", "tokio-postgres"];
/// Client of the cluster engine.
const CLUSTER_CLIENTS: &[&str] = &["async-nats", "nats"];
/// Configuration and command-line formats, which belong to programs.
const PROGRAM_PACKAGES: &[&str] = &["anyhow", "clap", "toml", "tracing-subscriber"];

const NEVER_IN_VALUES: &[&[&str]] =
    &[SOCKETS, SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES, &["tracing", "prometheus-client"]];
const NEVER_IN_ENGINE: &[&[&str]] = &[SOCKETS, SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES];
const ENGINE_PARTS: &[&str] = &[
    "base",
    "jid",
    "xml",
    "stanza",
    "store",
    "cluster",
    "declarations",
    "environment",
    "limits",
    "queues",
    "hook-chain",
    "outbox",
    "stanza-rates",
    "engine-metrics",
];

/// Tools and tests stand above everything that is shipped.
const LAYER_RULES: &[LayerRule] = &[
    LayerRule { name: "base", layer: 0, uses: &[], never: NEVER_IN_VALUES },
    LayerRule { name: "jid", layer: 0, uses: &[], never: NEVER_IN_VALUES },
    LayerRule { name: "xml", layer: 0, uses: &[], never: NEVER_IN_VALUES },
    LayerRule { name: "stanza", layer: 0, uses: &["jid", "xml"], never: NEVER_IN_VALUES },
    LayerRule { name: "sasl", layer: 0, uses: &["base"], never: NEVER_IN_VALUES },
    LayerRule { name: "store", layer: 1, uses: &["base", "jid"], never: NEVER_IN_VALUES },
    LayerRule { name: "cluster", layer: 1, uses: &["base", "jid"], never: NEVER_IN_VALUES },
    LayerRule { name: "declarations", layer: 1, uses: &["xml"], never: NEVER_IN_VALUES },
    LayerRule { name: "limits", layer: 1, uses: &["xml"], never: NEVER_IN_VALUES },
    LayerRule { name: "environment", layer: 1, uses: &["base", "jid"], never: NEVER_IN_VALUES },
    LayerRule {
        name: "net",
        layer: 2,
        uses: &["base", "xml", "stanza"],
        never: &[SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    LayerRule {
        name: "store-sql",
        layer: 2,
        uses: &["base", "jid", "store"],
        never: &[CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    LayerRule {
        name: "cluster-nats",
        layer: 2,
        uses: &["base", "jid", "cluster"],
        never: &[SQL, PROGRAM_PACKAGES],
    },
    LayerRule {
        name: "account-providers",
        layer: 2,
        uses: &["base", "jid", "sasl", "environment"],
        never: &[SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    LayerRule { name: "tls-records", layer: 2, uses: &[], never: &[SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES] },
    LayerRule { name: "queues", layer: 3, uses: &["base"], never: NEVER_IN_ENGINE },
    LayerRule { name: "hook-chain", layer: 3, uses: &["base", "stanza"], never: NEVER_IN_ENGINE },
    LayerRule {
        name: "outbox",
        layer: 3,
        uses: &["base", "jid", "xml", "stanza", "limits"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "stanza-rates",
        layer: 3,
        uses: &["base", "xml", "stanza", "store"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "transfer",
        layer: 3,
        uses: &["base", "jid", "xml", "stanza", "sasl", "store", "limits"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "engine-metrics",
        layer: 3,
        uses: &["base", "stanza", "cluster"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "transfer-sql",
        layer: 4,
        uses: &["base", "jid", "store", "transfer"],
        never: &[CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    LayerRule { name: "core", layer: 4, uses: ENGINE_PARTS, never: NEVER_IN_ENGINE },
    LayerRule {
        name: "peers",
        layer: 5,
        uses: &["base", "jid", "xml", "stanza", "store", "cluster", "outbox", "core"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "feature-api",
        layer: 5,
        uses: &[
            "base",
            "jid",
            "xml",
            "stanza",
            "store",
            "declarations",
            "environment",
            "stanza-rates",
            "core",
        ],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "access",
        layer: 5,
        uses: &["base", "jid", "stanza", "store", "cluster", "core"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "commands",
        layer: 6,
        uses: &["base", "jid", "stanza", "store", "cluster", "core", "peers", "feature-api", "access"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "streams",
        layer: 7,
        uses: &["base", "jid", "xml", "stanza", "sasl", "net", "core", "feature-api", "peers", "access"],
        never: &[SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    LayerRule {
        name: "muc",
        layer: 7,
        // Rooms are owned by one node of a cluster, and move.
        uses: &[
            "base",
            "jid",
            "xml",
            "stanza",
            "store",
            "cluster",
            "queues",
            "core",
            "peers",
            "feature-api",
            "commands",
        ],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "pubsub",
        layer: 7,
        // PubSub nodes are owned by one node of a cluster.
        uses: &[
            "base",
            "jid",
            "xml",
            "stanza",
            "store",
            "cluster",
            "queues",
            "core",
            "peers",
            "feature-api",
            "commands",
        ],
        never: NEVER_IN_ENGINE,
    },
    // Its registry lists the features of the other crates.
    LayerRule {
        name: "features",
        layer: 8,
        uses: &["base", "jid", "xml", "stanza", "store", "core", "feature-api", "commands", "muc", "pubsub"],
        never: NEVER_IN_ENGINE,
    },
    LayerRule {
        name: "api",
        layer: 8,
        uses: &["base", "jid", "store", "core", "feature-api", "access", "commands"],
        never: &[SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    // It uses nothing of the server but values, because a bug shared by client and server would be invisible. Values
    // are tested against vectors of the specifications and other implementations: of `sasl` it uses the client, which
    // the RFCs' vectors and a server in its own tests check. The server's program uses it for one command.
    LayerRule {
        name: "loadgen",
        layer: 8,
        uses: &["jid", "xml", "stanza", "sasl", "tls-records"],
        never: &[],
    },
    LayerRule {
        name: "server",
        layer: 9,
        uses: &[
            "base",
            "jid",
            "xml",
            "stanza",
            "sasl",
            "store",
            "cluster",
            "net",
            "store-sql",
            "account-providers",
            "cluster-nats",
            "core",
            "feature-api",
            "peers",
            "access",
            "commands",
            "streams",
            "features",
            "muc",
            "pubsub",
            "api",
            "loadgen",
            "transfer",
            "transfer-sql",
        ],
        never: &[],
    },
    // Never shipped. The registry is code, so only a program that links the features can write their documents;
    // scenarios are executed by the connections of the testkit, also against a remote server. Benches start databases as
    // tests do. The simulation of several nodes is that of the tests.
    LayerRule {
        name: "xtask",
        layer: 11,
        uses: &["core", "features", "muc", "pubsub", "testkit", "test-databases", "e2e"],
        never: &[],
    },
    // Tests of every layer use it.
    LayerRule { name: "counting-allocator", layer: 0, uses: &[], never: NEVER_IN_VALUES },
    // A bound socket keeps each port that it chose.
    LayerRule {
        name: "test-databases",
        layer: 0,
        uses: &[],
        never: &[SQL, CLUSTER_CLIENTS, PROGRAM_PACKAGES],
    },
    // No feature: the tests of a feature would link two copies of it.
    LayerRule {
        name: "testkit",
        layer: 10,
        uses: &[
            "base",
            "jid",
            "xml",
            "stanza",
            "sasl",
            "store",
            "cluster",
            "net",
            "core",
            "feature-api",
            "peers",
            "access",
            "streams",
        ],
        never: &[SQL, CLUSTER_CLIENTS],
    },
    LayerRule {
        name: "e2e",
        layer: 10,
        uses: &[
            "base",
            "jid",
            "xml",
            "stanza",
            "sasl",
            "store",
            "cluster",
            "net",
            "store-sql",
            "cluster-nats",
            "core",
            "feature-api",
            "peers",
            "access",
            "commands",
            "streams",
            "features",
            "muc",
            "pubsub",
            "api",
            "loadgen",
            "server",
            "testkit",
            "test-databases",
        ],
        never: &[],
    },
];

/// Additional crates for tests of every layer.
const IN_ALL_TESTS: &[&str] = &["counting-allocator", "test-databases"];
/// Additional crates for tests, at or above the layer of the engine.
const IN_TESTS: &[&str] = &["testkit", "store", "cluster", "peers", "feature-api"];
/// Layer of the engine.
const ENGINE_LAYER: u8 = 4;
const PREFIX: &str = "throng-";

fn layer_rule(name: &str) -> Option<&'static LayerRule> {
    LAYER_RULES.iter().find(|row| row.name == name)
}

/// Checks our crates against the table.
pub(crate) fn check(packages: &Packages) -> Vec<Finding> {
    let ours: BTreeSet<&str> = packages.ours().map(|p| p.name.as_str()).collect();
    let mut findings = Vec::new();
    for package in packages.ours() {
        let Some(row) = package.name.strip_prefix(PREFIX).and_then(layer_rule) else {
            let text = "has no row in xtask/src/tidy/layers.rs; state its layer and what it may use";
            findings.push(Finding::new(&package.name, text));
            continue;
        };
        let own = |names: &BTreeSet<String>| -> Vec<String> {
            let names = names.iter().filter(|n| ours.contains(n.as_str()));
            names.filter_map(|n| n.strip_prefix(PREFIX)).map(str::to_owned).collect()
        };
        for used in own(&package.normal) {
            if !row.uses.contains(&used.as_str()) {
                let text = format!(
                    "must not use {used}; the table allows it {}",
                    if row.uses.is_empty() { "none of our crates".to_owned() } else { row.uses.join(", ") }
                );
                findings.push(Finding::new(&package.name, text));
            }
        }
        for used in own(&package.dev) {
            let tests = IN_ALL_TESTS.contains(&used.as_str())
                || row.layer >= ENGINE_LAYER && IN_TESTS.contains(&used.as_str());
            if used != row.name && !tests && !row.uses.contains(&used.as_str()) {
                let text = format!("must not use {used}, not even in tests; test that pair one layer up");
                findings.push(Finding::new(&package.name, text));
            }
        }
        let closure = packages.closure(&package.name);
        for banned in row.never.iter().copied().flatten() {
            if let Some(by) = closure.get(banned) {
                let by = if *by == package.name { "directly".to_owned() } else { format!("through {by}") };
                let text = format!("carries {banned} ({by}), which its layer must not know");
                findings.push(Finding::new(&package.name, text));
            }
        }
    }
    findings
}

/// Every crate of the workspace has a row in `ARCHITECTURE.md`, so that the explanation matches the table.
pub(crate) fn check_documentation(files: &[SourceFile]) -> Vec<Finding> {
    let text = files.iter().find(|f| f.path == "ARCHITECTURE.md").map_or("", |f| f.text.as_str());
    let crates = files.iter().filter_map(|f| f.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
    crates
        .filter(|name| !name.contains('/') && !text.contains(&format!("\n| `{name}` |")))
        .map(|name| Finding::new("ARCHITECTURE.md", format!("has no row for the crate `{name}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::packages::test_packages;
    use super::*;

    fn messages(lines: &[&str]) -> Vec<String> {
        check(&test_packages(lines)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_table_itself_only_points_down() {
        for row in LAYER_RULES {
            for used in row.uses {
                let below = super::layer_rule(used).unwrap();
                // Exceptions: the crates of layer 0 that others of layer 0 use, and the test crates among themselves.
                let values = row.layer == 0 && matches!(*used, "base" | "jid" | "xml");
                let tests = row.layer == below.layer && *used == "testkit";
                assert!(below.layer < row.layer || values || tests, "{} uses {used}", row.name);
            }
        }
    }

    #[test]
    fn allowed_edges_pass() {
        assert_eq!(
            messages(&[
                "throng-base:",
                "throng-jid:",
                "throng-store: throng-base throng-jid parking_lot",
                "throng-core: throng-base throng-store | throng-testkit",
                "throng-testkit: throng-core",
                "parking_lot:",
            ]),
            [""; 0]
        );
    }

    #[test]
    fn a_forbidden_edge_is_refused() {
        let found = messages(&["throng-core: throng-net", "throng-net:"]);
        let allowed = ENGINE_PARTS.join(", ");
        assert_eq!(found, [format!("throng-core: must not use net; the table allows it {allowed}")]);
        assert!(
            messages(&["throng-muc: throng-features", "throng-features:"])[0]
                .contains("must not use features")
        );
        assert!(messages(&["throng-loadgen: throng-base", "throng-base:"])[0].contains("must not use base"));
        assert!(messages(&["throng-xml: throng-base", "throng-base:"])[0].contains("none of our crates"));
    }

    #[test]
    fn test_dependencies_stay_within_the_layers() {
        let found = messages(&["throng-store: | throng-testkit", "throng-testkit:"]);
        assert!(found[0].contains("not even in tests"));
        let found = messages(&[
            "throng-streams: | throng-features throng-cluster",
            "throng-features:",
            "throng-cluster:",
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn foreign_packages_are_refused_also_as_transitive_dependencies() {
        assert!(messages(&["throng-xml: tokio", "tokio:"])[0].contains("carries tokio (directly)"));
        let found = messages(&["throng-core: http", "http: hyper", "hyper:"]);
        assert!(found[0].contains("carries hyper (through http)"), "{found:?}");
        assert!(messages(&["throng-features: throng-store", "throng-store: sqlx", "sqlx:"]).len() == 2);
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        assert!(messages(&["throng-utils:"])[0].contains("has no row"));
    }

    #[test]
    fn the_plan_names_every_crate() {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("ARCHITECTURE.md", "# x\n| `base` | 0 |\n"),
            file("crates/base/Cargo.toml", ""),
            file("crates/jid/Cargo.toml", ""),
            file("crates/jid/fuzz/Cargo.toml", ""),
        ];
        let found = check_documentation(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("`jid`"));
    }
}
