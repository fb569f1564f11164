//! What the URLs of a file contain, and the signatures over it.
//!
//! The path of a file is `TOKEN/NAME`. The token is the base64 of an id, the owner, the expiry, the purpose, the type and a
//! signature, so that a file needs no record besides the file itself. The owner is masked with the id: two files of one user
//! look unrelated. The URL for PUT has the query `slot=…` with a deadline, the size and a signature of its own.
//!
//! # Pitfalls
//!
//! Nothing of a token is used before its signature is verified.

use base::percent_encoding::{percent_decode, percent_encode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jid::JidRef;
use ring::hmac;
use throng_core::file_storage::{FileName, FilePath};
use throng_core::server_secret::ServerSecret;

/// Bytes of an id and of an owner.
const ID_BYTES: usize = 16;
/// Bytes of a time.
const TIME_BYTES: usize = 5;
/// Bytes of a signature.
const TAG_BYTES: usize = 32;
/// Bytes of a token before the type.
const FIXED_BYTES: usize = 2 * ID_BYTES + TIME_BYTES + 1;
/// Maximum bytes of a path or query that is worth decoding.
const MAX_ENCODED_BYTES: usize = 2048;
/// Longest file name in bytes; of a longer one the end is kept, which has the file ending.
const MAX_NAME_BYTES: usize = 200;

/// A user of the domain, as a keyed hash of the bare address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileOwner([u8; ID_BYTES]);

impl FileOwner {
    /// The folder of the user's files.
    pub(super) fn folder(self) -> FileName {
        hex_name(&hex(&self.0))
    }
}

/// A random number of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId([u8; ID_BYTES]);

impl FileId {
    pub(super) fn random() -> FileId {
        FileId(base::id::random_bytes())
    }

    /// The id as text, which is also the entity tag.
    pub(super) fn hex(self) -> String {
        hex(&self.0)
    }
}

/// Purpose of a file (section 6), as far as quotas distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileClass {
    /// `message` and `ephemeral`.
    Message,
    /// `profile`.
    Profile,
}

impl FileClass {
    fn letter(self) -> char {
        match self {
            FileClass::Message => 'm',
            FileClass::Profile => 'p',
        }
    }

    fn from_letter(letter: &str) -> Option<FileClass> {
        match letter {
            "m" => Some(FileClass::Message),
            "p" => Some(FileClass::Profile),
            _ => None,
        }
    }
}

/// Everything about a file except its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UploadedFile {
    pub(super) id: FileId,
    pub(super) owner: FileOwner,
    /// Seconds since 1970 at which it is no longer available; 0: as long as its account exists.
    pub(super) keep_until: u64,
    pub(super) class: FileClass,
    /// Empty if the request for the slot had none.
    pub(super) content_type: String,
    pub(super) name: String,
}

/// What the name of a stored file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredName {
    pub(super) id: FileId,
    pub(super) keep_until: u64,
    pub(super) class: FileClass,
}

impl StoredName {
    /// `None` for a file that is not one of these.
    pub(super) fn parse(name: &FileName) -> Option<StoredName> {
        let mut parts = name.as_str().split('-');
        let (id, keep_until, class) = (parts.next()?, parts.next()?, parts.next()?);
        let id = FileId(unhex(id)?);
        let stored =
            StoredName { id, keep_until: keep_until.parse().ok()?, class: FileClass::from_letter(class)? };
        (stored.name() == *name).then_some(stored)
    }

    pub(super) fn name(&self) -> FileName {
        hex_name(&format!("{}-{}-{}", self.id.hex(), self.keep_until, self.class.letter()))
    }

    /// Whether it is no longer available.
    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.keep_until != 0 && self.keep_until <= now
    }
}

impl UploadedFile {
    /// What the name of the stored file says.
    pub(super) fn stored(&self) -> StoredName {
        StoredName { id: self.id, keep_until: self.keep_until, class: self.class }
    }

    /// Where it is stored.
    pub(super) fn path(&self) -> FilePath {
        FilePath { folder: self.owner.folder(), name: self.stored().name() }
    }
}

/// What a slot permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotTerms {
    /// Seconds since 1970.
    pub(super) deadline: u64,
    /// Bytes of the file.
    pub(super) size: u64,
}

/// Signs and verifies the URLs of a domain.
pub(super) struct UrlSigner(hmac::Key);

impl UrlSigner {
    pub(super) fn new(secret: &ServerSecret, domain: &str) -> UrlSigner {
        UrlSigner(secret.key(&format!("upload {domain}")))
    }

    /// The owner of the files of a user; the resource is ignored.
    pub(super) fn owner(&self, user: JidRef<'_>) -> FileOwner {
        FileOwner(self.derive(b"owner ", user.bare().as_str().as_bytes()))
    }

