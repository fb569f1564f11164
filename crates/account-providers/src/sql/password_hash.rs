//! Hashed passwords as other programs store them:
//!
//! | Form | Written by |
//! | --- | --- |
//! | `$2a$`, `$2b$`, `$2x$`, `$2y$` … | bcrypt: PHP, Rails, most web frameworks |
//! | `$argon2id$`, `$argon2i$`, `$argon2d$` … | Argon2 (RFC 9106) in the PHC string format |
//! | `pbkdf2_sha256$iterations$salt$hash`, `pbkdf2_sha1$…` | Django |
//! | `$pbkdf2-sha256$iterations$salt$hash`, `-sha512`, `$pbkdf2$` | Passlib |
//! | `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, and SHA-1, SHA-512 | PostgreSQL (RFC 5803 with another separator) |
//!
//! Verification costs tens of milliseconds by design, so it belongs on a thread for blocking work.
//!
//! Not implemented: plain text, MD5 and other hashes without a salt.
//!
//! # Pitfalls
//!
//! The parameters come from a foreign table. They are bounded, or one row could stop the server.

use std::num::NonZeroU32;

use argon2::password_hash::{SaltString, Value};
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier, Version};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{
    GeneralPurpose, GeneralPurposeConfig, NO_PAD, STANDARD, STANDARD_NO_PAD,
};
use ring::pbkdf2;
use sasl::{Credentials, KeyBytes, ScramHash, ScramKeys};

/// Most memory for one Argon2, in kibibytes.
const MAX_ARGON2_KIB: u32 = 256 * 1024;
/// Most passes of Argon2.
const MAX_ARGON2_PASSES: u32 = 16;
/// Most memory times passes of one Argon2, in kibibytes: about a second.
const MAX_ARGON2_WORK: u32 = 1024 * 1024;
/// Most iterations of PBKDF2: about a second.
const MAX_PBKDF2_ITERATIONS: u32 = 3_000_000;
/// Iterations for new passwords, as Django has them.
const NEW_PBKDF2_ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).unwrap();
/// Highest cost of bcrypt: a second.
const MAX_BCRYPT_COST: u32 = 14;
/// bcrypt ignores the rest of a password, so a longer one must not be compared.
const MAX_BCRYPT_PASSWORD: usize = 72;

/// Base 64 of bcrypt.
const BCRYPT: GeneralPurpose = GeneralPurpose::new(&alphabet::BCRYPT, NO_PAD);

/// Base 64 with `.` instead of `+`, which Passlib uses, without padding.
const PASSLIB: GeneralPurpose = GeneralPurpose::new(
    &PASSLIB_ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const PASSLIB_ALPHABET: alphabet::Alphabet =
    match alphabet::Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789./") {
        Ok(alphabet) => alphabet,
        Err(_) => alphabet::STANDARD,
    };

/// A hashed password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// As stored.
    Bcrypt(String),
    /// As stored.
    Argon2(String),
    /// PBKDF2.
    Pbkdf2 {
        /// Hash function.
        hash: ScramHash,
        /// Iterations.
        iterations: NonZeroU32,
        /// Salt.
        salt: Vec<u8>,
        /// Result.
        key: Vec<u8>,
    },
    /// Keys of SCRAM.
    Scram(Box<Credentials>),
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PasswordHash::Bcrypt(_) => "bcrypt",
            PasswordHash::Argon2(_) => "Argon2",
            PasswordHash::Pbkdf2 { .. } => "PBKDF2",
            PasswordHash::Scram(_) => "SCRAM",
        })
    }
}

/// Form of the hashes of new passwords.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewPasswordHash {
    /// bcrypt with cost 12.
    Bcrypt,
    /// Argon2id in the PHC string format.
    Argon2id,
    /// PBKDF2 with SHA-256 in the form of Django.
    Pbkdf2Sha256,
    /// SCRAM-SHA-256 in the form of PostgreSQL.
    ScramSha256,
}

