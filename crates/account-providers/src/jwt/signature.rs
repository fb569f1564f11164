//! Signatures of compact JWS (RFC 7515, section 7.1) with the algorithms of RFC 7518, section 3, and RFC 8037, and the keys
//! (RFC 7517) that verify them.
//!
//! Not implemented: ES512 and Ed448, which ring does not have; `b64` and other critical headers (RFC 7515, section 4.1.11).
//!
//! # Pitfalls
//!
//! The algorithm in the header is the attacker's choice. The type of the key decides which ones it may be, so an RSA key never
//! verifies an HMAC, and `none` is no algorithm (RFC 8725, section 3.1).

use std::fmt;

use base::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use serde_json::{Map, Value};

use crate::ber::{self, BerReader};

/// Longest token in bytes.
pub const MAX_TOKEN_BYTES: usize = 8192;
/// RFC 7518, section 3.2: an HMAC key is at least as long as the hash. This one is for HS256; HS384 needs 48 bytes, HS512 64.
pub const MIN_HMAC_BYTES: usize = 32;

const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384_OID: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];

/// A key that verifies tokens.
#[derive(Clone, Debug)]
pub struct VerificationKey {
    /// `kid` of a JWK.
    pub id: Option<String>,
    /// `alg` of a JWK: the only algorithm to be used with it.
    algorithm: Option<String>,
    material: KeyMaterial,
}

#[derive(Clone)]
enum KeyMaterial {
    Hmac(Secret),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// Uncompressed point.
    P256(Vec<u8>),
    /// Uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyMaterial::Hmac(_) => "HMAC",
            KeyMaterial::Rsa { .. } => "RSA",
            KeyMaterial::P256(_) => "P-256",
            KeyMaterial::P384(_) => "P-384",
            KeyMaterial::Ed25519(_) => "Ed25519",
        })
    }
}

impl VerificationKey {
    /// A shared secret, for HS256, HS384 and HS512.
    ///
    /// # Errors
    /// One sentence, if it is too short.
    pub fn hmac(secret: &[u8]) -> Result<VerificationKey, String> {
        if secret.len() < MIN_HMAC_BYTES {
            return Err(format!(
                "a key for HMAC must have at least {MIN_HMAC_BYTES} bytes, not {}",
                secret.len()
            ));
        }
        Ok(VerificationKey { id: None, algorithm: None, material: KeyMaterial::Hmac(Secret::new(secret)) })
    }

    /// The public key of a JWK (RFC 7517, section 4). `None` if it is of a kind that is not supported, or not for signatures.
    pub fn from_jwk(jwk: &Map<String, Value>) -> Option<VerificationKey> {
        let text = |key: &str| jwk.get(key).and_then(Value::as_str);
        let bytes = |key: &str| URL_SAFE_NO_PAD.decode(text(key)?).ok();
        let verifies = |operations: &Value| {
            operations.as_array().is_some_and(|operations| operations.iter().any(|name| name == "verify"))
        };
        if text("use").is_some_and(|usage| usage != "sig") || !jwk.get("key_ops").is_none_or(verifies) {
            return None;
        }
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == length && y.len() == length).then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("oct", _) => {
                KeyMaterial::Hmac(Secret::new(bytes("k").filter(|key| key.len() >= MIN_HMAC_BYTES)?))
            }
            ("RSA", _) => KeyMaterial::Rsa { n: trim_zeros(bytes("n")?), e: trim_zeros(bytes("e")?) },
            ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x").filter(|key| key.len() == 32)?),
            _ => return None,
        };
        Some(VerificationKey {
            id: text("kid").map(str::to_owned),
            algorithm: text("alg").map(str::to_owned),
            material,
        })
    }

    /// The key of a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7), which is what `PUBLIC KEY` in a PEM file contains.
    pub fn from_public_key_info(der: &[u8]) -> Option<VerificationKey> {
        let mut info = BerReader::new(der).enter(ber::SEQUENCE).ok()?;
        let mut algorithm = info.enter(ber::SEQUENCE).ok()?;
        let oid = algorithm.expect(ber::OBJECT_IDENTIFIER).ok()?;
        // The first byte counts unused bits.
        let key = info.expect(ber::BIT_STRING).ok()?.strip_prefix(&[0])?;
        let point = |length: usize| (key.len() == length && key[0] == 4).then(|| key.to_vec());
        let material = match oid {
            RSA_OID => {
                let mut numbers = BerReader::new(key).enter(ber::SEQUENCE).ok()?;
                let n = trim_zeros(numbers.expect(ber::INTEGER).ok()?.to_vec());
                KeyMaterial::Rsa { n, e: trim_zeros(numbers.expect(ber::INTEGER).ok()?.to_vec()) }
            }
            EC_OID => match algorithm.expect(ber::OBJECT_IDENTIFIER).ok()? {
                P256_OID => KeyMaterial::P256(point(65)?),
                P384_OID => KeyMaterial::P384(point(97)?),
                _ => return None,
            },
            ED25519_OID if key.len() == 32 => KeyMaterial::Ed25519(key.to_vec()),
            _ => return None,
        };
        Some(VerificationKey { id: None, algorithm: None, material })
    }

    /// Whether it is a shared secret.
    pub fn is_secret(&self) -> bool {
        matches!(self.material, KeyMaterial::Hmac(_))
    }

    fn verify(&self, algorithm: &str, message: &[u8], tag: &[u8]) -> bool {
        if self.algorithm.as_deref().is_some_and(|only| only != algorithm) {
            return false;
        }
        let with = |parameters: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(parameters, key).verify(message, tag).is_ok()
        };
        match (&self.material, algorithm) {
            (KeyMaterial::Hmac(secret), _) => {
                let hash = match algorithm {
                    "HS256" => hmac::HMAC_SHA256,
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => return false,
                };
                secret.expose().len() >= hash.digest_algorithm().output_len()
                    && hmac::verify(&hmac::Key::new(hash, secret.expose()), message, tag).is_ok()
            }
            (KeyMaterial::Rsa { n, e }, _) => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                signature::RsaPublicKeyComponents { n, e }.verify(parameters, message, tag).is_ok()
            }
            (KeyMaterial::P256(point), "ES256") => with(&signature::ECDSA_P256_SHA256_FIXED, point),
            (KeyMaterial::P384(point), "ES384") => with(&signature::ECDSA_P384_SHA384_FIXED, point),
            // RFC 9864 names the curve.
            (KeyMaterial::Ed25519(key), "EdDSA" | "Ed25519") => with(&signature::ED25519, key),
            _ => false,
        }
    }
}

