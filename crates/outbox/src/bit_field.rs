//! Fields of a packed word: position and width, with accessors and a compile-time check of the whole layout.
//!
//! A word that several tasks change at once is packed when its parts must change together, or when separate
//! fields would make every session larger. Each field is declared once, next to the field below it; nothing else
//! contains a shift or a mask.

macro_rules! bit_field {
    ($(#[$doc:meta])* $name:ident, $word:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            shift: u32,
            width: u32,
        }

        #[allow(dead_code, reason = "the two words use different accessors")]
        impl $name {
            /// The field of this width at the low end of the word.
            pub(crate) const fn lowest(width: u32) -> $name {
                assert!(width > 0 && width < <$word>::BITS, "a field has at least one bit and leaves room");
                $name { shift: 0, width }
            }
            /// The field of this width directly above this one.
            pub(crate) const fn then(self, width: u32) -> $name {
                let shift = self.shift + self.width;
                assert!(width > 0 && shift + width <= <$word>::BITS, "the field exceeds the word");
                $name { shift, width }
            }
            /// Whether the word ends with this field.
            pub(crate) const fn is_last(self) -> bool {
                self.shift + self.width == <$word>::BITS
            }
            /// Largest value of the field.
            pub(crate) const fn max(self) -> $word {
                <$word>::MAX >> (<$word>::BITS - self.width)
            }
            /// The bits of the field.
            pub(crate) const fn mask(self) -> $word {
                self.max() << self.shift
            }
            /// Value of the field in a word.
            pub(crate) const fn get(self, word: $word) -> $word {
                word >> self.shift & self.max()
            }
            /// A word with this value in the field and zeros elsewhere. Bits above the field's width are
            /// discarded.
            pub(crate) const fn of(self, value: $word) -> $word {
                (value & self.max()) << self.shift
            }
            /// Whether any bit of the field is set.
            pub(crate) const fn is_set(self, word: $word) -> bool {
                word & self.mask() != 0
            }
        }
    };
}

bit_field! {
    /// A field of a word of 32 bits.
    BitField32, u32
}
bit_field! {
    /// A field of a word of 64 bits.
    BitField64, u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_field_does_not_change_the_others() {
        const LOW: BitField32 = BitField32::lowest(1);
        const MIDDLE: BitField32 = LOW.then(5);
        const HIGH: BitField32 = MIDDLE.then(26);
        assert_eq!(LOW.mask() | MIDDLE.mask() | HIGH.mask(), u32::MAX);
        assert!(HIGH.is_last() && !MIDDLE.is_last());
        for (low, middle, high) in [(0, 0, 0), (1, 31, (1 << 26) - 1), (1, 0, 7), (0, 17, 1)] {
            let word = LOW.of(low) | MIDDLE.of(middle) | HIGH.of(high);
            assert_eq!((LOW.get(word), MIDDLE.get(word), HIGH.get(word)), (low, middle, high));
        }
        assert_eq!(MIDDLE.of(32), 0, "a value that is too wide does not reach the next field");
        assert!(MIDDLE.is_set(MIDDLE.of(16)) && !MIDDLE.is_set(LOW.mask() | HIGH.mask()));
    }
}
