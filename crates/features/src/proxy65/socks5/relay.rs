//! An active bytestream: relays bytes in both directions until both are closed.
//!
//! # Pitfalls
//!
//! A direction that fails ends alone. What the other party has sent is relayed to its end, because its sender may have
//! closed the connection in the belief that all was delivered.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use base::clock::Millis;
use feature_api::listener::{ConnectionDeadline, ConnectionIo};

use super::metrics::Socks5Outcome;
use super::permit::BytestreamPermit;
use super::table::Socks5Proxy;

/// Bytes read at once: the most that one direction of a bytestream holds.
const CHUNK_BYTES: usize = 32 * 1024;
/// Chunks that one direction relays before other tasks have a turn.
const CHUNKS_PER_POLL: usize = 8;

thread_local! {
    static CHUNK: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK_BYTES].into_boxed_slice());
}

/// Lends the read buffer of this thread.
pub(super) fn with_chunk<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    CHUNK.with_borrow_mut(|chunk| read(chunk))
}

pub(super) struct Relay<'a> {
    proxy: &'a Socks5Proxy,
    deadline: &'a ConnectionDeadline,
    permit: BytestreamPermit,
    directions: [Direction; 2],
    moved_at: Millis,
}

/// One direction of a bytestream.
#[derive(Default)]
struct Direction {
    /// Bytes that the receiver has not taken; empty and unallocated while it keeps up.
    unwritten: Vec<u8>,
    written: usize,
    /// Nothing more is read.
    ended: bool,
    /// Nothing more is written.
    closed: bool,
    /// It ended with an error.
    failed: bool,
}

impl<'a> Relay<'a> {
    pub(super) fn new(
        proxy: &'a Socks5Proxy,
        deadline: &'a ConnectionDeadline,
        permit: BytestreamPermit,
    ) -> Relay<'a> {
        let directions = [Direction::default(), Direction::default()];
        Relay { proxy, deadline, permit, directions, moved_at: proxy.0.clock.now() }
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sockets: &mut [Box<dyn ConnectionIo>; 2],
    ) -> Poll<Socks5Outcome> {
        let now = self.proxy.0.clock.now();
        let mut budget = PollBudget { permit: &self.permit, now, moved: 0, paused: u64::MAX };
        for direction in &mut self.directions {
            let [from, to] = sockets;
            // Whether it is closed is read below.
            let _ = direction.poll(cx, &mut **from, &mut **to, &mut budget);
            // Back again after both.
            sockets.swap(0, 1);
        }
        let PollBudget { moved, paused, .. } = budget;
        if moved > 0 {
            self.moved_at = now;
            self.proxy.0.bytes.fetch_add(moved as u64, Relaxed);
        }
        if self.directions.iter().all(|direction| direction.closed) {
            let failed = self.directions.iter().any(|direction| direction.failed);
            return Poll::Ready(if failed { Socks5Outcome::Failed } else { Socks5Outcome::Finished });
        }
        let idle = self.moved_at.plus(self.permit.idle_millis);
        // A party whose bytes wait for the rate is not idle.
        let next = if paused == u64::MAX { idle } else { now.plus(paused) };
        match self.deadline.poll(cx, next) {
            Poll::Ready(()) if paused == u64::MAX => Poll::Ready(Socks5Outcome::Idle),
            Poll::Ready(()) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// What the directions of a bytestream share while they are polled.
struct PollBudget<'a> {
    permit: &'a BytestreamPermit,
    now: Millis,
    /// Bytes written.
    moved: usize,
    /// Milliseconds until a rate permits reading bytes that have arrived; `u64::MAX` if no rate delays.
    paused: u64,
}

impl Direction {
    /// Relays until a socket is not ready, or the budget is used up. Ready when the direction is closed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn ConnectionIo,
        to: &mut dyn ConnectionIo,
        budget: &mut PollBudget<'_>,
    ) -> Poll<()> {
        for _ in 0..CHUNKS_PER_POLL {
            ready!(self.poll_unwritten(cx, to, budget));
            if self.closed {
                return Poll::Ready(());
            }
            if self.ended {
                self.failed |= ready!(to.poll_shutdown(cx)).is_err();
                self.closed = true;
                return Poll::Ready(());
            }
            let delay = budget.permit.delay(budget.now);
            if delay > 0 {
                // A party that sends nothing is idle, and one that left is noticed.
                match ready!(from.poll_peek(cx)) {
                    Ok(1..) => {
                        budget.paused = budget.paused.min(delay);
                        return Poll::Pending;
                    }
                    Ok(0) => self.ended = true,
                    Err(_) => self.fail_reading(),
                }
            } else {
                ready!(self.poll_chunk(cx, from, to, budget));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what is left of an earlier chunk.
    fn poll_unwritten(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut dyn ConnectionIo,
        budget: &mut PollBudget<'_>,
    ) -> Poll<()> {
        while let Some(rest) = self.unwritten.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(to.poll_write(cx, rest)) {
                Ok(count) => {
                    self.written += count;
                    budget.moved += count;
                }
                Err(_) => self.fail_writing(),
            }
        }
        self.unwritten = Vec::new();
        self.written = 0;
        Poll::Ready(())
    }

    /// Reads a chunk and writes as much of it as the receiver takes.
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn ConnectionIo,
        to: &mut dyn ConnectionIo,
        budget: &mut PollBudget<'_>,
    ) -> Poll<()> {
        with_chunk(|chunk| {
            let count = match ready!(from.poll_read(cx, chunk)) {
                Ok(0) => {
                    self.ended = true;
                    return Poll::Ready(());
                }
                Ok(count) => count,
                Err(_) => {
                    self.fail_reading();
                    return Poll::Ready(());
                }
            };
            budget.permit.charge(count, budget.now);
            let chunk = chunk.get(..count).unwrap_or_default();
            let written = match to.poll_write(cx, chunk) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(_)) => {
                    self.fail_writing();
                    return Poll::Ready(());
                }
                Poll::Pending => 0,
            };
            budget.moved += written;
            self.unwritten = chunk.get(written..).unwrap_or_default().to_vec();
            Poll::Ready(())
        })
    }

    /// Ends the direction after what has been read.
    fn fail_reading(&mut self) {
        self.ended = true;
        self.failed = true;
    }

    /// Ends the direction at once: its receiver takes nothing more.
    fn fail_writing(&mut self) {
        self.unwritten = Vec::new();
        self.closed = true;
        self.failed = true;
    }
}
