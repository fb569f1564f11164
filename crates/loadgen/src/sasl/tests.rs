//! Tests of SASL against the RFCs' examples and against a SCRAM server that is implemented here from RFC 5802 alone.
//!
//! # Pitfalls
//!
//! The server below derives its keys with its own HMAC loop; using those of `sasl` for it would prove nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac};
use sasl::ScramHash;
use sasl::client::ClientError::{Extension, Iterations, Malformed, Nonce, Server as Reported, Signature};

use super::*;

const SHA1: Mechanism = Mechanism::ScramSha1;
const SHA256: Mechanism = Mechanism::ScramSha256;
const SHA512: Mechanism = Mechanism::ScramSha512;

fn begin(mechanism: Mechanism, user: &str, password: &str, nonce: &str) -> (ClientExchange, String) {
    let (exchange, initial) =
        ClientExchange::begin(mechanism, user, password, None, Gs2::None, nonce).unwrap();
    (exchange, String::from_utf8(initial).unwrap())
}

fn challenge(exchange: &mut ClientExchange, data: &str) -> Result<String, SaslError> {
    exchange
        .challenge(data.as_bytes(), &mut ScramKeyCache::new())
        .map(|answer| String::from_utf8(answer).unwrap())
}

/// Server side: verifies the client's last message and returns its own.
struct Server {
    algorithm: hmac::Algorithm,
    salted: Vec<u8>,
}

fn exporter(data: [u8; 32]) -> Gs2 {
    Gs2::Bound { name: "tls-exporter".into(), data: data.to_vec() }
}

fn end_point(data: Vec<u8>) -> Gs2 {
    Gs2::Bound { name: "tls-server-end-point".into(), data }
}

impl Server {
    /// `Hi` of RFC 5802, section 2.2, written out.
    fn new(hash: ScramHash, password: &str, salt: &[u8], iterations: u32) -> Server {
        let algorithm = match hash {
            ScramHash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            ScramHash::Sha256 => hmac::HMAC_SHA256,
            ScramHash::Sha512 => hmac::HMAC_SHA512,
        };
        let key = hmac::Key::new(algorithm, password.as_bytes());
        let mut last = hmac::sign(&key, &[salt, &[0, 0, 0, 1]].concat()).as_ref().to_vec();
        let mut salted = last.clone();
        for _ in 1..iterations {
            last = hmac::sign(&key, &last).as_ref().to_vec();
            salted.iter_mut().zip(&last).for_each(|(to, from)| *to ^= from);
        }
        Server { algorithm, salted }
    }

    fn sign(&self, key: &[u8], message: &str) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.algorithm, key), message.as_bytes()).as_ref().to_vec()
    }

    /// `v=…` if the proof is correct.
    fn finish(&self, bare: &str, first: &str, last: &str) -> Option<String> {
        let (without_proof, proof) = last.split_once(",p=")?;
        let signed = format!("{bare},{first},{without_proof}");
        let client_key = self.sign(&self.salted, "Client Key");
        let stored = digest::digest(self.algorithm.digest_algorithm(), &client_key);
        let signature = self.sign(stored.as_ref(), &signed);
        let proof = STANDARD.decode(proof).ok()?;
        let recovered: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if recovered != client_key {
            return None;
        }
        let server_key = self.sign(&self.salted, "Server Key");
        Some(format!("v={}", STANDARD.encode(self.sign(&server_key, &signed))))
    }
}

