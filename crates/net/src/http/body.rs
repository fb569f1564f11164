//! Request bodies: with a known length, or chunked (RFC 9112, sections 6 and 7.1).
//!
//! A body that is complete in the lent buffer is used in place; only one that arrives in pieces is collected here, up
//! to the limit of its path.
//!
//! Not implemented: trailers and chunk extensions, which are discarded; codings other than `chunked`.
//!
//! # Pitfalls
//!
//! A chunk size that two programs parse differently allows request smuggling. Only one form is accepted: hexadecimal
//! digits and CRLF; no other line end.

/// Maximum bytes of extensions and trailers of one body.
const MAX_EXTRA_BYTES: u16 = 1024;

/// Reason for refusing a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// Malformed chunks.
    Malformed,
    /// Longer than allowed.
    TooLong,
}

/// State of reading a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyDecoder {
    /// Remaining bytes.
    Length(u64),
    /// Chunked coding.
    Chunked(ChunkDecoder),
}

/// Position in the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkDecoder {
    state: ChunkState,
    /// Remaining bytes of this chunk; while the size is read, its value.
    size: u32,
    /// Bytes of extensions and trailers so far.
    extra: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// The size; the number of digits read.
    Size(u8),
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line.
    Trailer,
    InTrailer,
    TrailerEnd,
    LastLf,
    Done,
}

impl BodyDecoder {
    pub(crate) fn length(length: u64) -> BodyDecoder {
        BodyDecoder::Length(length)
    }

    pub(crate) fn chunked() -> BodyDecoder {
        BodyDecoder::Chunked(ChunkDecoder { state: ChunkState::Size(0), size: 0, extra: 0 })
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(
            self,
            BodyDecoder::Length(0) | BodyDecoder::Chunked(ChunkDecoder { state: ChunkState::Done, .. })
        )
    }

    /// Moves bytes of the body into `body`, which may grow to `limit` bytes. Returns the number of input bytes
    /// consumed.
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<usize, BodyError> {
        match self {
            BodyDecoder::Length(missing) => {
                let count = usize::try_from(*missing).unwrap_or(usize::MAX).min(input.len());
                append(body, input.get(..count).unwrap_or_default(), limit)?;
                *missing -= count as u64;
                Ok(count)
            }
            BodyDecoder::Chunked(chunk) => chunk.feed(input, body, limit),
        }
    }
}

fn append(body: &mut Vec<u8>, bytes: &[u8], limit: usize) -> Result<(), BodyError> {
    if body.len() + bytes.len() > limit {
        return Err(BodyError::TooLong);
    }
    body.extend_from_slice(bytes);
    Ok(())
}

