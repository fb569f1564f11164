//! Scratch buffers that a worker thread lends to the stream it is serving.
//!
//! Ten thousand idle streams share one [`Scratch`] per worker thread. A stream *holds* the scratch from the moment it
//! reads or queues until none of its bytes are left there, or until [`crate::Stream::release_buffers`] moved them into
//! a block.
//!
//! # Pitfalls
//!
//! Bytes of one stream must never be visible to another. Every holding has a number that is unique in the process; a
//! stream with a stale number is ended, and a new holder starts with cleared buffers.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffer_pool::{BufferBlock, BufferPool};
use crate::error::NetError;

/// Size of the read buffer and of the record buffer, in bytes.
pub const READ_BUFFER_BYTES: usize = 65_536;
/// Unfinished input above this stays in its block while more is read after it, instead of moving back and forth. A
/// whole TLS record is below it: moving a record costs less than a block large enough to read into.
const MOVE_BYTES: usize = 32_768;
/// Free space below this triggers a move of the unconsumed bytes to the front.
const MIN_SPARE_BYTES: usize = 2048;
/// Write buffers that grew beyond this are shrunk after use.
const MAX_KEPT_BYTES: usize = 262_144;

/// Read, write and record buffers of one worker thread (192 kB after TLS was used, 64 kB before, 0 before the first
/// read).
#[derive(Default)]
pub struct Scratch {
    /// Number of the current holding; 0 for none.
    holder: u64,
    /// Decrypted input for the scanner.
    pub(crate) input: InputBuffer,
    /// TLS records to decrypt.
    pub(crate) records: InputBuffer,
    /// Queued output, not encrypted.
    pub(crate) output: Vec<u8>,
    /// Encrypted output.
    pub(crate) encrypted: Vec<u8>,
    /// Rewritten input of a WebSocket, or working space for its output.
    pub(crate) text: Vec<u8>,
    pub(crate) pool: BufferPool,
}

static NEXT_HOLDING: AtomicU64 = AtomicU64::new(1);

impl Scratch {
    /// Buffers for a thread or a test, allocated on first use.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Makes the stream that owns `holding` the holder. `Ok(true)`: the holding is new, and the stream's blocks must be
    /// loaded.
    pub(crate) fn acquire(&mut self, holding: &mut u64) -> Result<bool, NetError> {
        if *holding != 0 {
            return if *holding == self.holder { Ok(false) } else { Err(NetError::BuffersNotReleased) };
        }
        self.clear();
        self.holder = NEXT_HOLDING.fetch_add(1, Ordering::Relaxed);
        *holding = self.holder;
        Ok(true)
    }

    /// Ends a holding. Bytes left in the buffers are discarded.
    pub(crate) fn release(&mut self, holding: &mut u64) {
        if *holding == self.holder {
            self.clear();
            self.holder = 0;
        }
        *holding = 0;
    }

    /// True if `holding` is current.
    pub(crate) fn is_held_by(&self, holding: u64) -> bool {
        holding != 0 && holding == self.holder
    }

    fn clear(&mut self) {
        self.input.clear(&mut self.pool);
        self.records.clear(&mut self.pool);
        clear_and_shrink(&mut self.output);
        clear_and_shrink(&mut self.encrypted);
        clear_and_shrink(&mut self.text);
    }
}

