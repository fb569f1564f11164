//! What must hold for all bytes of an element before it is read: length, UTF-8, and the production Char (XML 1.0, section
//! 2.2).

use crate::{Error, Limits, name};

/// Bytes of an allowed length that are UTF-8 and contain no character that XML does not have.
#[derive(Clone, Copy, Debug)]
pub struct CheckedText<'a> {
    pub(crate) text: &'a str,
    /// Whether a tab, line feed or carriage return occurs anywhere.
    pub(crate) spaced: bool,
}

impl<'a> CheckedText<'a> {
    /// Checks length, UTF-8 and characters.
    pub fn new(bytes: &'a [u8], limits: &Limits) -> Result<CheckedText<'a>, Error> {
        if bytes.len() > limits.element_bytes as usize {
            return Err(Error::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::BadUtf8)?;
        Ok(CheckedText { text, spaced: check_characters(bytes)? })
    }
}

/// Checks the production Char over UTF-8 bytes: no control characters but three, no U+FFFE and U+FFFF. Returns whether
/// any of those three occurs.
fn check_characters(bytes: &[u8]) -> Result<bool, Error> {
    let mut control = false;
    let mut space = false;
    let mut maybe = false;
    // No early exit, so that the loop compiles to a few vector instructions per cache line.
    for &b in bytes {
        let allowed = (b == b'\t') | (b == b'\n') | (b == b'\r');
        control |= (b < b' ') & !allowed;
        space |= allowed;
        maybe |= b == 0xEF;
    }
    if control || (maybe && name::contains_noncharacter(bytes)) {
        Err(Error::BadCharacter)
    } else {
        Ok(space)
    }
}
