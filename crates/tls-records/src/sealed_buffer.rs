//! Buffer of encrypted records, shared by the connections of a worker.

/// Records to be sent. The buffer stays initialised: clearing 16 KiB per stanza would cost more than encrypting it.
#[derive(Debug)]
pub struct SealedBuffer {
    buffer: Vec<u8>,
    used: usize,
}

impl SealedBuffer {
    /// Initial size in bytes; it grows when two records of the maximum size are queued.
    const BYTES: usize = 32_768;

    /// Allocates the buffer.
    pub fn new() -> SealedBuffer {
        SealedBuffer { buffer: vec![0; SealedBuffer::BYTES], used: 0 }
    }

    /// Bytes of the records.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.used).unwrap_or_default()
    }

    /// Forgets the records; the buffer stays.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends the output of `encode`, which returns the required size if there is too little room. False if it failed.
    pub fn append(&mut self, mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>) -> bool {
        for _ in 0..2 {
            match encode(self.buffer.get_mut(self.used..).unwrap_or_default()) {
                Ok(count) => {
                    self.used += count;
                    return true;
                }
                // Only a handshake message with a client certificate chain is that large.
                Err(Some(needed)) => self.buffer.resize(self.used + needed, 0),
                Err(None) => return false,
            }
        }
        false
    }
}

impl Default for SealedBuffer {
    fn default() -> Self {
        SealedBuffer::new()
    }
}