/// ring wants numbers without leading zeros.
fn trim_zeros(number: Vec<u8>) -> Vec<u8> {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    number[first..].to_vec()
}

/// A token whose signature is not verified yet.
#[derive(Debug)]
pub struct CompactToken<'a> {
    algorithm: String,
    /// `kid` of the header.
    pub key_id: Option<String>,
    signed: &'a str,
    payload: &'a str,
    tag: Vec<u8>,
}

impl<'a> CompactToken<'a> {
    /// Takes a token apart. `None` if it is none, or needs an extension.
    pub fn parse(token: &'a str) -> Option<CompactToken<'a>> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, tag) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let header = json_object(header)?;
        if header.contains_key("crit") || header.contains_key("b64") {
            return None;
        }
        if !header.get("typ").is_none_or(is_login_type) {
            return None;
        }
        let text = |key: &str| header.get(key).and_then(Value::as_str).map(str::to_owned);
        let (algorithm, key_id, tag) = (text("alg")?, text("kid"), URL_SAFE_NO_PAD.decode(tag).ok()?);
        Some(CompactToken { algorithm, key_id, signed, payload, tag })
    }

    /// The payload as text, if one of the keys verifies the signature. A token that names a key is verified by the keys of that
    /// name and by those without one.
    pub fn verify_bytes(&self, keys: &[VerificationKey]) -> Option<Vec<u8>> {
        let fits = |key: &&VerificationKey| match (&self.key_id, &key.id) {
            (Some(wanted), Some(id)) => wanted == id,
            _ => true,
        };
        let verifies = |key: &VerificationKey| key.verify(&self.algorithm, self.signed.as_bytes(), &self.tag);
        if !keys.iter().filter(fits).any(verifies) {
            return None;
        }
        URL_SAFE_NO_PAD.decode(self.payload).ok()
    }

    /// The claims, if one of the keys verifies the signature.
    pub fn verify(&self, keys: &[VerificationKey]) -> Option<Map<String, Value>> {
        match serde_json::from_slice(&self.verify_bytes(keys)?) {
            Ok(Value::Object(claims)) => Some(claims),
            _ => None,
        }
    }
}

/// Whether tokens of this type authorise their owner. With the same key an identity provider signs others, such as logout
/// tokens, which have the same claims (RFC 8725, section 3.11).
fn is_login_type(kind: &Value) -> bool {
    let Some(kind) = kind.as_str() else { return false };
    // RFC 7515, section 4.1.9: the prefix is optional, and media types have no case.
    let kind = kind.to_ascii_lowercase();
    // RFC 7519, section 5.1, and RFC 9068, section 2.1.
    matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
}

