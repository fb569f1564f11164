//! Stanza `id` written by the generator, from which an arrival is measured and counted.
//!
//! `T<run>-<worker>-<number>-<sender>-<target>-<due>`, all hexadecimal. `T` is a message, `D` one that requests an echo,
//! `E` the echo, `F` an echo that only confirms the arrival, `P` a presence. `target` is the address that the sender is
//! connected to, `due` the sender's clock in microseconds. RFC 6120, section 8.1.3 has servers deliver the `id` unchanged.
//!
//! # Pitfalls
//!
//! A server that replaces ids makes every message look lost; the first delivery of a run reveals it.

/// Content of an `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageId {
    /// `T`, `D`, `E`, `F` or `P`.
    pub(crate) class: u8,
    /// The run.
    pub(crate) run: u32,
    /// The worker that sent it.
    pub(crate) worker: u16,
    /// Number in the sequence between two workers.
    pub(crate) number: u32,
    /// The user who sent it.
    pub(crate) sender: u32,
    /// The target that the sender was connected to.
    pub(crate) target: u16,
    /// Due time in microseconds of the sender's clock.
    pub(crate) due: u64,
}

/// Appends `value` in hexadecimal.
pub(crate) fn hex(value: u64, out: &mut Vec<u8>) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (4 * digit)) as usize & 15]);
    }
}

/// Appends a class and its fields in hexadecimal.
pub(crate) fn write_fields<const N: usize>(class: u8, fields: [u64; N], out: &mut Vec<u8>) {
    out.push(class);
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(b'-');
        }
        hex(field, out);
    }
}

/// Reads hexadecimal up to `end`, at most 16 digits.
pub(crate) fn unhex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    let mut value = 0;
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

impl MessageId {
    /// Appends the `id`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let fields = [
            u64::from(self.run),
            u64::from(self.worker),
            u64::from(self.number),
            u64::from(self.sender),
            u64::from(self.target),
            self.due,
        ];
        write_fields(self.class, fields, out);
    }

    /// Parses an `id`; `None` if it is not one of this run.
    pub(crate) fn read(id: &str, run: u32) -> Option<Self> {
        let (class, rest) = id.as_bytes().split_first()?;
        if !matches!(class, b'T' | b'D' | b'E' | b'F' | b'P') {
            return None;
        }
        let mut fields = rest.split(|byte| *byte == b'-').map(unhex);
        let mut next = || fields.next().flatten();
        let stamp = Self {
            class: *class,
            run: u32::try_from(next()?).ok()?,
            worker: u16::try_from(next()?).ok()?,
            number: u32::try_from(next()?).ok()?,
            sender: u32::try_from(next()?).ok()?,
            target: u16::try_from(next()?).ok()?,
            due: next()?,
        };
        (stamp.run == run && fields.next().is_none()).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::MessageId;

    #[test]
    fn message_ids_round_trip() {
        let (run, number, due) = (0xABCD_1234, u32::MAX, 1 << 50);
        let stamp = MessageId { class: b'T', run, worker: 3, number, sender: 0, target: 4, due };
        let mut id = Vec::new();
        stamp.write(&mut id);
        let id = String::from_utf8(id).unwrap();
        assert_eq!(id, "Tabcd1234-3-ffffffff-0-4-4000000000000");
        assert_eq!(MessageId::read(&id, 0xABCD_1234), Some(stamp));
        assert_eq!(MessageId::read(&id, 1), None);
    }

    #[test]
    fn foreign_message_ids_are_not_recognised() {
        for id in [
            "",
            "T",
            "T1-2-3-4-0",
            "T1-2-3-4-0-5-6",
            "X1-2-3-4-0-5",
            "T1-2-3-4-0-g",
            "T1-20000-3-4-0-5",
            "T1-2-3-4-10000-5",
            "T1-2-3-4-0-11112222333344445",
        ] {
            assert_eq!(MessageId::read(id, 1), None, "{id}");
        }
        assert!(MessageId::read("P1-2-3-4-0-5", 1).is_some());
    }
}
