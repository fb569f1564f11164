//! The buffers that a worker lends to its connections, one after the other, and the count of what went over the wire.
//!
//! Left out: growing. Sizes are fixed so that a worker's memory is known; 160 KiB each.
//! Trap: nothing in here outlives a call. What a connection needs next time it must keep itself.

/// Bytes on the wire, TLS and its handshakes included, TCP and IP not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// Taken by the kernel.
    pub sent: u64,
    /// Got from the kernel.
    pub received: u64,
}

/// Lent buffers; one per worker.
#[derive(Debug)]
pub struct WorkerBuffers {
    /// Records as they come, behind what a connection had kept.
    pub(super) input: Vec<u8>,
    /// Records to be sent.
    pub(super) sealed: SealedBuffer,
    pub(super) wire: WireBytes,
}

impl WorkerBuffers {
    /// Most bytes of one read.
    pub const READ_BYTES: usize = 65_536;
    /// Most bytes that a connection keeps of incomplete records. A record has at most 16 KiB and a bit (RFC 8446
    /// section 5.2), a handshake message (a chain of certificates) may have 64 KiB in several.
    pub(super) const KEPT_BYTES: usize = 65_536;

    /// Allocates the buffers.
    pub fn new() -> WorkerBuffers {
        WorkerBuffers {
            input: vec![0; WorkerBuffers::READ_BYTES + WorkerBuffers::KEPT_BYTES],
            sealed: SealedBuffer { buffer: vec![0; 32_768], used: 0 },
            wire: WireBytes::default(),
        }
    }

    /// What all connections that borrowed this have sent and received, from the start. Exact also when they failed.
    pub fn wire(&self) -> WireBytes {
        self.wire
    }

    pub(super) fn plain_room(&mut self) -> &mut [u8] {
        self.input.get_mut(..WorkerBuffers::READ_BYTES).unwrap_or_default()
    }
}

impl Default for WorkerBuffers {
    fn default() -> Self {
        WorkerBuffers::new()
    }
}

/// Records to be sent. The buffer stays initialised: clearing 16 KiB per stanza would cost more than encrypting it.
#[derive(Debug)]
pub(super) struct SealedBuffer {
    buffer: Vec<u8>,
    used: usize,
}

impl SealedBuffer {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.used).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends what `encode` writes. It says how much room it needs when there is too little. False: it cannot be done.
    pub(super) fn append(
        &mut self,
        mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
    ) -> bool {
        for _ in 0..2 {
            match encode(self.buffer.get_mut(self.used..).unwrap_or_default()) {
                Ok(count) => {
                    self.used += count;
                    return true;
                }
                // Only a handshake message of a chain of client certificates is that large.
                Err(Some(needed)) => self.buffer.resize(self.used + needed, 0),
                Err(None) => return false,
            }
        }
        false
    }
}
