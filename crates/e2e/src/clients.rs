//! Foreign client programs that the tests run: their scripts, and the folders into which `clients/setup.sh` installs
//! what they need.
//!
//! # Pitfalls
//!
//! A client that is missing on the machine is installed, or the test fails; nothing is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::describe_output;

/// Folder of the scripts.
pub fn scripts_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Folder of the installed clients, within the target folder. The first call installs what is missing.
///
/// # Panics
/// If the installation fails.
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
