//! The PRECIS string classes (RFC 8264, section 4) for current Unicode versions.
//!
//! `precis-core` stops at Unicode 6.3, like the IANA tables. It treats everything newer as unassigned, which would
//! reject every emoji since 2014 in a chat nickname. RFC 8264, section 8, is an algorithm over the properties of any
//! Unicode version, so code points that `precis-core` considers unassigned go through the same algorithm again, with
//! the newer tables of `unicode-properties`.
//!
//! # Pitfalls
//!
//! The order of the tests in `newer_derived_property` is that of RFC 8264, section 8. Sets without code points assigned
//! after 6.3 (exceptions, ASCII7, join controls, old Hangul) are omitted.

use std::borrow::Cow;

use precis_core::{DerivedPropertyValue, Error, FreeformClass, IdentifierClass, StringClass};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory as Gc, UnicodeGeneralCategory};

/// A string class of RFC 8264.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrecisClass {
    /// Section 4.2: letters, digits and printable ASCII.
    Identifier,
    /// Section 4.3: also spaces, symbols, punctuation and compatibility characters.
    Freeform,
}

impl PrecisClass {
    /// Whether every character of `label` is in the class, context rules included. Equivalent to
    /// [`StringClass::allows`], but evaluates each whole-label rule once: evaluated for each of two thousand Arabic
    /// digits, they took 14 ms for one hostile address.
    pub(crate) fn permits(self, label: &str) -> Result<(), Error> {
        self.allows(collapse_whole_label_rules(label))
    }
}

/// Replaces all but the first character of each whole-label rule with `a`. The result is the same: to every rule that
/// examines neighbours or scripts, those characters are as neutral as `a`.
fn collapse_whole_label_rules(label: &str) -> Cow<'_, str> {
    if label.chars().filter(|c| whole_label_rule(*c).is_some()).nth(1).is_none() {
        return Cow::Borrowed(label);
    }
    let mut seen = [false; 3];
    let neutral = |c| match whole_label_rule(c) {
        Some(rule) if std::mem::replace(&mut seen[rule], true) => 'a',
        _ => c,
    };
    Cow::Owned(label.chars().map(neutral).collect())
}

impl StringClass for PrecisClass {
    fn get_value_from_char(&self, c: char) -> DerivedPropertyValue {
        let value = match self {
            PrecisClass::Identifier => IdentifierClass::default().get_value_from_char(c),
            PrecisClass::Freeform => FreeformClass::default().get_value_from_char(c),
        };
        if value == DerivedPropertyValue::Unassigned { newer_derived_property(*self, c) } else { value }
    }

    fn get_value_from_codepoint(&self, cp: u32) -> DerivedPropertyValue {
        char::from_u32(cp).map_or(DerivedPropertyValue::Disallowed, |c| self.get_value_from_char(c))
    }
}

/// The context rules with the same result at every position of a label (RFC 5892, appendices A.7 to A.9).
fn whole_label_rule(c: char) -> Option<usize> {
    match c {
        '\u{30fb}' => Some(0),
        '\u{660}'..='\u{669}' => Some(1),
        '\u{6f0}'..='\u{6f9}' => Some(2),
        _ => None,
    }
}

/// The derived property of a code point that Unicode 6.3 did not assign.
fn newer_derived_property(class: PrecisClass, c: char) -> DerivedPropertyValue {
    let by_class = match class {
        PrecisClass::Identifier => DerivedPropertyValue::SpecClassDis,
        PrecisClass::Freeform => DerivedPropertyValue::SpecClassPval,
    };
    // The only default-ignorable addition that is not a format character (Mongolian variation selector four).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_rules_apply_at_every_position() {
        let allows = |label: &str| {
            let permitted = PrecisClass::Identifier.permits(label).is_ok();
            assert_eq!(permitted, PrecisClass::Identifier.allows(label).is_ok(), "{label:?}");
            permitted
        };
        for good in [
            "\u{660}\u{661}",
            "a\u{6f0}\u{6f1}",
            "\u{30a2}\u{30fb}\u{30fb}",
            "l\u{b7}l\u{b7}l",
            "\u{915}\u{94d}\u{200d}",
        ] {
            assert!(allows(good), "{good:?}");
        }
        for bad in [
            "\u{660}\u{6f0}",
            "\u{6f0}a\u{660}",
            "\u{30fb}",
            "a\u{30fb}\u{30fb}",
            "l\u{b7}l\u{b7}",
            "a\u{200d}",
            "\u{b7}",
        ] {
            assert!(!allows(bad), "{bad:?}");
        }
    }
}
