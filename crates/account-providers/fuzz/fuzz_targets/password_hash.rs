//! Fuzz target of hashed passwords in a foreign table and of statements on it. Nothing is verified: that is slow by design.
#![no_main]

use account_providers::sql::{PasswordHash, SqlStatement};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = PasswordHash::parse(text);
    for writes in [false, true] {
        let Ok(statement) = SqlStatement::parse(text, writes) else { continue };
        // Only the parameters are replaced.
        let names = [":user", ":domain", ":address", ":password"];
        let text_again = statement.text(|number| names[statement.parameters()[number - 1] as usize].to_owned());
        assert_eq!(text_again, text);
    }
});
