//! Global allocator of tests that have a budget: counts the allocations and bytes of each thread.
//!
//! A test program that uses one of these functions has this allocator. Bytes are as requested, without the rounding of
//! the system's allocator. A reallocation is one allocation, and its bytes are the difference.
//!
//! # Pitfalls
//!
//! A value that is freed on another thread than the one that allocated it lowers the count of the wrong thread. A test
//! with several threads can only use the number of allocations.
#![allow(unsafe_code, reason = "a global allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Number of allocations of this thread since it began.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// Bytes requested by this thread since it began, freed or not.
pub fn requested_bytes() -> usize {
    REQUESTED.get()
}

/// Bytes that this thread has allocated and not freed. Negative if it freed those of other threads.
pub fn live_bytes() -> isize {
    LIVE.get()
}

/// Highest value of [`live_bytes`] since [`reset_peak`].
pub fn peak_bytes() -> isize {
    PEAK.get()
}

/// Starts a measurement of the peak; returns [`live_bytes`].
pub fn reset_peak() -> isize {
    PEAK.set(LIVE.get());
    LIVE.get()
}

/// Number of allocations of `work`.
pub fn count<T>(work: impl FnOnce() -> T) -> usize {
    let before = allocations();
    std::hint::black_box(work());
    allocations() - before
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The cells need no destructor, so they exist as long as their thread.
fn record(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
    REQUESTED.set(REQUESTED.get() + usize::try_from(bytes).unwrap_or(0));
}

/// A size as a signed number. `Layout` guarantees that it fits.
fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        record(signed(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        record(signed(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        record(-signed(layout.size()));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        record(signed(size) - signed(layout.size()));
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_and_bytes_are_counted_as_requested() {
        let (before, live, requested) = (allocations(), reset_peak(), requested_bytes());
        let mut bytes: Vec<u8> = Vec::with_capacity(1000);
        bytes.reserve_exact(3000);
        assert_eq!(allocations() - before, 2);
        drop(bytes);
        assert_eq!(live_bytes(), live);
        assert_eq!((peak_bytes() - live, requested_bytes() - requested), (3000, 3000));
        assert_eq!((count(|| Box::new(1_u64)), count(|| 1 + 1)), (1, 0));
    }
}