impl ChunkDecoder {
    fn feed(&mut self, input: &[u8], body: &mut Vec<u8>, limit: usize) -> Result<usize, BodyError> {
        let mut at = 0;
        while let Some(&byte) = input.get(at)
            && self.state != ChunkState::Done
        {
            if self.state == ChunkState::Data {
                let count = u32::try_from(input.len() - at).map_or(self.size, |rest| rest.min(self.size));
                let data = input.get(at..).and_then(|rest| rest.get(..count as usize)).unwrap_or_default();
                append(body, data, limit)?;
                self.size -= count;
                at += count as usize;
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            self.state = self.step(byte)?;
            at += 1;
            if self.state == ChunkState::Data && body.len() + self.size as usize > limit {
                return Err(BodyError::TooLong);
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, BodyError> {
        let malformed = Err(BodyError::Malformed);
        match (self.state, byte) {
            (ChunkState::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                // Eight digits are a u32; more leading zeros are refused.
                if digits == 8 {
                    return Err(BodyError::TooLong);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.size = self.size << 4 | digit;
                Ok(ChunkState::Size(digits + 1))
            }
            (ChunkState::Size(1..), b'\r') | (ChunkState::Extension, b'\r') => Ok(ChunkState::SizeEnd),
            (ChunkState::Size(1..), b';') => Ok(ChunkState::Extension),
            (ChunkState::SizeEnd, b'\n') => {
                Ok(if self.size == 0 { ChunkState::Trailer } else { ChunkState::Data })
            }
            (ChunkState::DataCr, b'\r') => Ok(ChunkState::DataLf),
            (ChunkState::DataLf, b'\n') => Ok(ChunkState::Size(0)),
            (ChunkState::Trailer, b'\r') => Ok(ChunkState::LastLf),
            (ChunkState::InTrailer, b'\r') => Ok(ChunkState::TrailerEnd),
            (ChunkState::TrailerEnd, b'\n') => Ok(ChunkState::Trailer),
            (ChunkState::LastLf, b'\n') => Ok(ChunkState::Done),
            (ChunkState::Extension | ChunkState::Trailer | ChunkState::InTrailer, byte)
                if byte >= b' ' || byte == b'\t' =>
            {
                self.extra += 1;
                if self.extra > MAX_EXTRA_BYTES {
                    return malformed;
                }
                Ok(if self.state == ChunkState::Extension {
                    ChunkState::Extension
                } else {
                    ChunkState::InTrailer
                })
            }
            _ => malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and the number of input bytes consumed, fed in pieces of `size`.
    fn chunks(input: &[u8], size: usize) -> Result<(Vec<u8>, usize, bool), BodyError> {
        let (mut decoder, mut body, mut taken) = (BodyDecoder::chunked(), Vec::new(), 0);
        for piece in input.chunks(size) {
            taken += decoder.feed(piece, &mut body, 100)?;
        }
        Ok((body, taken, decoder.is_done()))
    }

    #[test]
    fn chunked_bodies_are_read_at_every_split() {
        let text = b"4\r\n<bod\r\n00a;name=\"x\"\r\ny rid='1'/\r\n1\r\n>\r\n0\r\nTrailer: x\r\n\r\nPOST";
        for size in 1..text.len() {
            let (body, taken, done) = chunks(text, size).unwrap();
            assert_eq!(body, b"<body rid='1'/>", "{size}");
            assert_eq!((taken, done), (text.len() - 4, true), "{size}");
        }
        assert_eq!(chunks(b"0\r\n\r\n", 9), Ok((Vec::new(), 5, true)));
        assert_eq!(chunks(b"5\r\nab", 9), Ok((b"ab".to_vec(), 5, false)));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for text in [
            "\r\n",
            " 1\r\na\r\n0\r\n\r\n",
            "0x1\r\na\r\n0\r\n\r\n",
            "-1\r\n",
            "+1\r\n",
            "g\r\n",
            "1 \r\na\r\n",
            "1\na\r\n",
            "1\r\rna",
            "1\r\nab\r\n",
            "1\r\na\n0\r\n\r\n",
            "0\r\n\n",
            "0\r\nA: b\n\r\n",
            "1;a\nb\r\n",
            ";\r\n",
        ] {
            assert_eq!(chunks(text.as_bytes(), 1), Err(BodyError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn an_oversized_body_is_refused_before_it_is_read() {
        assert_eq!(chunks(b"65\r\n", 1), Err(BodyError::TooLong), "101 bytes");
        assert_eq!(chunks(b"000000001\r\n", 1), Err(BodyError::TooLong));
        assert_eq!(chunks(b"ffffffff\r\n", 1), Err(BodyError::TooLong));
        let many = b"1\r\na\r\n".repeat(101);
        assert_eq!(chunks(&many, 7), Err(BodyError::TooLong));
        let extension = [b"1;".as_slice(), &[b'x'; 2000]].concat();
        assert_eq!(chunks(&extension, 7), Err(BodyError::Malformed));
        let trailer = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(400)].concat();
        assert_eq!(chunks(&trailer, 7), Err(BodyError::Malformed));
        let (mut decoder, mut body) = (BodyDecoder::length(101), Vec::new());
        assert_eq!(decoder.feed(&[b'x'; 101], &mut body, 100), Err(BodyError::TooLong));
    }

    #[test]
    fn a_body_with_a_length_ends_exactly_there() {
        let (mut decoder, mut body) = (BodyDecoder::length(5), Vec::new());
        assert_eq!(decoder.feed(b"abc", &mut body, 100), Ok(3));
        assert!(!decoder.is_done());
        assert_eq!(decoder.feed(b"deGET", &mut body, 100), Ok(2));
        assert!(decoder.is_done());
        assert_eq!(body, b"abcde");
    }
}
