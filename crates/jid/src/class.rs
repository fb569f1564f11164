//! The PRECIS string classes (RFC 8264, section 4) with today's characters.
//!
//! `precis-core` stops at Unicode 6.3, as the IANA tables do; everything newer is "unassigned" to it, which
//! would refuse every emoji since 2014 as a chat nickname. RFC 8264 (section 8) is an algorithm over the
//! properties of whatever Unicode version is at hand, so code points that `precis-core` calls unassigned go
//! through the same algorithm once more, with the newer tables of `unicode-properties`.
//!
//! Trap: the order of the tests in `newer` is that of RFC 8264, section 8. The sets that can hold no code point
//! assigned after 6.3 (exceptions, ASCII7, join controls, old Hangul) are left out.

use precis_core::{DerivedPropertyValue, FreeformClass, IdentifierClass, StringClass};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory as Gc, UnicodeGeneralCategory};

/// A string class of RFC 8264.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Section 4.2: letters, digits and printable ASCII.
    Identifier,
    /// Section 4.3: also spaces, symbols, punctuation and compatibility characters.
    Freeform,
}

impl StringClass for Class {
    fn get_value_from_char(&self, c: char) -> DerivedPropertyValue {
        let value = match self {
            Class::Identifier => IdentifierClass::default().get_value_from_char(c),
            Class::Freeform => FreeformClass::default().get_value_from_char(c),
        };
        if value == DerivedPropertyValue::Unassigned { newer(*self, c) } else { value }
    }

    fn get_value_from_codepoint(&self, cp: u32) -> DerivedPropertyValue {
        char::from_u32(cp).map_or(DerivedPropertyValue::Disallowed, |c| self.get_value_from_char(c))
    }
}

/// The derived property of a code point that was assigned after Unicode 6.3, or not at all.
fn newer(class: Class, c: char) -> DerivedPropertyValue {
    let by_class = match class {
        Class::Identifier => DerivedPropertyValue::SpecClassDis,
        Class::Freeform => DerivedPropertyValue::SpecClassPval,
    };
    // The one default-ignorable newcomer that is not a format character (Mongolian variation selector four).
    if c == '\u{180f}' {
        return DerivedPropertyValue::Disallowed;
    }
    match c.general_category() {
        Gc::Unassigned => DerivedPropertyValue::Unassigned,
        Gc::Control
        | Gc::Format
        | Gc::Surrogate
        | Gc::PrivateUse
        | Gc::LineSeparator
        | Gc::ParagraphSeparator => DerivedPropertyValue::Disallowed,
        _ if !std::iter::once(c).nfkc().eq(std::iter::once(c)) => by_class,
        Gc::LowercaseLetter
        | Gc::UppercaseLetter
        | Gc::OtherLetter
        | Gc::DecimalNumber
        | Gc::ModifierLetter
        | Gc::NonspacingMark
        | Gc::SpacingMark => DerivedPropertyValue::PValid,
        _ => by_class,
    }
}
