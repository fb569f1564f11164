//! Pooled buffer blocks: storage for the bytes of a stream while its task is suspended.
//!
//! An idle stream owns no block. A stream with an incomplete element, or whose peer does not read, owns the smallest
//! block that holds the bytes. Blocks come from a per-thread pool in four sizes and return to the pool of the thread
//! that drops them.
//!
//! # Pitfalls
//!
//! A block is boxed so that its absence costs a stream 8 bytes. The pool stores the boxes too, so a warm pool never
//! allocates.

/// Sizes of pooled blocks in bytes, and the number of each that a thread keeps (at most 288 kB).
const SIZE_CLASSES: [(usize, usize); 4] = [(1024, 32), (4096, 16), (16_384, 8), (65_536, 1)];

/// Bytes with a consumed prefix.
#[derive(Default)]
pub(crate) struct BufferBlock {
    data: Vec<u8>,
    start: usize,
}

impl BufferBlock {
    /// Unconsumed bytes.
    pub(crate) fn data(&self) -> &[u8] {
        self.data.get(self.start..).unwrap_or_default()
    }

    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        self.data.get_mut(self.start..).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len() - self.start
    }

    pub(crate) fn capacity(&self) -> usize {
        self.data.capacity()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.data.len());
    }

    /// Zero-fills the spare capacity, so that it can be read into. Nothing may be consumed before.
    pub(crate) fn fill(&mut self) {
        self.data.drain(..self.start);
        self.start = 0;
        self.data.resize(self.data.capacity(), 0);
    }

    /// Undoes [`BufferBlock::fill`]: only the bytes between two positions are data.
    pub(crate) fn restrict_to(&mut self, start: usize, end: usize) {
        self.data.truncate(end);
        self.start = start.min(self.data.len());
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.data.len() + bytes.len() > self.data.capacity() {
            self.data.drain(..self.start);
            self.start = 0;
        }
        self.data.extend_from_slice(bytes);
    }
}

/// Free blocks of one worker thread.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "the box itself moves into the stream")]
pub(crate) struct BufferPool {
    free: [Vec<Box<BufferBlock>>; SIZE_CLASSES.len()],
}

impl BufferPool {
    /// An empty block with capacity for `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Box<BufferBlock> {
        for ((size, _), free) in SIZE_CLASSES.iter().zip(&mut self.free) {
            if len <= *size {
                return free
                    .pop()
                    .unwrap_or_else(|| Box::new(BufferBlock { data: Vec::with_capacity(*size), start: 0 }));
            }
        }
        Box::new(BufferBlock { data: Vec::with_capacity(len), start: 0 })
    }

    /// A block that holds `bytes`; `None` if they are empty.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Option<Box<BufferBlock>> {
        if bytes.is_empty() {
            return None;
        }
        let mut block = self.take(bytes.len());
        block.append(bytes);
        Some(block)
    }

    /// Returns a block to the pool. Contents are discarded; odd sizes and surplus go to the allocator.
    pub(crate) fn recycle(&mut self, mut block: Box<BufferBlock>) {
        block.data.clear();
        block.start = 0;
        let capacity = block.data.capacity();
        for ((size, keep), free) in SIZE_CLASSES.iter().zip(&mut self.free) {
            if capacity == *size && free.len() < *keep {
                free.push(block);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_from_the_pool_empty() {
        let mut pool = BufferPool::default();
        let mut block = pool.store(b"secret").unwrap();
        let at = block.data().as_ptr();
        block.consume(2);
        pool.recycle(block);
        let again = pool.take(1);
        assert_eq!(again.len(), 0);
        assert_eq!(again.data.as_ptr(), at, "the block was not used again");
    }

    #[test]
    fn blocks_above_the_limit_are_not_pooled() {
        let mut pool = BufferPool::default();
        let blocks: Vec<_> = (0..100).map(|_| pool.take(10)).collect();
        blocks.into_iter().for_each(|block| pool.recycle(block));
        assert_eq!(pool.free[0].len(), SIZE_CLASSES[0].1);
        let odd = pool.take(1_000_000);
        pool.recycle(odd);
        assert!(pool.free.iter().flatten().all(|block| block.data.capacity() <= 65_536));
    }

    #[test]
    fn appending_reuses_the_consumed_front() {
        let mut pool = BufferPool::default();
        let mut block = pool.store(&[7; 1000]).unwrap();
        block.consume(900);
        block.append(&[8; 500]);
        assert_eq!(block.data.capacity(), 1024);
        assert_eq!(block.data()[..100], [7; 100]);
        assert_eq!(block.data()[100..], [8; 500]);
    }
}