    fn derive(&self, label: &[u8], data: &[u8]) -> [u8; ID_BYTES] {
        let tag = hmac::sign(&self.0, &[label, data].concat());
        std::array::from_fn(|at| tag.as_ref()[at])
    }

    /// The owner masked or unmasked with the id.
    fn masked(&self, owner: [u8; ID_BYTES], id: FileId) -> [u8; ID_BYTES] {
        let mask = self.derive(b"mask ", &id.0);
        std::array::from_fn(|at| owner[at] ^ mask[at])
    }

    /// The path of a file, `TOKEN/NAME`.
    pub(super) fn path(&self, file: &UploadedFile) -> String {
        let mut token = Vec::with_capacity(FIXED_BYTES + file.content_type.len() + TAG_BYTES);
        token.extend_from_slice(&file.id.0);
        token.extend_from_slice(&self.masked(file.owner.0, file.id));
        token.extend_from_slice(&file.keep_until.to_be_bytes()[8 - TIME_BYTES..]);
        token.push(if file.class == FileClass::Profile { b'p' } else { b'm' });
        token.extend_from_slice(file.content_type.as_bytes());
        let tag = hmac::sign(&self.0, &signed_of_file(&token, &file.name));
        token.extend_from_slice(tag.as_ref());
        format!("{}/{}", BASE64.encode(token), percent_encode(&file.name))
    }

    /// The file of a path that this deployment has issued.
    pub(super) fn file(&self, path: &str) -> Option<UploadedFile> {
        if path.len() > MAX_ENCODED_BYTES {
            return None;
        }
        let (token, name) = path.split_once('/')?;
        let (token, name) = (BASE64.decode(token).ok()?, percent_decode(name)?);
        let (content, tag) = token.split_at_checked(token.len().checked_sub(TAG_BYTES)?)?;
        hmac::verify(&self.0, &signed_of_file(content, &name), tag).ok()?;
        let (fixed, content_type) = content.split_at_checked(FIXED_BYTES)?;
        let (id, rest) = fixed.split_first_chunk::<ID_BYTES>()?;
        let (owner, rest) = rest.split_first_chunk::<ID_BYTES>()?;
        let (time, class) = rest.split_first_chunk::<TIME_BYTES>()?;
        Some(UploadedFile {
            id: FileId(*id),
            owner: FileOwner(self.masked(*owner, FileId(*id))),
            keep_until: number(time),
            class: FileClass::from_letter(std::str::from_utf8(class).ok()?)?,
            content_type: String::from_utf8(content_type.to_vec()).ok()?,
            name,
        })
    }

    /// The query of the URL for PUT.
    pub(super) fn slot_query(&self, file: &UploadedFile, terms: SlotTerms) -> String {
        let mut slot = Vec::with_capacity(TIME_BYTES + 8 + TAG_BYTES);
        slot.extend_from_slice(&terms.deadline.to_be_bytes()[8 - TIME_BYTES..]);
        slot.extend_from_slice(&terms.size.to_be_bytes());
        let tag = hmac::sign(&self.0, &signed_of_slot(&slot, file));
        slot.extend_from_slice(tag.as_ref());
        format!("slot={}", BASE64.encode(slot))
    }

    /// What the slot of a query permits for a file, if this deployment has issued it.
    pub(super) fn slot(&self, file: &UploadedFile, query: &str) -> Option<SlotTerms> {
        if query.len() > MAX_ENCODED_BYTES {
            return None;
        }
        let slot = query.split('&').find_map(|pair| pair.strip_prefix("slot="))?;
        let slot = BASE64.decode(slot).ok()?;
        let (content, tag) = slot.split_at_checked(TIME_BYTES + 8)?;
        hmac::verify(&self.0, &signed_of_slot(content, file), tag).ok()?;
        let (deadline, size) = content.split_at(TIME_BYTES);
        Some(SlotTerms { deadline: number(deadline), size: number(size) })
    }
}

fn signed_of_file(token: &[u8], name: &str) -> Vec<u8> {
    // The name is last and the token has no separator to confuse with: its length is fixed first.
    [b"file ", (token.len() as u64).to_be_bytes().as_slice(), token, name.as_bytes()].concat()
}

