//! Buffers that a worker lends to its connections in turn, and the count of bytes on the wire.
//!
//! Not implemented: growing. Sizes are fixed so that a worker's memory is known; 160 KiB per worker.
//!
//! # Pitfalls
//!
//! Contents do not outlive a call. A connection must store what it needs next time.

use tls_records::SealedBuffer;

/// Bytes on the wire, including TLS and its handshakes, excluding TCP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// Accepted by the kernel.
    pub sent: u64,
    /// Received from the kernel.
    pub received: u64,
}

/// Buffers lent to connections; one set per worker.
#[derive(Debug)]
pub struct WorkerBuffers {
    /// Received records, after those that a connection had stored.
    pub(super) input: Vec<u8>,
    /// Records to be sent.
    pub(super) sealed: SealedBuffer,
    pub(super) wire: WireBytes,
}

impl WorkerBuffers {
    /// Maximum number of bytes of one read.
    pub const READ_BYTES: usize = 65_536;
    /// Maximum number of bytes of incomplete records that a connection stores. A record has slightly more than 16 KiB
    /// (RFC 8446, section 5.2), a handshake message (a certificate chain) may have 64 KiB in several.
    pub(super) const KEPT_BYTES: usize = 65_536;

    /// Allocates the buffers.
    pub fn new() -> WorkerBuffers {
        WorkerBuffers {
            input: vec![0; WorkerBuffers::READ_BYTES + WorkerBuffers::KEPT_BYTES],
            sealed: SealedBuffer::new(),
            wire: WireBytes::default(),
        }
    }

    /// Bytes sent and received by all connections that used these buffers. Exact also for failed connections.
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
