//! Test that the project rules hold: `cargo xtask tidy` as an ordinary test.

use std::process::Command;

#[test]
fn the_repository_follows_the_tidy_rules() {
    let output = Command::new(env!("CARGO_BIN_EXE_throng-xtask")).arg("tidy").output().unwrap();
    assert!(output.status.success(), "\n{}", String::from_utf8_lossy(&output.stderr));
}