impl PasswordHash {
    /// Reads a column. `None` if its form is not known or its parameters are out of bounds.
    pub fn parse(text: &str) -> Option<PasswordHash> {
        let text = text.trim();
        let modular = text.strip_prefix('$').and_then(|rest| rest.split('$').next());
        match modular {
            Some("2a" | "2b" | "2x" | "2y") => {
                let cost: u32 = text.get(4..6)?.parse().ok()?;
                (text.len() == 60 && text.is_ascii() && cost <= MAX_BCRYPT_COST)
                    .then(|| PasswordHash::Bcrypt(text.to_owned()))
            }
            Some("argon2id" | "argon2i" | "argon2d") => {
                let parsed = argon2::PasswordHash::new(text).ok()?;
                // `Params` multiplies the lanes before it checks them.
                let few = |lanes: Value<'_>| lanes.decimal().is_ok_and(|lanes| lanes <= Params::MAX_P_COST);
                if parsed.params.iter().any(|(name, value)| name.as_str() == "p" && !few(value)) {
                    return None;
                }
                let parameters = Params::try_from(&parsed).ok()?;
                let (memory, passes) = (parameters.m_cost(), parameters.t_cost());
                let bounded = memory <= MAX_ARGON2_KIB
                    && passes <= MAX_ARGON2_PASSES
                    && memory.saturating_mul(passes) <= MAX_ARGON2_WORK;
                (bounded && parsed.hash.is_some()).then(|| PasswordHash::Argon2(text.to_owned()))
            }
            Some(name @ ("pbkdf2" | "pbkdf2-sha256" | "pbkdf2-sha512")) => {
                let hash = match name {
                    "pbkdf2" => ScramHash::Sha1,
                    "pbkdf2-sha256" => ScramHash::Sha256,
                    _ => ScramHash::Sha512,
                };
                let mut parts = text.split('$').skip(2);
                let (iterations, salt, key) = (parts.next()?, parts.next()?, parts.next()?);
                let salt = PASSLIB.decode(salt).ok()?;
                PasswordHash::pbkdf2(hash, iterations, salt, PASSLIB.decode(key).ok()?)
            }
            Some(_) => None,
            None => PasswordHash::parse_named(text),
        }
    }

