//! The light clients' own SCRAM (RFC 5802, RFC 7677), without channel binding, PLAIN (RFC 4616), and tokens
//! (HT-SHA-256-NONE of draft-schmaus-kitten-sasl-ht-09).
//!
//! The salted password is kept by salt and iteration count, so that a thousand logins cost a thousand HMACs and not a thousand
//! key derivations. Passwords are ASCII: SASLprep is left out. It is written apart from the server's `sasl` on purpose: a shared mistake must not hide itself.

use std::collections::HashMap;
use std::num::NonZeroU32;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

/// How a light client logs in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub(crate) enum Mechanism {
    /// SCRAM-SHA-1.
    #[value(name = "scram-sha-1")]
    Sha1,
    /// SCRAM-SHA-256.
    #[value(name = "scram-sha-256")]
    Sha256,
    /// PLAIN: the server derives the key.
    #[value(name = "plain")]
    Plain,
    /// FAST (XEP-0484): a token from an earlier login, in one flight. Without one: SCRAM-SHA-1, and a token is asked for.
    #[value(name = "fast")]
    Fast,
}

impl Mechanism {
    /// The registered name of the mechanism.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Plain => "PLAIN",
            Self::Fast => "HT-SHA-256-NONE",
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        if self == Self::Sha256 { hmac::HMAC_SHA256 } else { hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY }
    }

    fn digest(self) -> &'static digest::Algorithm {
        if self == Self::Sha256 { &digest::SHA256 } else { &digest::SHA1_FOR_LEGACY_USE_ONLY }
    }

    /// Derives the salted password; this is the work that a server does for PLAIN.
    pub(crate) fn derive(self, password: &str, salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let algorithm =
            if self == Self::Sha256 { pbkdf2::PBKDF2_HMAC_SHA256 } else { pbkdf2::PBKDF2_HMAC_SHA1 };
        let mut salted = vec![0; self.digest().output_len()];
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
        salted
    }
}

/// What is derived from a password for one salt.
struct Keys {
    client_key: Vec<u8>,
    stored: hmac::Key,
    server: hmac::Key,
}

/// The password and the keys derived from it so far.
pub(crate) struct Secrets {
    password: String,
    keys: HashMap<(Mechanism, Vec<u8>, u32), Keys>,
    /// The iteration count of the newest challenge, by mechanism.
    pub(crate) iterations: HashMap<Mechanism, NonZeroU32>,
    /// Tokens by user.
    pub(crate) tokens: HashMap<String, String>,
    /// Names of streams that can be resumed, by user.
    pub(crate) streams: HashMap<String, String>,
}

impl Secrets {
    /// Secrets for one password that all accounts share.
    pub(crate) fn new(password: &str) -> Self {
        Self {
            password: password.into(),
            keys: HashMap::new(),
            iterations: HashMap::new(),
            tokens: HashMap::new(),
            streams: HashMap::new(),
        }
    }

    /// The initial response of PLAIN in base64.
    pub(crate) fn plain(&self, user: &str) -> String {
        BASE64.encode(format!("\0{user}\0{}", self.password))
    }

    /// The proof of the user's token in base64, if there is one.
    pub(crate) fn token_proof(&self, user: &str) -> Option<String> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.tokens.get(user)?.as_bytes());
        let mut message = [user.as_bytes(), b"\0"].concat();
        message.extend_from_slice(hmac::sign(&key, b"Initiator").as_ref());
        Some(BASE64.encode(message))
    }

    fn keys(&mut self, mechanism: Mechanism, salt: Vec<u8>, iterations: NonZeroU32) -> &Keys {
        let Self { password, keys, .. } = self;
        keys.entry((mechanism, salt, iterations.get())).or_insert_with_key(|(_, salt, _)| {
            let salted = hmac::Key::new(mechanism.hmac(), &mechanism.derive(password, salt, iterations));
            let client_key = hmac::sign(&salted, b"Client Key").as_ref().to_vec();
            let stored = digest::digest(mechanism.digest(), &client_key);
            let server_key = hmac::sign(&salted, b"Server Key");
            Keys {
                stored: hmac::Key::new(mechanism.hmac(), stored.as_ref()),
                server: hmac::Key::new(mechanism.hmac(), server_key.as_ref()),
                client_key,
            }
        })
    }
}

/// One exchange of SCRAM, the client's side.
pub(crate) struct Scram {
    mechanism: Mechanism,
    bare: String,
    nonce: String,
    signature: String,
}

