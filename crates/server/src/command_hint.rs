//! Commands of this program in messages, ready to be typed: with the program's name as invoked and the configuration
//! in use.
//!
//! # Pitfalls
//!
//! Responses of a running node name the node's own configuration, relative to the folder in which the node runs.

use std::path::Path;

/// A command such as `account add`, with its arguments.
pub(crate) fn command_hint(config: Option<&Path>, command: &str, rest: &str) -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "throng".into());
    format_command(&program.to_string_lossy(), config, command, rest)
}

fn format_command(program: &str, config: Option<&Path>, command: &str, rest: &str) -> String {
    let mut line = format!("{} {command}", shell_quoted(program));
    if let Some(config) = config {
        line.push_str(&format!(" --config {}", shell_quoted(&config.to_string_lossy())));
    }
    if !rest.is_empty() {
        line.push_str(&format!(" {rest}"));
    }
    line
}

/// Quotes a word for a shell.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./@:+,=".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_can_be_pasted_into_a_shell() {
        let config = Path::new("my files/throng.toml");
        assert_eq!(format_command("throng", None, "serve", ""), "throng serve");
        assert_eq!(
            format_command("target/release/throng", Some(config), "account add", "alice@localhost"),
            "target/release/throng account add --config 'my files/throng.toml' alice@localhost"
        );
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
    }
}