    fn parse_named(text: &str) -> Option<PasswordHash> {
        let mut parts = text.split('$');
        let (name, first, second, third) = (parts.next()?, parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        match (name, third) {
            ("pbkdf2_sha256", Some(key)) => PasswordHash::pbkdf2(
                ScramHash::Sha256,
                first,
                second.as_bytes().to_vec(),
                STANDARD.decode(key).ok()?,
            ),
            ("pbkdf2_sha1", Some(key)) => PasswordHash::pbkdf2(
                ScramHash::Sha1,
                first,
                second.as_bytes().to_vec(),
                STANDARD.decode(key).ok()?,
            ),
            (name, None) => {
                let hash = ScramHash::ALL.into_iter().find(|hash| hash.scram_name() == name)?;
                let (iterations, salt) = first.split_once(':')?;
                let (stored_key, server_key) = second.split_once(':')?;
                let key =
                    |text: &str| STANDARD.decode(text).ok().filter(|key| key.len() == hash.output_len());
                let salt = STANDARD.decode(salt).ok().filter(|salt| (1..=255).contains(&salt.len()))?;
                let keys = ScramKeys {
                    salt: salt.into(),
                    iterations: parse_iterations(iterations)?,
                    stored_key: KeyBytes::copy_from(&key(stored_key)?),
                    server_key: KeyBytes::copy_from(&key(server_key)?),
                };
                let mut credentials = Credentials::default();
                match hash {
                    ScramHash::Sha1 => credentials.sha1 = Some(keys),
                    ScramHash::Sha256 => credentials.sha256 = Some(keys),
                    ScramHash::Sha512 => credentials.sha512 = Some(keys),
                }
                Some(PasswordHash::Scram(Box::new(credentials)))
            }
            _ => None,
        }
    }

    fn pbkdf2(hash: ScramHash, iterations: &str, salt: Vec<u8>, key: Vec<u8>) -> Option<PasswordHash> {
        let iterations = parse_iterations(iterations)?;
        // A short key would be easy to hit.
        let sound = (1..=255).contains(&salt.len()) && (16..=hash.output_len()).contains(&key.len());
        sound.then_some(PasswordHash::Pbkdf2 { hash, iterations, salt, key })
    }

    /// Whether the password is the hashed one. Slow; see the module.
    pub fn verify(&self, password: &str) -> bool {
        if password.is_empty() || password.contains('\0') {
            return false;
        }
        match self {
            PasswordHash::Bcrypt(hash) => {
                password.len() <= MAX_BCRYPT_PASSWORD && bcrypt::verify(password, hash).unwrap_or(false)
            }
            PasswordHash::Argon2(text) => argon2::PasswordHash::new(text).is_ok_and(|mut hash| {
                // Strings of the first version do not name it, and the reference implementation reads them so.
                hash.version.get_or_insert(Version::V0x10.into());
                Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
                    .verify_password(password.as_bytes(), &hash)
                    .is_ok()
            }),
            PasswordHash::Pbkdf2 { hash, iterations, salt, key } => {
                let algorithm = match hash {
                    ScramHash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
                    ScramHash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
                    ScramHash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
                };
                pbkdf2::verify(algorithm, *iterations, salt, password.as_bytes(), key).is_ok()
            }
            PasswordHash::Scram(credentials) => credentials.verify_password(password),
        }
    }

    /// The SCRAM keys, if that is what is stored.
    pub fn credentials(&self) -> Option<&Credentials> {
        match self {
            PasswordHash::Scram(credentials) => Some(credentials),
            _ => None,
        }
    }
}

fn parse_iterations(text: &str) -> Option<NonZeroU32> {
    let iterations: NonZeroU32 = text.parse().ok()?;
    (iterations.get() <= MAX_PBKDF2_ITERATIONS).then_some(iterations)
}

impl NewPasswordHash {
    /// All forms.
    pub const ALL: [NewPasswordHash; 4] = [
        NewPasswordHash::Bcrypt,
        NewPasswordHash::Argon2id,
        NewPasswordHash::Pbkdf2Sha256,
        NewPasswordHash::ScramSha256,
    ];

    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            NewPasswordHash::Bcrypt => "bcrypt",
            NewPasswordHash::Argon2id => "argon2id",
            NewPasswordHash::Pbkdf2Sha256 => "pbkdf2-sha256",
            NewPasswordHash::ScramSha256 => "scram-sha-256",
        }
    }

    /// A hash that matches no password and takes as long as one that [`NewPasswordHash::hash`] has made.
    pub fn decoy(self) -> PasswordHash {
        let random = base::id::random_bytes::<32>();
        match self {
            NewPasswordHash::Bcrypt => {
                // 16 bytes of salt and 23 of the hash.
                let (salt, hash) = (BCRYPT.encode(&random[..16]), BCRYPT.encode(&random[..23]));
                PasswordHash::Bcrypt(format!("$2b${:02}${salt}{hash}", bcrypt::DEFAULT_COST))
            }
            NewPasswordHash::Argon2id => PasswordHash::Argon2(format!(
                "$argon2id$v=19$m={},t={},p={}$c29tZXNhbHQ${}",
                Params::DEFAULT_M_COST,
                Params::DEFAULT_T_COST,
                Params::DEFAULT_P_COST,
                STANDARD_NO_PAD.encode(random)
            )),
            NewPasswordHash::Pbkdf2Sha256 => PasswordHash::Pbkdf2 {
                hash: ScramHash::Sha256,
                iterations: NEW_PBKDF2_ITERATIONS,
                salt: random.to_vec(),
                key: random.to_vec(),
            },
            NewPasswordHash::ScramSha256 => {
                let keys = sasl::Decoy::new(&base::Secret::new(random), sasl::DEFAULT_ITERATIONS);
                PasswordHash::Scram(Box::new(keys.credentials("decoy")))
            }
        }
    }

    /// Hashes a new password. Slow.
    ///
    /// # Errors
    /// One sentence, if the password cannot be used.
    pub fn hash(self, password: &str) -> Result<String, String> {
        if password.is_empty() || password.contains('\0') {
            return Err("the password is empty or contains U+0000".to_owned());
        }
        match self {
            NewPasswordHash::Bcrypt if password.len() > MAX_BCRYPT_PASSWORD => {
                Err(format!("the password must have at most {MAX_BCRYPT_PASSWORD} bytes"))
            }
            NewPasswordHash::Bcrypt => {
                let salt = base::id::random_bytes::<16>();
                let parts = bcrypt::hash_with_salt(password, bcrypt::DEFAULT_COST, salt);
                parts
                    .map(|parts| parts.to_string())
                    .map_err(|error| format!("the password cannot be hashed: {error}"))
            }
            NewPasswordHash::Argon2id => {
                let failed = |error| format!("the password cannot be hashed: {error}");
                let salt = SaltString::encode_b64(&base::id::random_bytes::<16>()).map_err(failed)?;
                let hash = Argon2::default().hash_password(password.as_bytes(), &salt).map_err(failed)?;
                Ok(hash.to_string())
            }
            NewPasswordHash::Pbkdf2Sha256 => {
                // Without the characters that separate fields.
                let salt = base::id::random_id();
                let mut key = [0; 32];
                let (algorithm, iterations) = (pbkdf2::PBKDF2_HMAC_SHA256, NEW_PBKDF2_ITERATIONS);
                pbkdf2::derive(algorithm, iterations, salt.as_bytes(), password.as_bytes(), &mut key);
                Ok(format!("pbkdf2_sha256${iterations}${salt}${}", STANDARD.encode(key)))
            }
            NewPasswordHash::ScramSha256 => {
                let salt = base::id::random_bytes::<{ sasl::SALT_BYTES }>();
                let hashes = [ScramHash::Sha256];
                let derived = Credentials::derive_for(&hashes, password, sasl::DEFAULT_ITERATIONS, &salt);
                let derived = derived.map_err(|error| format!("the password cannot be used: {error}"))?;
                let keys = derived.keys(ScramHash::Sha256).ok_or("the password cannot be used")?;
                Ok(format!(
                    "SCRAM-SHA-256${}:{}${}:{}",
                    keys.iterations,
                    STANDARD.encode(&keys.salt),
                    STANDARD.encode(keys.stored_key.expose()),
                    STANDARD.encode(keys.server_key.expose())
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifies(text: &str, password: &str) -> bool {
        PasswordHash::parse(text).unwrap_or_else(|| panic!("{text}")).verify(password)
    }

    #[test]
    fn hashes_of_other_programs_are_verified() {
        // Computed with libxcrypt; the first is also a test vector of crypt_blowfish. PBKDF2 is computed with ring.
        for (bcrypt, password) in [
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),
            ("$2y$07$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq", "rasmuslerdorf"),
        ] {
            assert!(verifies(bcrypt, password) && !verifies(bcrypt, &password[1..]), "{bcrypt}");
        }
        let pbkdf2 = |name: &str,
                      algorithm,
                      salt: &[u8],
                      text: &str,
                      encode: &dyn Fn(&[u8]) -> String,
                      length: usize| {
            let mut key = vec![0; length];
            pbkdf2::derive(algorithm, NonZeroU32::new(1_000).unwrap(), salt, b"s3cret", &mut key);
            let stored = format!("{name}$1000${text}${}", encode(&key));
            assert!(verifies(&stored, "s3cret"), "{stored}");
            assert!(!verifies(&stored, "s3cre") && !verifies(&stored, ""), "{stored}");
        };
        let standard = |bytes: &[u8]| STANDARD.encode(bytes);
        pbkdf2("pbkdf2_sha256", pbkdf2::PBKDF2_HMAC_SHA256, b"saltySALT", "saltySALT", &standard, 32);
        pbkdf2("pbkdf2_sha1", pbkdf2::PBKDF2_HMAC_SHA1, b"saltySALT", "saltySALT", &standard, 20);
        let passlib = |bytes: &[u8]| PASSLIB.encode(bytes).trim_end_matches('=').to_owned();
        let salt = passlib(&[251; 16]);
        assert!(salt.contains('.') || salt.contains('/'));
        pbkdf2("$pbkdf2-sha256", pbkdf2::PBKDF2_HMAC_SHA256, &[251; 16], &salt, &passlib, 32);
        pbkdf2("$pbkdf2-sha512", pbkdf2::PBKDF2_HMAC_SHA512, &[251; 16], &salt, &passlib, 64);
        pbkdf2("$pbkdf2", pbkdf2::PBKDF2_HMAC_SHA1, &[251; 16], &salt, &passlib, 20);
    }

    #[test]
    fn argon2_is_verified_with_the_parameters_of_the_hash() {
        use argon2::PasswordHasher as _;
        use argon2::password_hash::SaltString;
        let salt = SaltString::encode_b64(&[7; 16]).unwrap();
        for algorithm in [Algorithm::Argon2id, Algorithm::Argon2i, Algorithm::Argon2d] {
            let hasher = Argon2::new(algorithm, Version::V0x13, Params::new(64, 2, 1, None).unwrap());
            let text = hasher.hash_password(b"s3cret", &salt).unwrap().to_string();
            assert!(verifies(&text, "s3cret") && !verifies(&text, "s3cre"), "{text}");
        }
        // From the documentation of the reference implementation.
        let reference = "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG";
        assert!(verifies(reference, "password"));
        let hasher = Argon2::new(Algorithm::Argon2i, Version::V0x10, Params::new(64, 2, 1, None).unwrap());
        let text = hasher.hash_password(b"s3cret", &salt).unwrap().to_string().replace("$v=16", "");
        assert!(!text.contains("v=") && verifies(&text, "s3cret") && !verifies(&text, "s3cre"), "{text}");
    }

    #[test]
    fn new_hashes_are_verified_and_have_scram_keys_where_they_are_those() {
        for form in NewPasswordHash::ALL {
            let stored = form.hash("p\u{e4}ss").unwrap();
            let parsed = PasswordHash::parse(&stored).unwrap_or_else(|| panic!("{stored}"));
            assert!(parsed.verify("p\u{e4}ss") && !parsed.verify("pass"), "{stored}");
            let scram = form == NewPasswordHash::ScramSha256;
            assert_eq!(parsed.credentials().is_some_and(|keys| keys.sha256.is_some()), scram);
            assert!(form.hash("").is_err() && form.hash("a\0b").is_err(), "{}", form.name());
            assert_ne!(form.hash("p\u{e4}ss").unwrap(), stored, "each has a salt of its own");
            let decoy = form.decoy();
            assert_eq!(format!("{decoy:?}"), format!("{parsed:?}"));
            assert!(!decoy.verify("p\u{e4}ss"));
            if let PasswordHash::Bcrypt(text) | PasswordHash::Argon2(text) = &decoy {
                assert!(PasswordHash::parse(text).is_some(), "{text}");
                assert_eq!(text.split('$').nth(2), stored.split('$').nth(2), "the same cost");
            }
            if let PasswordHash::Bcrypt(text) = &decoy {
                assert_eq!(bcrypt::verify("x", text).ok(), Some(false), "an error would take no time");
            }
        }
        assert!(NewPasswordHash::Bcrypt.hash(&"x".repeat(73)).is_err());
    }

    #[test]
    fn unknown_forms_and_excessive_parameters_are_refused() {
        for wrong in [
            "",
            "s3cret",
            "5f4dcc3b5aa765d61d8327deb882cf99",
            "$1$salt$hash",
            "$2y$31$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq",
            "$2y$07$short",
            "$argon2id$v=19$m=4194304,t=3,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaaJObG",
            "$argon2id$v=19$m=262144,t=16,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaaJObG",
            "$argon2id$v=19$m=64,t=3,p=1$c29tZXNhbHQ",
            "$argon2id$v=19$m=64,t=3,p=3177777719$c29tZXNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaaJObG",
            "pbkdf2_sha256$3000001$salt$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "pbkdf2_sha256$1000$salt$AAAA",
            "pbkdf2_sha256$0$salt$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "pbkdf2_sha256$99999999999$salt$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "SCRAM-SHA-256$4096:c2FsdA==$AAAA:AAAA",
            "SCRAM-SHA-256$4096:$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ] {
            assert!(PasswordHash::parse(wrong).is_none(), "{wrong}");
        }
    }
}