/// RFC 5802, section 5.
#[test]
fn scram_sha_1_as_in_the_rfc() {
    let (mut exchange, initial) = begin(SHA1, "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL");
    assert_eq!(initial, "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL");
    let answer =
        challenge(&mut exchange, "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096");
    assert_eq!(
        answer.unwrap(),
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    );
    assert_eq!(exchange.success(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="), Ok(()));
}

/// RFC 7677, section 3.
#[test]
fn scram_sha_256_as_in_the_rfc() {
    let (mut exchange, initial) = begin(SHA256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
    assert_eq!(initial, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let answer = challenge(
        &mut exchange,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    );
    assert_eq!(
        answer.unwrap(),
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    // As a challenge, then an empty success: servers without additional data.
    assert_eq!(challenge(&mut exchange, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap(), "");
    assert_eq!(exchange.success(b""), Ok(()));
}

#[test]
fn each_hash_and_binding_against_an_independent_server() {
    for hash in [ScramHash::Sha1, ScramHash::Sha256, ScramHash::Sha512] {
        for (binding, header) in [
            (Gs2::None, b"n,a=bo=2Css=3D,".to_vec()),
            (Gs2::NotOffered, b"y,a=bo=2Css=3D,".to_vec()),
            (exporter([7; 32]), [&b"p=tls-exporter,a=bo=2Css=3D,"[..], &[7; 32]].concat()),
            (end_point(vec![1, 2, 3]), [&b"p=tls-server-end-point,a=bo=2Css=3D,"[..], &[1, 2, 3]].concat()),
        ] {
            let mechanism = Mechanism::scram(hash, matches!(binding, Gs2::Bound { .. }));
            let (mut exchange, initial) =
                ClientExchange::begin(mechanism, "a=b,c", "p\u{aa}ss", Some("bo,ss="), binding, "abc")
                    .unwrap();
            let initial = String::from_utf8(initial).unwrap();
            let (_, bare) = initial.split_once("n=a").unwrap();
            let bare = format!("n=a{bare}");
            assert_eq!(bare, "n=a=3Db=2Cc,r=abc");
            let first = format!("r=abcDEF,s={},i=77,x=ignored", STANDARD.encode(b"salty"));
            let last = challenge(&mut exchange, &first).unwrap();
            let channel = last.strip_prefix("c=").unwrap().split(',').next().unwrap();
            assert_eq!(STANDARD.decode(channel).unwrap(), header);
            assert!(last.contains(",r=abcDEF,p="));
            // SASLprep maps U+00AA to `a` (RFC 4013, section 3).
            let server = Server::new(hash, "pass", b"salty", 77);
            let verifier = server.finish(&bare, &first, &last).expect("the proof is right");
            assert_eq!(exchange.success(verifier.as_bytes()), Ok(()));
            assert_eq!(exchange.success(b""), Ok(()), "once proved, it stays so");
        }
    }
}

#[test]
fn a_server_that_does_not_know_the_password_is_detected() {
    let mut keys = ScramKeyCache::new();
    for (last, expected) in [
        ("v=rmF9pqV8S7suAoZWja4dJRkFsKR=", SaslError::Scram(Malformed("signature"))),
        ("v=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", SaslError::Scram(Signature)),
        ("v=", SaslError::Scram(Signature)),
        ("v=cm1G", SaslError::Scram(Signature)),
        ("", SaslError::Unexpected),
        ("x=1", SaslError::Scram(Malformed("signature"))),
        ("e=invalid-proof", SaslError::Scram(Reported("invalid-proof".into()))),
    ] {
        let (mut exchange, _) = begin(SHA1, "user", "pencil", "fyko");
        exchange.challenge(b"r=fykoX,s=QSXCR+Q6sek8bf92,i=4096", &mut keys).unwrap();
        assert_eq!(exchange.success(last.as_bytes()), Err(expected), "{last}");
    }
    let (mut exchange, _) = begin(SHA1, "user", "pencil", "fyko");
    assert_eq!(exchange.success(b""), Err(SaslError::Unexpected), "success without any challenge");
}

#[test]
fn invalid_challenges_are_refused_with_the_invalid_part() {
    for (first, expected) in [
        ("", SaslError::Scram(Malformed("nonce"))),
        ("m=must,r=abcD,s=QSXC,i=1", SaslError::Scram(Extension)),
        ("s=QSXC,i=1,r=abcD", SaslError::Scram(Malformed("nonce"))),
        ("r=abc,s=QSXC,i=1", SaslError::Scram(Nonce)),
        ("r=abX,s=QSXC,i=1", SaslError::Scram(Nonce)),
        ("r=Xabc,s=QSXC,i=1", SaslError::Scram(Nonce)),
        ("r=,s=QSXC,i=1", SaslError::Scram(Nonce)),
        ("r=abcD", SaslError::Scram(Malformed("salt"))),
        ("r=abcD,i=1", SaslError::Scram(Malformed("salt"))),
        ("r=abcD,s=,i=1", SaslError::Scram(Malformed("salt"))),
        ("r=abcD,s=%%%%,i=1", SaslError::Scram(Malformed("salt"))),
        ("r=abcD,s=QSXC", SaslError::Scram(Malformed("iteration count"))),
        ("r=abcD,s=QSXC,i=", SaslError::Scram(Malformed("iteration count"))),
        ("r=abcD,s=QSXC,i=+1", SaslError::Scram(Malformed("iteration count"))),
        ("r=abcD,s=QSXC,i=0", SaslError::Scram(Iterations(0))),
        ("r=abcD,s=QSXC,i=10000001", SaslError::Scram(Iterations(10_000_001))),
        ("r=abcD,s=QSXC,i=99999999999999999999", SaslError::Scram(Iterations(u32::MAX))),
        ("e=other-error", SaslError::Scram(Reported("other-error".into()))),
    ] {
        let (mut exchange, _) = begin(SHA256, "user", "pencil", "abc");
        assert_eq!(challenge(&mut exchange, first), Err(expected), "{first}");
        assert_eq!(challenge(&mut exchange, "r=abcD,s=QSXC,i=1"), Err(SaslError::Unexpected));
    }
    let (mut exchange, _) = begin(SHA256, "user", "pencil", "abc");
    assert_eq!(
        exchange.challenge(b"r=abcD,s=QSXC\xff,i=1", &mut ScramKeyCache::new()),
        Err(SaslError::Scram(Malformed("encoding")))
    );
}

#[test]
fn credentials_that_cannot_be_carried_are_refused_before_the_login() {
    let refused = |mechanism, user: &str, password: &str, authzid, nonce: &str| {
        ClientExchange::begin(mechanism, user, password, authzid, Gs2::None, nonce).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(SHA1, "", "p", None, "n"), SaslError::Credentials);
    assert_eq!(refused(SHA1, "u", "", None, "n"), SaslError::Credentials);
    assert_eq!(refused(SHA1, "u\u{7}", "p", None, "n"), SaslError::Credentials);
    assert_eq!(
        refused(SHA1, "u", "p\u{221}", None, "n"),
        SaslError::Credentials,
        "unassigned in Unicode 3.2"
    );
    assert_eq!(refused(SHA1, "u", "p", None, ""), SaslError::Credentials);
    assert_eq!(refused(SHA1, "u", "p", None, "a,b"), SaslError::Credentials);
    assert_eq!(refused(SHA1, "u", "p", Some(""), "n"), SaslError::Credentials);
    assert_eq!(refused(Mechanism::Plain, "u", "p\0", None, ""), SaslError::Credentials);
    assert_eq!(refused(Mechanism::Plain, "", "p", None, ""), SaslError::Credentials);
    assert_eq!(refused(Mechanism::Anonymous, &"x".repeat(256), "", None, ""), SaslError::Credentials);
    assert_eq!(refused(Mechanism::ScramSha1Plus, "u", "p", None, "n"), SaslError::Binding);
    let bound = ClientExchange::begin(SHA512, "u", "p", None, exporter([0; 32]), "n");
    assert_eq!(bound.map(|_| ()).unwrap_err(), SaslError::Binding);
}

#[test]
fn single_message_mechanisms_are_encoded() {
    let one = |mechanism, user, password, authzid| {
        let (mut exchange, initial) =
            ClientExchange::begin(mechanism, user, password, authzid, Gs2::None, "").unwrap();
        assert_eq!(exchange.challenge(b"", &mut ScramKeyCache::new()), Err(SaslError::Unexpected));
        assert_eq!(exchange.success(b""), Ok(()));
        initial
    };
    assert_eq!(one(Mechanism::Plain, "tim", "tanstaaftanstaaf", None), b"\0tim\0tanstaaftanstaaf");
    assert_eq!(one(Mechanism::Plain, "Kurt", "xipj3plmq", Some("Ursel")), b"Ursel\0Kurt\0xipj3plmq");
    assert_eq!(one(Mechanism::Anonymous, "sirhc", "", None), b"sirhc");
    assert_eq!(one(Mechanism::Anonymous, "", "", None), b"");
    assert_eq!(one(Mechanism::External, "ignored", "", None), b"");
    assert_eq!(one(Mechanism::External, "ignored", "", Some("fred@example.com")), b"fred@example.com");
}

#[test]
fn base64_as_xmpp_carries_it() {
    let text = |data: &[u8], empty| {
        let mut out = String::from("<");
        to_base64(data, empty, &mut out);
        out
    };
    assert_eq!(text(b"", "="), "<=");
    assert_eq!(text(b"", ""), "<");
    assert_eq!(text(b"abc", "="), "<YWJj");
    assert_eq!(from_base64("").unwrap(), b"");
    assert_eq!(from_base64("=").unwrap(), b"");
    assert_eq!(from_base64("\n YWJj ").unwrap(), b"abc");
    assert_eq!(from_base64("YWJ"), Err(SaslError::Base64));
    assert_eq!(from_base64("YW Jj"), Err(SaslError::Base64));
    assert_eq!(from_base64("YWJj=="), Err(SaslError::Base64));
    assert_eq!(from_base64("ü"), Err(SaslError::Base64));
}

#[test]
fn the_strongest_common_mechanism_is_chosen() {
    let offered = ["PLAIN", "SCRAM-SHA-1", "X-OAUTH2", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS", "EXTERNAL"];
    let name = |wanted: &[Mechanism], can_bind| {
        choose(offered, wanted, can_bind).map(|choice| choice.mechanism.name())
    };
    assert_eq!(name(&[], true), Some("SCRAM-SHA-256-PLUS"));
    assert_eq!(name(&[], false), Some("SCRAM-SHA-1"));
    assert_eq!(name(&[Mechanism::Plain, SHA1], true), Some("SCRAM-SHA-1"));
    assert_eq!(name(&Mechanism::ALL, true), Some("EXTERNAL"));
    assert_eq!(name(&[Mechanism::Anonymous, SHA512], true), None);
    assert_eq!(choose([], &[], true), None);
    assert_eq!(choose(["plain", "scram-sha-1"], &[], true), None);
    for mechanism in Mechanism::ALL {
        assert_eq!(parse_mechanism(&mechanism.name().to_lowercase()), Some(mechanism));
    }
    assert_eq!(parse_mechanism("SCRAM-SHA-224"), None);
}

#[test]
fn xep_0440_a_plus_needs_a_binding_that_the_server_has_named() {
    let plus = [Mechanism::ScramSha1Plus];
    // TLS 1.3 has both, TLS 1.2 only the end point.
    for (exporter, end_point, types, wanted, can) in [
        (true, true, Some(&["tls-exporter"][..]), &[][..], true),
        (false, true, Some(&["tls-exporter"][..]), &[][..], false),
        (false, true, Some(&["tls-unique", "tls-server-end-point"][..]), &[][..], true),
        (true, true, Some(&["tls-unique"][..]), &plus[..], false),
        (true, true, Some(&[][..]), &[][..], false),
        (true, true, None, &[][..], false),
        (true, false, None, &plus[..], true),
        (false, false, None, &plus[..], false),
    ] {
        assert_eq!(can_bind(exporter, end_point, types, wanted), can, "{exporter} {end_point} {types:?}");
    }
    // A -PLUS that is ruled out leads to the flag n: y would claim that the server did not offer one.
    let left = choose(["SCRAM-SHA-1", "SCRAM-SHA-1-PLUS"], &[], false).unwrap();
    assert_eq!(left.binding(Some([1; 32]), None, None), Gs2::None);
}

#[test]
fn the_channel_binding_follows_the_mechanism() {
    let (exporter_data, end_point_data) = (Some([1; 32]), Some(vec![2]));
    let plus = choose(["SCRAM-SHA-1", "SCRAM-SHA-1-PLUS"], &[], true).unwrap();
    let both = |types| plus.binding(exporter_data, end_point_data.clone(), types);
    assert_eq!(both(None), exporter([1; 32]));
    assert_eq!(both(Some(&["tls-server-end-point", "tls-unique"][..])), end_point(vec![2]));
    assert_eq!(both(Some(&["tls-unique"][..])), Gs2::None, "begin refuses it then");
    assert_eq!(plus.binding(None, end_point_data.clone(), None), end_point(vec![2]));
    let stripped = choose(["SCRAM-SHA-1"], &[], true).unwrap();
    assert_eq!(stripped.binding(exporter_data, None, None), Gs2::NotOffered);
    assert_eq!(stripped.binding(None, None, None), Gs2::None, "without TLS there is nothing to bind to");
    let unwanted = choose(["SCRAM-SHA-1", "SCRAM-SHA-1-PLUS"], &[SHA1], true).unwrap();
    assert_eq!(unwanted.binding(exporter_data, None, None), Gs2::None, "y would be a lie");
    let plain = choose(["PLAIN"], &[], true).unwrap();
    assert_eq!(plain.binding(exporter_data, None, None), Gs2::None);
}

/// A measurement, not a test: `cargo test -p throng-loadgen --lib sasl -- --ignored --nocapture`.
#[test]
#[ignore = "prints a figure that depends on the machine"]
fn cost_of_an_exchange_with_known_keys() {
    for mechanism in [SHA1, SHA256, SHA512] {
        let mut keys = ScramKeyCache::new();
        let first = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
        let mut lasts = Vec::new();
        let begun = crate::clock::cpu_us();
        const TIMES: u64 = 50_000;
        for _ in 0..TIMES {
            let (mut exchange, initial) = begin(mechanism, "user0001", "pencil", "fyko+d2lbbFgONRv9qkxdawL");
            let mut text = String::new();
            to_base64(initial.as_bytes(), "=", &mut text);
            let answer = exchange.challenge(first.as_bytes(), &mut keys).unwrap();
            to_base64(&answer, "=", &mut text);
            assert!(exchange.success(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=").is_err());
            lasts.push(text.len());
        }
        let spent = crate::clock::cpu_us() - begun;
        println!("{}: {:.2} us per exchange", mechanism.name(), spent as f64 / TIMES as f64);
    }
}