/// Length of unsent bytes, which the listener bounds by a `u32`.
pub(crate) fn len_u32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Clears a write buffer, and frees its memory if one large response made it grow.
pub(crate) fn clear_and_shrink(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > MAX_KEPT_BYTES {
        *buffer = Vec::new();
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Lends this thread's buffers to `work`. A nested call gets temporary buffers.
pub fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    /// Returns the buffers even if `work` panics.
    struct Loan(Option<Box<Scratch>>);
    impl Drop for Loan {
        fn drop(&mut self) {
            let loan = self.0.take();
            // At thread exit the slot may be gone; then the buffers are dropped here.
            let _ = SCRATCH.try_with(|slot| slot.set(loan));
        }
    }
    let mut loan = Loan(Some(SCRATCH.with(Cell::take).unwrap_or_default()));
    work(loan.0.get_or_insert_default())
}

/// Read buffer: normally the thread's own 64 kB; for a large unfinished element the stream's block.
#[derive(Default)]
pub(crate) struct InputBuffer {
    main: Box<[u8]>,
    /// Replaces `main` while set. It is filled up to its length; `end` marks the end of the data.
    large: Option<Box<BufferBlock>>,
    start: usize,
    end: usize,
}

impl InputBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    fn whole(&self) -> &[u8] {
        self.large.as_deref().map_or(&self.main, BufferBlock::data)
    }

    fn whole_mut(&mut self) -> &mut [u8] {
        self.large.as_deref_mut().map_or(&mut self.main, BufferBlock::data_mut)
    }

    /// Position of the next unconsumed byte, on the scale of [`InputBuffer::slice`].
    pub(crate) fn position(&self) -> usize {
        self.start
    }

    /// Bytes between two positions. They stay in place until the next `spare_capacity`, `restore_block` or `clear`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &[u8] {
        self.whole().get(start..end).unwrap_or_default()
    }

    /// Unconsumed bytes.
    pub(crate) fn data(&self) -> &[u8] {
        self.slice(self.start, self.end)
    }

    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        self.whole_mut().get_mut(start..end).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Free space after the data: at least 2 kB, and at most what keeps the unconsumed data below `limit` bytes. An
    /// empty slice means that the limit is reached.
    pub(crate) fn spare_capacity(&mut self, limit: usize, pool: &mut BufferPool) -> &mut [u8] {
        if self.is_empty() {
            self.clear(pool);
        }
        if self.len() >= limit {
            return &mut [];
        }
        self.reserve(MIN_SPARE_BYTES, pool);
        let end = self.end;
        self.whole_mut().get_mut(end..).unwrap_or_default()
    }

    /// Ensures that `count` bytes fit after the data.
    fn reserve(&mut self, count: usize, pool: &mut BufferPool) {
        if self.main.is_empty() {
            self.main = vec![0; READ_BUFFER_BYTES].into_boxed_slice();
        }
        if self.whole().len() - self.end >= count {
            return;
        }
        let (start, end, len) = (self.start, self.end, self.len());
        // Moving pays off only if it frees at least as much as it moves.
        if self.whole().len() - len >= count && start >= len {
            self.whole_mut().copy_within(start..end, 0);
        } else {
            let mut block = pool.take((len + count).next_power_of_two().max(2 * READ_BUFFER_BYTES));
            block.append(self.data());
            block.fill();
            if let Some(old) = self.large.replace(block) {
                pool.recycle(old);
            }
        }
        (self.start, self.end) = (0, len);
    }

    /// Marks `count` bytes of the spare capacity as filled.
    pub(crate) fn commit(&mut self, count: usize) {
        self.end = (self.end + count).min(self.whole().len());
    }

    /// Removes `count` bytes from the unconsumed data, `at` bytes after its start.
    pub(crate) fn remove(&mut self, at: usize, count: usize) {
        let data = self.data_mut();
        if count > 0 && at + count <= data.len() {
            data.copy_within(at + count.., at);
            self.end -= count;
        }
    }

    /// Appends bytes to the data.
    pub(crate) fn append(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        if self.is_empty() {
            self.clear(pool);
        }
        self.reserve(bytes.len(), pool);
        let end = self.end;
        if let Some(room) = self.whole_mut().get_mut(end..end + bytes.len()) {
            room.copy_from_slice(bytes);
            self.end += bytes.len();
        }
    }

    /// Restores the block that [`InputBuffer::take_block`] returned. Small blocks are copied, large ones are used in
    /// place.
    pub(crate) fn restore_block(&mut self, block: Box<BufferBlock>, pool: &mut BufferPool) {
        self.clear(pool);
        if block.len() <= MOVE_BYTES {
            self.append(block.data(), pool);
            pool.recycle(block);
        } else {
            let mut block = block;
            self.end = block.len();
            block.fill();
            self.large = Some(block);
        }
    }

    /// Moves the unconsumed bytes into a block.
    pub(crate) fn take_block(&mut self, pool: &mut BufferPool) -> Option<Box<BufferBlock>> {
        let stashed = if self.is_empty() {
            None
        } else if let Some(mut block) =
            self.large.take_if(|block| self.end - self.start > block.capacity() / 4)
        {
            block.restrict_to(self.start, self.end);
            Some(block)
        } else {
            pool.store(self.data())
        };
        self.clear(pool);
        stashed
    }

    pub(crate) fn clear(&mut self, pool: &mut BufferPool) {
        (self.start, self.end) = (0, 0);
        if let Some(block) = self.large.take() {
            pool.recycle(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_buffer_never_exposes_bytes_of_its_previous_user() {
        let mut scratch = Scratch::new();
        let (mut first, mut second) = (0, 0);
        assert!(scratch.acquire(&mut first).unwrap());
        let Scratch { input, pool, output, .. } = &mut scratch;
        input.append(b"<password/>", pool);
        output.extend_from_slice(b"secret");
        assert!(scratch.acquire(&mut second).unwrap());
        assert!(scratch.input.is_empty() && scratch.output.is_empty());
        assert!(matches!(scratch.acquire(&mut first), Err(NetError::BuffersNotReleased)));
    }

    #[test]
    fn scratch_buffers_of_two_threads_have_different_numbers() {
        let (mut here, mut there) = (Scratch::new(), Scratch::new());
        let mut holding = 0;
        here.acquire(&mut holding).unwrap();
        there.acquire(&mut 0).unwrap();
        assert!(there.acquire(&mut holding).is_err());
    }

    #[test]
    fn a_nested_use_gets_a_different_scratch_buffer() {
        with_scratch(|outer| {
            outer.output.push(1);
            with_scratch(|inner| assert!(inner.output.is_empty()));
            outer.output.clear();
        });
    }

    #[test]
    fn growth_keeps_the_bytes_in_order() {
        let (mut input, mut pool) = (InputBuffer::default(), BufferPool::default());
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let mut fed = 0;
        while fed < bytes.len() {
            let room = input.spare_capacity(usize::MAX, &mut pool);
            let count = room.len().min(bytes.len() - fed).min(7919);
            room[..count].copy_from_slice(&bytes[fed..fed + count]);
            input.commit(count);
            fed += count;
            if fed % 3 == 0 {
                let block = input.take_block(&mut pool).unwrap();
                input.restore_block(block, &mut pool);
            }
        }
        assert_eq!(input.data(), bytes);
        input.consume(299_990);
        let block = input.take_block(&mut pool).unwrap();
        assert_eq!(block.data(), &bytes[299_990..]);
    }

    #[test]
    fn a_scratch_buffer_grows_up_to_its_limit() {
        let (mut input, mut pool) = (InputBuffer::default(), BufferPool::default());
        input.append(&[1; 5000], &mut pool);
        assert!(!input.spare_capacity(5001, &mut pool).is_empty());
        assert!(input.spare_capacity(5000, &mut pool).is_empty());
    }
}
