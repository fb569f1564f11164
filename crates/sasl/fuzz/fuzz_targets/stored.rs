//! Blobs of credentials, certificates, base 64 texts and challenges to the client, all from the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sasl::client::{Gs2, Scram};
use sasl::{Credentials, Hash, binding, prepare, text};

fuzz_target!(|data: &[u8]| {
    if let Ok(credentials) = Credentials::decode(data) {
        assert_eq!(credentials.encode(), data, "one blob, one meaning");
    }
    let _ = binding::server_end_point(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = prepare(text);
        if let Ok(decoded) = text::response(text) {
            assert!(text == "=" || text::challenge(&decoded) == text, "one text, one meaning");
        }
    }
    // Many iterations are legal and slow; the fuzzer would only find that.
    if !data.windows(5).any(|digits| digits.iter().all(u8::is_ascii_digit)) {
        let mut client = Scram::new(Hash::Sha1, Gs2::None, "user", "pencil").with_nonce("a");
        let _ = client.last(data, None);
        let _ = client.verify(data);
    }
});
