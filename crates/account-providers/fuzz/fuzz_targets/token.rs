//! Fuzz target of tokens, keys and claims: the input is a token, then 0xff, then a JSON object. A token that is valid is a
//! crash: its signature cannot be guessed.
#![no_main]

use account_providers::jwt::ClaimRules;
use account_providers::jwt::signature::{CompactToken, VerificationKey};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let (token, object) = data.split_at(data.iter().position(|byte| *byte == 0xff).unwrap_or(data.len()));
    let secret = VerificationKey::hmac(b"not to be guessed by a fuzzer, because it is long").expect("a constant");
    if let Some(token) = std::str::from_utf8(token).ok().and_then(CompactToken::parse) {
        assert!(token.verify(&[secret]).is_none());
    }
    if let Ok(Value::Object(object)) = serde_json::from_slice(object.get(1..).unwrap_or_default()) {
        let _ = VerificationKey::from_jwk(&object);
        let rules = ClaimRules { without_audience: true, ..ClaimRules::default() };
        if let Ok(account) = rules.account(&object, "a.org", 1_800_000_000) {
            assert_eq!(account.domain(), "a.org");
            assert!(account.local().is_some());
        }
    }
    let _ = VerificationKey::from_public_key_info(data);
});
