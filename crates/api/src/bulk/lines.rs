//! Splitter of a chunked body into lines of newline-delimited JSON. No line longer than [`MAX_LINE_BYTES`] is
//! buffered.
//!
//! # Pitfalls
//!
//! A line that is too long is skipped up to its end, however far that is, and counts as one line.

/// Maximum bytes of one line.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// Input that was received and not consumed yet.
#[derive(Default)]
pub(super) struct LineSplitter {
    bytes: Vec<u8>,
    /// Bytes consumed.
    taken: usize,
    /// Bytes searched for the end of a line.
    seen: usize,
    skipping: bool,
    ended: bool,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyLine {
    Text(Vec<u8>),
    TooLong,
}

impl LineSplitter {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.taken);
        self.seen -= self.taken;
        self.taken = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// Marks the end of the input: the rest is the last line.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Takes a complete line. Blank lines are skipped.
    pub(super) fn take(&mut self) -> Option<BodyLine> {
        loop {
            let end = self.bytes[self.seen..].iter().position(|b| *b == b'\n').map(|at| self.seen + at);
            let (line, next) = match end {
                Some(end) => (self.taken..end, end + 1),
                None if self.ended && (self.taken < self.bytes.len() || self.skipping) => {
                    (self.taken..self.bytes.len(), self.bytes.len())
                }
                None => {
                    self.seen = self.bytes.len();
                    if self.bytes.len() - self.taken > MAX_LINE_BYTES {
                        self.skipping = true;
                        self.taken = self.bytes.len();
                    }
                    return None;
                }
            };
            let too_long = std::mem::take(&mut self.skipping) || line.len() > MAX_LINE_BYTES;
            let text = self.bytes[line].trim_ascii();
            (self.taken, self.seen) = (next, next);
            match (too_long, text.is_empty()) {
                (true, _) => return Some(BodyLine::TooLong),
                (false, true) => {}
                (false, false) => return Some(BodyLine::Text(text.to_vec())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<BodyLine> {
        let (mut lines, mut out) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            lines.push(piece);
            out.extend(std::iter::from_fn(|| lines.take()));
            assert!(lines.bytes.len() <= 2 * MAX_LINE_BYTES + piece.len());
        }
        lines.end();
        out.extend(std::iter::from_fn(|| lines.take()));
        out
    }

    fn text(text: &str) -> BodyLine {
        BodyLine::Text(text.into())
    }

    #[test]
    fn lines_do_not_depend_on_chunk_boundaries() {
        let whole = b"one\r\n\n  \ntwo\nthree";
        for at in 0..=whole.len() {
            let (left, right) = whole.split_at(at);
            assert_eq!(all(&[left, right]), [text("one"), text("two"), text("three")], "cut at {at}");
        }
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(all(&single), [text("one"), text("two"), text("three")]);
        assert_eq!(all(&[]), []);
        assert_eq!(all(&[b"\n\n"]), []);
    }

    #[test]
    fn an_unterminated_line_is_bounded() {
        let piece = vec![b'x'; 100_000];
        let mut pieces: Vec<&[u8]> = vec![b"a\n"];
        pieces.extend(std::iter::repeat_n(piece.as_slice(), 300));
        pieces.push(b"\nb\n");
        assert_eq!(all(&pieces), [text("a"), BodyLine::TooLong, text("b")]);
        pieces.pop();
        assert_eq!(all(&pieces), [text("a"), BodyLine::TooLong]);
        let mut exact = vec![b'y'; MAX_LINE_BYTES];
        exact.push(b'\n');
        assert_eq!(all(&[&exact]), [BodyLine::Text(vec![b'y'; MAX_LINE_BYTES])]);
    }
}
