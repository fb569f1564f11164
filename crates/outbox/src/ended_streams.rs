//! Counts of streams that have ended: XEP-0198 1.6.3, section 5 (`<failed h=''/>`).

use base::lock::LeafMutex;

use crate::stream_management::TOKEN_BYTES;

/// What identifies a stream that may be resumed, and the number of its stanzas that were handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumptionRecord {
    /// Part of the identifier that the client was sent.
    pub token: [u8; TOKEN_BYTES],
    /// Handled stanzas of the peer, modulo 2^32.
    pub handled: u32,
}

/// Handled counts of closed outboxes, for clients that resume too late (section 5: `<failed h=''/>`).
///
/// A table of fixed size; a newer entry replaces an older one in its slot. Not allocated until the first outbox
/// closes.
#[derive(Default)]
pub struct EndedStreams(LeafMutex<Vec<Option<EndedStream>>>);

struct EndedStream {
    account: u64,
    record: ResumptionRecord,
}

/// Number of slots, a power of two.
const MAX_ENDED_STREAMS: usize = 4096;

impl EndedStreams {
    fn slot(token: &[u8]) -> usize {
        token.iter().take(2).fold(0, |at, byte| at << 8 | usize::from(*byte)) % MAX_ENDED_STREAMS
    }

    /// Stores the count of an outbox of the account with this hash. A lower one of the same outbox is outdated.
    pub fn insert(&self, account: u64, record: ResumptionRecord) {
        let mut slots = self.0.lock();
        if slots.is_empty() {
            slots.resize_with(MAX_ENDED_STREAMS, || None);
        }
        let slot = &mut slots[Self::slot(&record.token)];
        let is_newer = |ended: &EndedStream| {
            let ahead = ended.record.handled.wrapping_sub(record.handled);
            ended.account == account && ended.record.token == record.token && (1..1 << 31).contains(&ahead)
        };
        if !slot.as_ref().is_some_and(is_newer) {
            *slot = Some(EndedStream { account, record });
        }
    }

    /// The count, if it is known and belongs to the same account.
    pub fn get(&self, account: u64, token: &[u8]) -> Option<u32> {
        let slots = self.0.lock();
        let record = slots.get(Self::slot(token))?.as_ref()?;
        let EndedStream { account: owner, record } = record;
        let matches = *owner == account && base::secret::constant_time_eq(&record.token, token);
        matches.then_some(record.handled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_count_of_a_stream_is_kept_for_its_account() {
        let token = [7; TOKEN_BYTES];
        let ended = EndedStreams::default();
        assert_eq!(ended.get(1, &token), None);
        // A stanza may become safe after the end; records arrive in any order.
        for handled in [u32::MAX, 1, u32::MAX, 0] {
            ended.insert(1, ResumptionRecord { token, handled });
        }
        assert_eq!((ended.get(1, &token), ended.get(2, &token)), (Some(1), None));
        ended.insert(2, ResumptionRecord { token, handled: 0 });
        assert_eq!((ended.get(1, &token), ended.get(2, &token)), (None, Some(0)));
    }

    #[test]
    fn the_table_has_a_fixed_size() {
        let ended = EndedStreams::default();
        assert_eq!(ended.0.lock().len(), 0);
        for handled in 0..10_000_u32 {
            let mut token = [0; TOKEN_BYTES];
            token[..4].copy_from_slice(&handled.to_be_bytes());
            ended.insert(1, ResumptionRecord { token, handled });
        }
        assert_eq!(ended.0.lock().len(), MAX_ENDED_STREAMS);
    }
}
