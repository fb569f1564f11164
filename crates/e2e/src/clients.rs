//! Foreign programs that the tests use: their scripts, and where `clients/setup.sh` has installed what those need.
//!
//! The trap: what is missing on the machine is installed or fails the test; nothing is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::describe_output;

/// Where the scripts are.
#[must_use]
pub fn scripts_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// The folder of what is installed, in the target folder; the first who asks installs what is missing.
///
/// # Panics
/// If that fails.
pub fn install_clients() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let own = std::env::current_exe().expect("the path of the test");
        let folder = own.ancestors().nth(3).expect("the target folder").join("e2e");
        let setup =
            Command::new(scripts_folder().join("setup.sh")).arg(&folder).output().expect("setup.sh runs");
        assert!(setup.status.success(), "setup.sh: {}", describe_output(&setup));
        folder
    })
}
