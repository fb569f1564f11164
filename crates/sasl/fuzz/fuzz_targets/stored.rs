//! Blobs of credentials and tokens, messages with a token, certificates, base 64 texts and challenges to the client, all from the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sasl::client::{Gs2, Scram};
use sasl::tokens::{Change, Slot};
use sasl::{ClientId, Credentials, Hash, HtMechanism, Tokens, binding, ht, prepare, text};

fuzz_target!(|data: &[u8]| {
    if let Ok(credentials) = Credentials::decode(data) {
        assert_eq!(credentials.encode(), data, "one blob, one meaning");
    }
    if let Ok(mut tokens) = Tokens::decode(data) {
        assert_eq!(tokens.encode(), data, "one blob, one meaning");
        let issue = Some(Slot { mechanism: HtMechanism::Unbound, seed: [1; 16], issued: 5, expires: 9 });
        let client = ClientId::new("fuzzer");
        let change = Change { client, used: None, invalidate: false, issue, clients: 4, now: 5 };
        assert_eq!(tokens.apply(&change), Ok(()));
        assert!((1..=4).contains(&tokens.clients()));
        assert_eq!(Tokens::decode(&tokens.encode()).as_ref(), Ok(&tokens));
    }
    let _ = ht::parse(data);
    let _ = binding::server_end_point(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = prepare(text);
        if let Ok(decoded) = text::response(text) {
            assert!(text == "=" || text::challenge(&decoded) == text, "one text, one meaning");
        }
        let _ = text::sasl2(text);
    }
    // Many iterations are legal and slow; the fuzzer would only find that.
    if !data.windows(5).any(|digits| digits.iter().all(u8::is_ascii_digit)) {
        let mut client = Scram::new(Hash::Sha1, Gs2::None, "user", "pencil").with_nonce("a");
        let _ = client.last(data, None);
        let _ = client.verify(data);
    }
});
