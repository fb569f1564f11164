//! Fuzz target of all decoders on the same bytes: blobs of credentials and FAST tokens, token messages, certificates,
//! base 64 texts and challenges to the client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sasl::client::{Gs2, ScramClient};
use sasl::fast_tokens::{FastToken, TokenChange};
use sasl::{
    ClientId, Credentials, FastTokens, HtMechanism, ScramHash, channel_binding, encoding, hashed_token,
    prepare,
};

fuzz_target!(|data: &[u8]| {
    if let Ok(credentials) = Credentials::decode(data) {
        assert_eq!(credentials.encode(), data, "one blob, one meaning");
    }
    if let Ok(mut fast_tokens) = FastTokens::decode(data) {
        assert_eq!(fast_tokens.encode(), data, "one blob, one meaning");
        let issue = Some(FastToken { mechanism: HtMechanism::Unbound, seed: [1; 16], issued: 5, expires: 9 });
        let client = ClientId::new("fuzzer");
        let change = TokenChange {
            client,
            used_seed: None,
            invalidate: false,
            new_token: issue,
            max_clients: 4,
            now: 5,
        };
        assert_eq!(fast_tokens.apply(&change), Ok(()));
        assert!((1..=4).contains(&fast_tokens.clients()));
        assert_eq!(FastTokens::decode(&fast_tokens.encode()).as_ref(), Ok(&fast_tokens));
    }
    let _ = hashed_token::parse(data);
    let _ = channel_binding::server_end_point(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = prepare(text);
        if let Ok(decoded) = encoding::decode_response(text) {
            assert!(text == "=" || encoding::encode_challenge(&decoded) == text, "one text, one meaning");
        }
        let _ = encoding::decode_sasl2(text);
    }
    // Many iterations are legal and slow; the fuzzer would find nothing else.
    if !data.windows(5).any(|digits| digits.iter().all(u8::is_ascii_digit)) {
        let mut client = ScramClient::new(ScramHash::Sha1, Gs2::None, "user", "pencil").with_nonce("a");
        let _ = client.client_final(data, None);
        let _ = client.verify(data);
    }
});
