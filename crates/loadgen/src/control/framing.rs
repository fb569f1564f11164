//! Framing between controller and workers: a four-byte big-endian length, then JSON.
//!
//! Nothing is allocated for an announced length: memory grows with the bytes received.
//!
//! # Pitfalls
//!
//! The limit before authentication is small on purpose; anyone who can reach the port may write there.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock;

/// Longest frame before authentication, in bytes.
pub(crate) const BEFORE_AUTH: usize = 1_024;
/// Longest frame after authentication, in bytes.
pub(crate) const AFTER_AUTH: usize = 64 << 20;

/// Encodes a value as a frame. A value longer than [`AFTER_AUTH`] is an error.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, value)
        .context("cannot encode a message between controller and worker as JSON")?;
    let length = bytes.len() - 4;
    if length > AFTER_AUTH {
        bail!(
            "a message of {length} bytes exceeds the limit between controller and workers; shorten the \
             lists of accounts in the plan"
        );
    }
    bytes[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    Ok(bytes)
}

/// Reads one frame; `None` if the peer closed between two frames.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read, limit: usize) -> Result<Option<T>> {
    let mut length = [0; 4];
    let mut got = 0;
    while got < 4 {
        match from.read(&mut length[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => bail!("the connection ended within a frame"),
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = announced(length, limit)?;
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        bail!("the connection ended within a frame");
    }
    parse(&bytes).map(Some)
}

fn announced(length: [u8; 4], limit: usize) -> Result<usize> {
    let length = u32::from_be_bytes(length) as usize;
    if length > limit {
        bail!("a frame of {length} bytes is longer than the {limit} allowed here");
    }
    Ok(length)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).context("a frame is not a valid message of this version")
}

/// Incremental frame decoder.
#[derive(Debug, Default)]
pub(crate) struct FrameDecoder {
    bytes: Vec<u8>,
    at: usize,
}

impl FrameDecoder {
    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next complete frame.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let rest = &self.bytes[self.at..];
        let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = announced(*head, AFTER_AUTH)?;
        let Some(body) = body.get(..length) else { return Ok(None) };
        let value = parse(body)?;
        self.at += 4 + length;
        if self.at == self.bytes.len() {
            // Frees the memory of a plan with a long account list, which will not be needed again.
            *self = Self::default();
        }
        Ok(Some(value))
    }
}

/// Reader of a blocking socket with a deadline for all reads together, however slowly bytes arrive.
pub(crate) struct DeadlineReader<'a> {
    /// The socket.
    pub(crate) stream: &'a TcpStream,
    /// Deadline on the clock of [`clock::now_us`].
    pub(crate) deadline: u64,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_sub(clock::now_us());
        if left == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Zero would mean no limit.
        self.stream.set_read_timeout(Some(Duration::from_micros(left.max(1_000))))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_from_fragments_of_any_size() {
        let value = vec!["one".to_owned(), "two".repeat(100)];
        let bytes = encode(&value).unwrap();
        assert_eq!(read::<Vec<String>>(&mut bytes.as_slice(), AFTER_AUTH).unwrap().unwrap(), value);
        let mut decoder = FrameDecoder::default();
        for byte in bytes.iter().chain(&bytes) {
            decoder.push(std::slice::from_ref(byte));
        }
        assert_eq!(decoder.next::<Vec<String>>().unwrap().unwrap(), value);
        assert_eq!(decoder.next::<Vec<String>>().unwrap().unwrap(), value);
        assert!(decoder.next::<Vec<String>>().unwrap().is_none());
    }

    #[test]
    fn excessive_lengths_are_refused_before_the_payload_arrives() {
        let mut bytes = 1_025_u32.to_be_bytes().to_vec();
        let error = read::<String>(&mut bytes.as_slice(), BEFORE_AUTH).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 1025 bytes is longer than the 1024 allowed here");
        bytes = u32::MAX.to_be_bytes().to_vec();
        let mut decoder = FrameDecoder::default();
        decoder.push(&bytes);
        assert!(decoder.next::<String>().is_err());
    }

    #[test]
    fn eof_between_frames_is_clean_and_within_a_frame_an_error() {
        assert!(read::<String>(&mut [].as_slice(), 9).unwrap().is_none());
        assert!(read::<String>(&mut [0, 0].as_slice(), 9).is_err());
        assert!(read::<String>(&mut [0, 0, 0, 4, b'"'].as_slice(), 9).is_err());
        assert!(read::<String>(&mut [0, 0, 0, 2, b'x', b'y'].as_slice(), 9).is_err());
    }
}
