//! Tests of the Debian package, which dpkg installs in a folder of its own, and of the unit in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use throng_e2e::{TempFolder, describe_output, program_path, run_as_root};

use crate::{assert_valid, output_of, root};

/// An empty system below a folder, with the database of dpkg.
struct InstallationRoot(TempFolder);

impl InstallationRoot {
    fn new() -> InstallationRoot {
        let folder = TempFolder::new("debian-root");
        for made in ["etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
            fs::create_dir_all(folder.join(made)).expect("a folder");
        }
        for made in ["status", "available"] {
            fs::write(folder.join("var/lib/dpkg").join(made), "").expect("a file");
        }
        InstallationRoot(folder)
    }

    /// Runs dpkg. The scripts of the package get `DPKG_ROOT`, since this system has no shell; nor has it other packages.
    fn dpkg(&self, words: &[&str]) {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.0.display()));
        dpkg.args(["--force-script-chrootless", "--force-depends", "--force-confold"]);
        output_of(dpkg.arg(format!("--log={}", self.0.join("log").display())).args(words));
    }

    /// Mode, user and group of a file.
    fn access(&self, path: &str) -> (u32, String, String) {
        let file = fs::metadata(self.0.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let name = |table: &str, id: u32| {
            let text = fs::read_to_string(self.0.join(table)).unwrap_or_default();
            let line = text.lines().find(|line| line.split(':').nth(2) == Some(&id.to_string()));
            line.and_then(|line| line.split(':').next()).map_or_else(|| id.to_string(), str::to_owned)
        };
        (file.mode() & 0o7777, name("etc/passwd", file.uid()), name("etc/group", file.gid()))
    }

    fn exists(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }
}

fn assert_access(installed: &InstallationRoot, path: &str, mode: u32, user: &str, group: &str) {
    assert_eq!(installed.access(path), (mode, user.to_owned(), group.to_owned()), "{path}");
}

/// systemd accepts the unit with the program that is installed, and finds it well confined.
fn assert_unit(installed: &InstallationRoot) {
    let unit = "usr/lib/systemd/system/throng.service";
    let text = fs::read_to_string(installed.0.join(unit)).expect("the unit");
    let program = installed.0.join("usr/bin/throng");
    let copy = installed.0.join("throng.service");
    fs::write(&copy, text.replace("/usr/bin/throng", &program.display().to_string())).expect("a unit");
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output();
    let verify = verify.expect("systemd-analyze; crates/e2e/clients/setup.sh installs it");
    let said = describe_output(&verify);
    assert!(verify.status.success() && verify.stderr.is_empty(), "{said}");
    // Exposure in tenths, of 100.
    let security = ["security", "--offline=true", "--no-pager", "--threshold=20"];
    output_of(Command::new("systemd-analyze").args(security).arg(&copy));
}

fn build(directory: &Path) -> String {
    let script = root().join("contrib/debian/build.sh");
    output_of(Command::new(script).arg(program_path()).arg(directory)).trim_end().to_owned()
}

#[test]
fn dpkg_installs_the_package_keeps_changed_configuration_and_removes_data_when_purging() {
    run_as_root(
        "debian::dpkg_installs_the_package_keeps_changed_configuration_and_removes_data_when_purging",
        install_upgrade_and_purge,
    );
}

fn install_upgrade_and_purge() {
    let folder = TempFolder::new("debian");
    let package = build(&folder);
    let control = output_of(Command::new("dpkg-deb").args(["--field", &package]));
    assert!(control.contains("Package: throng\n") && control.contains("Depends: libc6 (>= 2."), "{control}");

    let installed = InstallationRoot::new();
    installed.dpkg(&["--install", &package]);
    assert_access(&installed, "usr/bin/throng", 0o755, "0", "0");
    for file in [
        "usr/lib/systemd/system/throng.service",
        "usr/lib/sysusers.d/throng.conf",
        "usr/lib/tmpfiles.d/throng.conf",
        "usr/share/doc/throng/copyright",
        "usr/share/doc/throng/operations.md",
        "usr/share/doc/throng/examples/alerts.yml",
    ] {
        assert_access(&installed, file, 0o644, "0", "0");
    }
    assert_access(&installed, "etc/throng", 0o750, "0", "throng");
    assert_access(&installed, "etc/throng/throng.toml", 0o640, "0", "throng");
    assert_access(&installed, "var/lib/throng", 0o700, "throng", "throng");
    let version = output_of(Command::new(installed.0.join("usr/bin/throng")).arg("--version"));
    assert!(control.contains(&format!("Version: {}", version.trim().replace("throng ", ""))), "{version}");
    assert_unit(&installed);

    // The configuration is the administrator's: an upgrade keeps it.
    let path = installed.0.join("etc/throng/throng.toml");
    let shipped = fs::read_to_string(&path).expect("the configuration");
    assert_valid(&shipped, &folder, &[("THRONG__LISTEN", "[]")]);
    let changed = shipped.replace("[\"localhost\"]", "[\"example.org\"]");
    fs::write(&path, &changed).expect("a configuration");
    let data = installed.0.join("var/lib/throng/throng.db");
    fs::write(&data, "accounts").expect("data");
    installed.dpkg(&["--install", &package]);
    assert_eq!(fs::read_to_string(&path).expect("the configuration"), changed);
    assert_access(&installed, "etc/throng/throng.toml", 0o640, "0", "throng");

    installed.dpkg(&["--remove", "throng"]);
    assert!(
        !installed.exists("usr/bin/throng") && !installed.exists("usr/lib/systemd/system/throng.service")
    );
    assert!(path.exists() && data.exists(), "removal keeps the configuration and the data");
    installed.dpkg(&["--purge", "throng"]);
    assert!(!installed.exists("etc/throng") && !installed.exists("var/lib/throng"));
}
