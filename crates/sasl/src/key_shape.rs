//! Shapes of stored SCRAM keys: what everybody can see of an account's keys before the proof, the form of the salt and the
//! number of iterations for each hash. Keys that were imported from another server have other shapes than the usual ones, so
//! the decoys of missing accounts must have them, too; see [`crate::Decoy`].
//!
//! ```text
//! shapes = u8 version = 1 | for each shape: u32 accounts | for each hash: u8 salt | u32 iterations
//! salt   = length, at most 64; 0: no keys; 255: the text of a UUID
//! ```
//!
//! Not implemented: salts of more than 64 bytes, and salts that are texts other than a UUID, as Prosody writes it.

use std::num::NonZeroU32;

use crate::credentials::{Credentials, MAX_ITERATIONS};
use crate::hash::ScramHash;

const VERSION: u8 = 1;

/// Most shapes that are kept: those of the most accounts.
pub const MAX_SHAPES: usize = 16;

const SHAPE_BYTES: usize = 4 + 3 * 5;

/// [`SaltForm`] of a UUID.
const UUID: u8 = 255;

/// Longest salt of a decoy in bytes: the output of SHA-512.
const MAX_SALT_BYTES: u8 = 64;

/// Form of a salt as it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaltForm(u8);

impl SaltForm {
    fn of(salt: &[u8]) -> SaltForm {
        if is_uuid(salt) {
            return SaltForm(UUID);
        }
        SaltForm(u8::try_from(salt.len()).map_or(MAX_SALT_BYTES, |bytes| bytes.min(MAX_SALT_BYTES)))
    }

    /// A salt of this form from random bytes.
    pub(crate) fn salt(self, random: &[u8; 64]) -> Box<[u8]> {
        let [a, b, c, d, e, f, version, g, variant, h, tail @ ..] = random;
        if self.0 != UUID {
            let (salt, _) = random.split_at(usize::from(self.0.min(MAX_SALT_BYTES)));
            return salt.into();
        }
        // RFC 9562, section 5.4.
        let (version, variant) = (version & 0x0f | 0x40, variant & 0x3f | 0x80);
        let tail: String = tail.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let head = format!("{a:02x}{b:02x}{c:02x}{d:02x}-{e:02x}{f:02x}-{version:02x}{g:02x}");
        format!("{head}-{variant:02x}{h:02x}-{tail}").into_bytes().into()
    }
}

/// Whether a salt is the text of a random UUID in lower case.
fn is_uuid(salt: &[u8]) -> bool {
    let is_part = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        14 => *byte == b'4',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    salt.len() == 36 && salt.iter().enumerate().all(is_part)
}

/// The shape of the keys of an account. Form of the salt and iterations, or `None` without keys, in the order of
/// [`ScramHash::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyShape([Option<(SaltForm, NonZeroU32)>; 3]);

impl KeyShape {
    /// The shape of these keys; `None` without any: such an account already looks like a missing one.
    pub fn of(keys: &Credentials) -> Option<KeyShape> {
        let part = |hash: ScramHash| {
            let keys = keys.keys(hash)?;
            Some((SaltForm::of(&keys.salt), keys.iterations))
        };
        let parts = ScramHash::ALL.map(part);
        parts.iter().any(Option::is_some).then_some(KeyShape(parts))
    }

    /// Form of the salt and iterations for a hash.
    pub(crate) fn part(&self, hash: ScramHash) -> Option<(SaltForm, NonZeroU32)> {
        let at = ScramHash::ALL.iter().position(|one| *one == hash)?;
        self.0.get(at).copied().flatten()
    }
}

/// Shapes, each with the number of accounts that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyShapes(Vec<(KeyShape, u32)>);

impl KeyShapes {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All shapes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(KeyShape, u32)> {
        self.0.iter()
    }