fn signed_of_slot(slot: &[u8], file: &UploadedFile) -> Vec<u8> {
    [b"slot ", slot, file.id.0.as_slice(), file.owner.0.as_slice()].concat()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn unhex(text: &str) -> Option<[u8; ID_BYTES]> {
    if text.len() != 2 * ID_BYTES || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; ID_BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[allow(clippy::expect_used, reason = "hexadecimal digits, numbers and `-` are valid in names")]
fn hex_name(text: &str) -> FileName {
    FileName::new(text).expect("a valid name")
}

/// The name of a file as it is written into the URL: the last component of a path, without control characters.
pub(super) fn file_name(written: &str) -> String {
    let last = written.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().filter(|c| !c.is_control()).collect();
    let name = name.trim();
    let mut start = name.len().saturating_sub(MAX_NAME_BYTES);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    // HTTP clients remove `.` and `..` from a path.
    match &name[start..] {
        "" | "." | ".." => "file".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(domain: &str) -> UrlSigner {
        UrlSigner::new(&ServerSecret::new(b"secret"), domain)
    }

    fn example(signer: &UrlSigner) -> UploadedFile {
        UploadedFile {
            id: FileId([7; 16]),
            owner: signer.owner(jid::Jid::parse("romeo@montague.tld/garden").unwrap().as_ref()),
            keep_until: 1_800_000_000,
            class: FileClass::Message,
            content_type: "image/jpeg".to_owned(),
            name: "très cool.jpg".to_owned(),
        }
    }

    #[test]
    fn section_5_urls_are_ascii_and_keep_the_file_name() {
        let signer = signer("montague.tld");
        let path = signer.path(&example(&signer));
        assert!(path.ends_with("/tr%C3%A8s%20cool.jpg"), "{path}");
        assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "{path}");
        assert_eq!(signer.file(&path), Some(example(&signer)));
    }

    #[test]
    fn a_changed_path_is_not_a_file() {
        let signer = signer("montague.tld");
        let path = signer.path(&example(&signer));
        for at in 0..path.len() {
            for replacement in ["A", "b", "%", "/", ""] {
                let changed = format!("{}{replacement}{}", &path[..at], &path[at + 1..]);
                let found = signer.file(&changed);
                // `%c3` is `%C3`.
                assert!(found.is_none() || changed == path || found == Some(example(&signer)), "{changed}");
            }
        }
        for other in ["", "/", "a", "a/b", "../..", &path.replace("cool", "other"), &format!("{path}/x")] {
            assert_eq!(signer.file(other), None, "{other}");
        }
        assert_eq!(self::signer("capulet.tld").file(&path), None, "another domain");
    }

    #[test]
    fn a_slot_belongs_to_one_file_and_cannot_be_changed() {
        let signer = signer("montague.tld");
        let file = example(&signer);
        let terms = SlotTerms { deadline: 1_700_000_000, size: 23_456 };
        let query = signer.slot_query(&file, terms);
        assert_eq!(signer.slot(&file, &query), Some(terms));
        assert_eq!(signer.slot(&file, &format!("a=b&{query}")), Some(terms));
        let other = UploadedFile { id: FileId([8; 16]), ..file.clone() };
        assert_eq!(signer.slot(&other, &query), None);
        for at in 5..query.len() {
            for replacement in ["A", "b"] {
                let changed = format!("{}{replacement}{}", &query[..at], &query[at + 1..]);
                assert!(changed == query || signer.slot(&file, &changed).is_none(), "{changed}");
            }
        }
        for wrong in ["", "slot=", "slot=a", &query[..20]] {
            assert_eq!(signer.slot(&file, wrong), None);
        }
    }

    #[test]
    fn files_of_one_user_look_unrelated() {
        let signer = signer("montague.tld");
        let (one, other) = (example(&signer), UploadedFile { id: FileId([8; 16]), ..example(&signer) });
        let owner = |file: &UploadedFile| BASE64.decode(&signer.path(file)[..60]).unwrap()[16..32].to_vec();
        assert_ne!(owner(&one), owner(&other));
    }

    #[test]
    fn stored_names_are_read_again_and_others_are_not() {
        let stored = example(&signer("x")).stored();
        assert_eq!(StoredName::parse(&stored.name()), Some(stored));
        assert!(stored.is_expired(1_800_000_000) && !stored.is_expired(1_799_999_999));
        assert!(!StoredName { keep_until: 0, ..stored }.is_expired(u64::MAX));
        for other in
            ["a", "a-1-m", "07070707070707070707070707070707-1-x", "07070707070707070707070707070707-01-m"]
        {
            assert_eq!(StoredName::parse(&FileName::new(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn file_names_are_one_path_segment() {
        for (written, want) in [
            ("très cool.jpg", "très cool.jpg"),
            ("../../etc/passwd", "passwd"),
            ("C:\\temp\\a.txt", "a.txt"),
            ("..", "file"),
            (".", "file"),
            ("a/", "file"),
            ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ] {
            assert_eq!(file_name(written), want);
        }
        let long = file_name(&format!("{}.tar.gz", "é".repeat(300)));
        assert!(long.len() <= MAX_NAME_BYTES && long.ends_with("é.tar.gz"));
    }
}
