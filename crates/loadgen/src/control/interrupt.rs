//! Ctrl-C: once ends the run in order, twice ends it with what is known, three times ends the program on the spot.
//!
//! Trap: workers are process groups of their own; if they heard Ctrl-C too, their last reports would be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How often the person has asked for the end.
#[derive(Clone, Default)]
pub(crate) struct InterruptCounter(Arc<AtomicUsize>);

impl InterruptCounter {
    /// Counts SIGINT and SIGTERM from now on.
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

    /// Counts one; returns how many there are.
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How often so far.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