    /// Counts an account. A shape beyond [`MAX_SHAPES`] is ignored.
    pub fn count(&mut self, shape: KeyShape) {
        let has_room = self.0.len() < MAX_SHAPES;
        match self.0.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, accounts)) => *accounts = accounts.saturating_add(1),
            None if has_room => self.0.push((shape, 1)),
            None => {}
        }
    }

    /// Adds the shapes of others, of which the same accounts may have been counted here.
    pub fn merge(&mut self, others: &KeyShapes) {
        for (shape, accounts) in &others.0 {
            match self.0.iter_mut().find(|(known, _)| known == shape) {
                Some((_, known)) => *known = (*known).max(*accounts),
                None => self.0.push((*shape, *accounts)),
            }
        }
        self.0.sort_by_key(|(_, accounts)| std::cmp::Reverse(*accounts));
        self.0.truncate(MAX_SHAPES);
    }

    /// Encodes them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.0.len() * SHAPE_BYTES);
        out.push(VERSION);
        for (KeyShape(parts), accounts) in &self.0 {
            out.extend_from_slice(&accounts.to_be_bytes());
            for part in parts {
                let (salt, iterations) = part.map_or((0, 0), |(salt, iterations)| (salt.0, iterations.get()));
                out.push(salt);
                out.extend_from_slice(&iterations.to_be_bytes());
            }
        }
        out
    }

    /// Decodes them; what is not encoded shapes has none.
    pub fn decode(bytes: &[u8]) -> KeyShapes {
        let Some(bytes) = bytes.strip_prefix(&[VERSION]) else { return KeyShapes::default() };
        let shapes = bytes.chunks_exact(SHAPE_BYTES).filter_map(decode_shape);
        KeyShapes(shapes.take(MAX_SHAPES).collect())
    }
}

fn decode_shape(bytes: &[u8]) -> Option<(KeyShape, u32)> {
    let (accounts, parts) = bytes.split_first_chunk::<4>()?;
    let mut shape = KeyShape([None; 3]);
    for (part, bytes) in shape.0.iter_mut().zip(parts.chunks_exact(5)) {
        let (salt, iterations) = bytes.split_first()?;
        let iterations = u32::from_be_bytes(iterations.try_into().ok()?);
        let iterations = NonZeroU32::new(iterations).filter(|number| number.get() <= MAX_ITERATIONS);
        *part = iterations.filter(|_| *salt > 0).map(|iterations| (SaltForm(*salt), iterations));
    }
    let accounts = u32::from_be_bytes(*accounts);
    (accounts > 0 && shape.0.iter().any(Option::is_some)).then_some((shape, accounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(hashes: &[ScramHash], iterations: u32, salt: &[u8]) -> KeyShape {
        KeyShape::of(&Credentials::derive_for(hashes, "pencil", iterations, salt).unwrap()).unwrap()
    }

    #[test]
    fn shapes_are_counted_merged_and_read_back() {
        let foreign = shape(&[ScramHash::Sha1], 2, b"a salt of another server");
        let usual = shape(&ScramHash::ALL, 1, &[7; 16]);
        assert_eq!(KeyShape::of(&Credentials::default()), None);
        let mut shapes = KeyShapes::default();
        for counted in [foreign, usual, foreign] {
            shapes.count(counted);
        }
        assert_eq!(shapes.iter().copied().collect::<Vec<_>>(), [(foreign, 2), (usual, 1)]);
        assert_eq!(KeyShapes::decode(&shapes.encode()), shapes);
        let before = shapes.clone();
        shapes.merge(&before);
        assert_eq!(shapes, before, "the same import may be counted twice");
        for iterations in 0..40 {
            shapes.count(shape(&[ScramHash::Sha256], iterations + 1, b"s"));
        }
        assert_eq!(shapes.iter().count(), MAX_SHAPES);
    }

    #[test]
    fn salts_of_decoys_have_the_form_of_the_imported_ones() {
        let random = std::array::from_fn(|at| u8::try_from(at * 7 % 256).unwrap());
        let uuid = b"0ba5e1e7-1b19-4c57-8bc1-6a9e9c4ad0c8";
        let made = SaltForm::of(uuid).salt(&random);
        assert!(is_uuid(&made) && matches!(made[19], b'8' | b'9' | b'a' | b'b'), "{made:?}");
        assert_eq!(SaltForm::of(&made), SaltForm::of(uuid));
        for length in [1, 16, 36, 64, 200] {
            assert_eq!(SaltForm::of(&vec![7; length]).salt(&random).len(), length.min(64));
        }
        assert_eq!(SaltForm(254).salt(&random).len(), 64);
    }

    #[test]
    fn what_is_not_encoded_shapes_has_none() {
        for bytes in [&b""[..], b"\x02", b"\x01", &[1; 19], &[0; 20], &[255; 20]] {
            assert!(KeyShapes::decode(bytes).is_empty(), "{bytes:?}");
        }
    }
}