impl Scram {
    /// Begins an exchange; returns the initial response in base64. `nonce` must be new for each login.
    pub(crate) fn begin(mechanism: Mechanism, user: &str, nonce: u64) -> (Self, String) {
        let nonce = format!("bench{nonce:016x}");
        let bare = format!("n={user},r={nonce}");
        let first = BASE64.encode(format!("n,,{bare}"));
        (Self { mechanism, bare, nonce, signature: String::new() }, first)
    }

    /// Answers the challenge (base64) with the final message (base64).
    pub(crate) fn answer(&mut self, challenge: &[u8], secrets: &mut Secrets) -> Result<String> {
        let first = String::from_utf8(BASE64.decode(challenge).context("the challenge is not base64")?)?;
        let (mut nonce, mut salt, mut count) = ("", Vec::new(), 0_u32);
        for part in first.split(',') {
            match part.split_once('=') {
                Some(("r", value)) => nonce = value,
                Some(("s", value)) => salt = BASE64.decode(value).context("the salt is not base64")?,
                Some(("i", value)) => count = value.parse().context("the iteration count is no number")?,
                // RFC 5802 section 5.1: others are ignored (`h` of XEP-0474), but for those that must be understood.
                Some((name, _)) if name != "m" => {}
                _ => bail!("unexpected part {part:?} in the challenge"),
            }
        }
        ensure!(nonce.starts_with(&self.nonce), "the challenge repeats another nonce");
        let iterations = NonZeroU32::new(count).context("the challenge has no iteration count")?;
        secrets.iterations.insert(self.mechanism, iterations);
        let keys = secrets.keys(self.mechanism, salt, iterations);
        let last = format!("c=biws,r={nonce}");
        let signed = format!("{},{first},{last}", self.bare);
        let signature = hmac::sign(&keys.stored, signed.as_bytes());
        let proof: Vec<u8> = keys.client_key.iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        self.signature = BASE64.encode(hmac::sign(&keys.server, signed.as_bytes()));
        Ok(BASE64.encode(format!("{last},p={}", BASE64.encode(proof))))
    }

    /// Checks the server's signature (base64 of `v=…`).
    pub(crate) fn verify(&self, last: &[u8]) -> Result<()> {
        let last = String::from_utf8(BASE64.decode(last).context("the server's signature is not base64")?)?;
        ensure!(last.strip_prefix("v=") == Some(&self.signature), "the server's signature is wrong");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BASE64, Mechanism, Scram, Secrets};
    use base64::Engine as _;

    /// RFC 5802 section 5 and RFC 7677 section 3.
    #[test]
    fn examples_of_the_specifications() {
        let cases = [
            (
                Mechanism::Sha1,
                "fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ),
            (
                Mechanism::Sha256,
                "rOprNGfwEbeRWgbNEkqO",
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                 p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ),
        ];
        for (mechanism, nonce, challenge, expected, signature) in cases {
            let mut secrets = Secrets::new("pencil");
            let mut scram = Scram {
                mechanism,
                bare: format!("n=user,r={nonce}"),
                nonce: nonce.into(),
                signature: String::new(),
            };
            let answer = scram.answer(BASE64.encode(challenge).as_bytes(), &mut secrets).unwrap();
            assert_eq!(String::from_utf8(BASE64.decode(answer).unwrap()).unwrap(), expected);
            scram.verify(BASE64.encode(signature).as_bytes()).unwrap();
            assert!(scram.verify(BASE64.encode("v=x").as_bytes()).is_err());
        }
    }

    #[test]
    fn extensions_are_ignored_unless_they_are_mandatory() {
        for (part, fine) in
            [("h=G6k/rBLDqgOhRRaCuuatSDFkJ08=", true), ("x=1", true), ("m=1", false), ("x", false)]
        {
            let (mut scram, _) = Scram::begin(Mechanism::Sha1, "user", 1);
            let challenge = BASE64.encode(format!("r={}x,s=QSXCR+Q6sek8bf92,i=1,{part}", scram.nonce));
            let answer = scram.answer(challenge.as_bytes(), &mut Secrets::new("pencil"));
            assert_eq!(answer.is_ok(), fine, "{part}");
        }
    }

    #[test]
    fn another_nonce_is_refused() {
        let mut secrets = Secrets::new("pencil");
        let (mut scram, _) = Scram::begin(Mechanism::Sha1, "user", 1);
        let forged = BASE64.encode("r=other,s=QSXCR+Q6sek8bf92,i=4096");
        assert!(scram.answer(forged.as_bytes(), &mut secrets).is_err());
    }
}
