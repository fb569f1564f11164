//! Golden tests of the Tsung importer: each file of `tests/tsung` is read and compared with its `.txt`, which lists the
//! plan step by step, or every message about ignored and refused parts.
//!
//! Not implemented: whether a server accepts what the plan sends; runs show that.
//!
//! # Pitfalls
//!
//! A difference is written to a file in the target folder; review it before it replaces the expected text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]

#[path = "tsung/outline.rs"]
mod outline;

#[path = "tsung/hostile.rs"]
mod hostile;

#[path = "tsung/command_line.rs"]
mod command_line;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use throng_loadgen::plan::{LoadPlan, MachineCapacity, PlanError, PlanOverrides, check};
use throng_loadgen::tsung::{self, ImportNote};

/// A machine with sufficient resources for everything.
const MACHINE: MachineCapacity = MachineCapacity {
    files: 1 << 20,
    cores: 16,
    memory: 1 << 40,
    ports: (1_024, 65_535),
    server_here: false,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tsung")
}

fn text_of(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// Reads a scenario of the folder, which also has the files it refers to.
fn read(name: &str, arguments: &PlanOverrides) -> Result<(LoadPlan, Vec<ImportNote>), Vec<PlanError>> {
    read_text(&text_of(&format!("{name}.xml")), arguments)
}

fn read_text(text: &str, arguments: &PlanOverrides) -> Result<(LoadPlan, Vec<ImportNote>), Vec<PlanError>> {
    let mut files = |path: &str| -> io::Result<String> {
        fs::read_to_string(folder().join(path)).map_err(|_| io::Error::other("there is no such file"))
    };
    tsung::read(text, "scenario", arguments, &mut files)
}

/// Compares the imported scenario with the expected text.
fn compare(name: &str, accepted: bool) {
    let result = read(name, &PlanOverrides::default());
    assert_eq!(result.is_ok(), accepted, "{name}: {result:#?}");
    let mut found = String::new();
    match &result {
        Ok((plan, notes)) => {
            for note in notes {
                let _ = writeln!(found, "note {note}");
            }
            found.push_str(&outline::of(plan));
            assert_eq!(check(plan, &MACHINE), [], "{name} cannot be run");
            let json = serde_json::to_string(plan).unwrap();
            assert_eq!(
                &serde_json::from_str::<LoadPlan>(&json).unwrap(),
                plan,
                "{name} is not the same after a journey as JSON"
            );
        }
        Err(errors) => {
            for error in errors {
                let _ = writeln!(found, "{error}");
            }
        }
    }
    let wanted = fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap_or_default();
    if found != wanted {
        let actual = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.txt"));
        fs::write(&actual, &found).unwrap();
        panic!("{name}: another outcome than in {name}.txt, see {}:\n{found}", actual.display());
    }
}

macro_rules! scenarios {
    ($accepted:literal: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            compare(stringify!($name), $accepted);
        })*
    };
}

mod accepted {
    use super::compare;

    scenarios!(true: simple legacy published roster csv variables loops tls starttls register phases global change_type ignored
        muc pubsub_nodes options thinktime thinktime_override presence anonymous included bosh over_websocket);

    #[test]
    fn matches() {
        compare("match", true);
    }
}

mod refused {
    use super::compare;

    scenarios!(false: pubsub mixed websocket http http_within jsonpath erlang digest wrong order accounts);
}