fn json_object(encoded: &str) -> Option<Map<String, Value>> {
    match serde_json::from_slice(&URL_SAFE_NO_PAD.decode(encoded).ok()?) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const RSA_TAG: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    fn key(jwk: Value) -> VerificationKey {
        VerificationKey::from_jwk(jwk.as_object().unwrap()).unwrap()
    }

    fn hmac_key() -> VerificationKey {
        key(json!({ "kty": "oct",
            "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow" }))
    }

    fn rsa_key() -> VerificationKey {
        key(json!({ "kty": "RSA", "n": RSA_N, "e": "AQAB" }))
    }

    fn ec_key() -> VerificationKey {
        key(json!({ "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" }))
    }

    fn ed25519_key() -> VerificationKey {
        key(json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }))
    }

    fn examples() -> [(VerificationKey, String); 3] {
        let hs256 = format!(
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
        );
        let es256 = format!(
            "eyJhbGciOiJFUzI1NiJ9.{CLAIMS}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
        );
        [
            (hmac_key(), hs256),
            (rsa_key(), format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.{RSA_TAG}")),
            (ec_key(), es256),
        ]
    }

    #[test]
    fn rfc_7515_appendix_a_the_examples_verify_with_their_own_key_only() {
        let keys = [hmac_key(), rsa_key(), ec_key(), ed25519_key()];
        for (at, (key, token)) in examples().into_iter().enumerate() {
            let parsed = CompactToken::parse(&token).unwrap();
            let claims = parsed.verify(&[key]).unwrap();
            assert_eq!((claims["iss"].as_str(), claims["exp"].as_u64()), (Some("joe"), Some(1_300_819_380)));
            assert!(parsed.verify(&keys).is_some());
            let others: Vec<_> = keys
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .map(|(_, key)| key.clone())
                .collect();
            assert!(parsed.verify(&others).is_none());
            assert!(parsed.verify(&[]).is_none());
        }
    }

    #[test]
    fn rfc_8037_appendix_a_4_the_example_verifies() {
        let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        let parsed = CompactToken::parse(token).unwrap();
        assert_eq!(parsed.verify_bytes(&[ed25519_key()]).unwrap(), b"Example of Ed25519 signing");
        assert!(parsed.verify(&[ed25519_key()]).is_none(), "the payload is no JSON object");
    }

    /// RFC 8725, section 2.1: the classic attacks on the choice of the algorithm.
    #[test]
    fn the_header_cannot_choose_another_algorithm() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"NONE"}"#,
            r#"{"alg":""}"#,
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"ES256"}"#,
        ] {
            for tag in ["", "AAAA", RSA_TAG] {
                let token = format!("{}.{CLAIMS}.{tag}", encode(header));
                let parsed = CompactToken::parse(&token);
                let keys = [hmac_key(), ec_key(), ed25519_key()];
                assert!(parsed.is_none_or(|parsed| parsed.verify(&keys).is_none()), "{header} {tag}");
            }
        }
        // An HMAC with the public key of the server as its secret.
        let signed = format!("{}.{CLAIMS}", encode(r#"{"alg":"HS256"}"#));
        let forged = hmac::Key::new(hmac::HMAC_SHA256, &URL_SAFE_NO_PAD.decode(RSA_N).unwrap());
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&forged, signed.as_bytes()));
        let token = format!("{signed}.{tag}");
        assert!(CompactToken::parse(&token).unwrap().verify(&[rsa_key()]).is_none());
        // A JWK may restrict its algorithm further.
        let restricted = key(json!({ "kty": "RSA", "alg": "PS256", "n": RSA_N, "e": "AQAB" }));
        let (_, token) = &examples()[1];
        assert!(CompactToken::parse(token).unwrap().verify(&[restricted]).is_none());
    }

    #[test]
    fn a_token_that_names_a_key_is_verified_by_that_key_only() {
        let sign = |kid: &str, secret: &[u8]| {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "HS512", "kid": kid }).to_string());
            let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(r#"{"sub":"romeo"}"#));
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA512, secret), signed.as_bytes());
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
        };
        let named = |id: &str| VerificationKey {
            id: Some(id.to_owned()),
            ..VerificationKey::hmac(&[7; 64]).unwrap()
        };
        let verifies = |kid: &str, keys: &[VerificationKey]| {
            CompactToken::parse(&sign(kid, &[7; 64])).unwrap().verify(keys).is_some()
        };
        assert!(verifies("a", &[named("b"), named("a")]));
        assert!(!verifies("a", &[named("b")]));
        assert!(verifies("a", &[VerificationKey::hmac(&[7; 64]).unwrap()]));
        assert!(!verifies("a", &[VerificationKey::hmac(&[8; 64]).unwrap()]));
    }

    #[test]
    fn rfc_7518_section_3_2_a_secret_is_as_long_as_the_hash() {
        let verifies = |name: &str, hash, bytes: usize| {
            let secret = vec![7; bytes];
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": name }).to_string());
            let signed = format!("{header}.{CLAIMS}");
            let tag = hmac::sign(&hmac::Key::new(hash, &secret), signed.as_bytes());
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
            let key = VerificationKey::hmac(&secret).unwrap();
            CompactToken::parse(&token).unwrap().verify(&[key]).is_some()
        };
        let hashes = [
            ("HS256", hmac::HMAC_SHA256, 32),
            ("HS384", hmac::HMAC_SHA384, 48),
            ("HS512", hmac::HMAC_SHA512, 64),
        ];
        for (name, hash, bytes) in hashes {
            assert!(verifies(name, hash, bytes), "{name}");
            assert!(bytes == MIN_HMAC_BYTES || !verifies(name, hash, bytes - 1), "{name}");
        }
    }

    #[test]
    fn critical_headers_and_malformed_tokens_are_refused() {
        let header = |text: &str| format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(text));
        assert!(CompactToken::parse(&header(r#"{"alg":"HS256"}"#)).is_some());
        for token in [
            header(r#"{"alg":"HS256","crit":["exp"]}"#),
            header(r#"{"alg":"HS256","b64":false}"#),
            header(r#"{"typ":"JWT"}"#),
            header(r#"{"alg":"HS256","typ":7}"#),
            header(r#"["alg"]"#),
            header("{"),
            String::new(),
            "a.b".to_owned(),
            "a.b.c.d".to_owned(),
            "..".to_owned(),
            "e30.e30.e30".to_owned(),
            "x".repeat(MAX_TOKEN_BYTES + 1),
        ] {
            assert!(CompactToken::parse(&token).is_none(), "{token}");
        }
        assert!(VerificationKey::hmac(b"short").is_err());
        let jwk = |jwk: Value| VerificationKey::from_jwk(jwk.as_object().unwrap());
        assert!(jwk(json!({ "kty": "RSA", "use": "enc", "n": RSA_N, "e": "AQAB" })).is_none());
        assert!(
            jwk(json!({ "kty": "RSA", "key_ops": ["sign", "verify"], "n": RSA_N, "e": "AQAB" })).is_some()
        );
        for operations in [json!(["encrypt"]), json!([]), json!("verify"), json!(null)] {
            let key = json!({ "kty": "RSA", "key_ops": operations, "n": RSA_N, "e": "AQAB" });
            assert!(jwk(key).is_none(), "RFC 7517, section 4.3");
        }
        assert!(jwk(json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" })).is_none());
        assert!(jwk(json!({ "kty": "oct", "k": "c2hvcnQ" })).is_none());
    }

    #[test]
    fn rfc_8725_section_3_11_a_token_of_another_type_is_refused() {
        let parse = |kind: &str| {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "RS256", "typ": kind }).to_string());
            CompactToken::parse(&format!("{header}.e30.AA")).is_some()
        };
        for kind in ["JWT", "jwt", "at+jwt", "application/at+jwt", "application/JWT"] {
            assert!(parse(kind), "{kind}");
        }
        for kind in
            ["logout+jwt", "secevent+jwt", "dpop+jwt", "token-introspection+jwt", "JOSE", "", "text/jwt"]
        {
            assert!(!parse(kind), "{kind}");
        }
    }

    #[test]
    fn public_keys_of_pem_files_are_read() {
        // What `openssl pkey -pubout` writes for the key of RFC 8037: RFC 8410, section 4.
        let mut der = vec![0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        der.extend(URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap());
        assert_eq!(format!("{:?}", VerificationKey::from_public_key_info(&der).unwrap().material), "Ed25519");
        for pair in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let pair = rcgen::KeyPair::generate_for(pair).unwrap();
            let read =
                VerificationKey::from_public_key_info(&rcgen::PublicKeyData::subject_public_key_info(&pair));
            assert!(matches!(read.unwrap().material, KeyMaterial::P256(_) | KeyMaterial::P384(_)));
        }
        for cut in 0..der.len() {
            assert!(VerificationKey::from_public_key_info(&der[..cut]).is_none());
        }
    }

    proptest! {
        #[test]
        fn random_tokens_never_panic(token in "[A-Za-z0-9_.-]{0,200}") {
            if let Some(parsed) = CompactToken::parse(&token) {
                prop_assert!(parsed.verify(&[hmac_key(), rsa_key(), ec_key(), ed25519_key()]).is_none());
            }
        }

        #[test]
        fn random_public_keys_never_panic(der in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = VerificationKey::from_public_key_info(&der);
        }
    }
}
