//! Ctrl-C handling: once ends the run gracefully, twice ends it with the data at hand, three times exits immediately.
//!
//! # Pitfalls
//!
//! Workers are separate process groups; if they received Ctrl-C too, their last reports would be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Number of times that the user has requested the end.
#[derive(Clone, Default)]
pub(crate) struct InterruptCounter(Arc<AtomicUsize>);

impl InterruptCounter {
    /// Starts to count SIGINT and SIGTERM.
    pub(crate) fn listen() -> Result<Self> {
        let interrupts = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let counting = interrupts.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if counting.add() >= 3 {
                    std::process::exit(130);
                }
            }
        });
        Ok(interrupts)
    }

    /// Increments the count and returns it.
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Current count.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
