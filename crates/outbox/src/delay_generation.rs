//! Generation of an outbox's short delays: whether one runs, and which.
//!
//! A task that flushes delayed stanzas finds the outbox through a token that it received earlier. Meanwhile the
//! delay may have ended, and another may have started. So each delay has a generation, and a token is valid only
//! for its own.

/// Generation in one byte, to fit the padding of an outbox: the lowest bit is set while a delay runs, the others
/// count the delays and wrap after 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DelayGeneration(u8);

/// Identifies one delay of an outbox; see [`super::Outbox::flush_delayed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayToken(DelayGeneration);

/// Set while a delay runs.
const RUNNING: u8 = 1;
/// Difference between two generations.
const STEP: u8 = 2;

const _: () = assert!(STEP == RUNNING << 1, "the counter begins above the mark");
const _: () = assert!(size_of::<DelayGeneration>() == 1, "it fits the padding of an outbox");

impl DelayGeneration {
    /// Whether a delay runs.
    pub(super) const fn is_running(self) -> bool {
        self.0 & RUNNING != 0
    }

    /// Starts a delay; `None` if one runs.
    pub(super) fn start(&mut self) -> Option<DelayToken> {
        if self.is_running() {
            return None;
        }
        self.0 = self.0.wrapping_add(STEP) | RUNNING;
        Some(DelayToken(*self))
    }

    /// Ends the delay, if one runs.
    pub(super) fn end(&mut self) {
        self.0 &= !RUNNING;
    }

    /// Ends the delay with this token; false if it has ended.
    pub(super) fn end_if(&mut self, token: DelayToken) -> bool {
        let valid = *self == token.0;
        if valid {
            self.end();
        }
        valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_its_own_delay_only_once() {
        let mut generation = DelayGeneration::default();
        assert!(!generation.is_running());
        let first = generation.start().unwrap();
        assert!(generation.is_running() && generation.start().is_none());
        assert!(generation.end_if(first) && !generation.is_running());
        assert!(!generation.end_if(first), "the delay has ended");
    }

    #[test]
    fn a_token_of_an_earlier_delay_ends_nothing() {
        let mut generation = DelayGeneration::default();
        let first = generation.start().unwrap();
        for _ in 1..128 {
            generation.end();
            let later = generation.start().unwrap();
            assert!(!generation.end_if(first) && generation.is_running(), "{later:?}");
        }
        generation.end();
        assert_eq!(generation.start(), Some(first), "the counter wraps after 128 delays");
    }
}
