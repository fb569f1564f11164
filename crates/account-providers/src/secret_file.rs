//! Files with a secret: a password, a token or a key.
//!
//! # Pitfalls
//!
//! Only the end of the last line is not a part of the secret. A password may end with a space, a key with any byte.

use std::path::Path;

use base::Secret;

/// The content of the file, without the end of its last line.
///
/// # Errors
/// One sentence, if the file cannot be read or is empty.
pub fn read_secret_file(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let content = std::fs::read(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let secret = content.strip_suffix(b"\n").unwrap_or(&content);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    if secret.is_empty() {
        return Err(format!("{shown} is empty; write the secret into it"));
    }
    Ok(Secret::new(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_line_is_not_a_part_of_the_secret() {
        let path = std::env::temp_dir().join(format!("throng-secret-{}", base::id::random_id()));
        for (content, expected) in [
            (&b"secret"[..], Some(&b"secret"[..])),
            (b"secret\n", Some(b"secret")),
            (b"secret \r\n", Some(b"secret ")),
            (b"a\n\n", Some(b"a\n")),
            (b"", None),
            (b"\n", None),
        ] {
            std::fs::write(&path, content).unwrap();
            let found = read_secret_file(&path).ok();
            assert_eq!(found.as_ref().map(Secret::expose), expected, "{content:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read_secret_file(&path).unwrap_err().starts_with("cannot read "));
    }
}
