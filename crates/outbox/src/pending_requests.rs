//! IQ requests of a client to others that await a response: RFC 6120, section 8.2.3.
//!
//! They distinguish requested from unsolicited responses when a queue has no room for both (`admission.rs`). A
//! session without pending requests has none of these.
//!
//! Recipient and id of each request are stored as text, one after the other in one buffer, oldest first, and are
//! compared with those of a response. The client chooses their length, so the buffer has at most
//! [`MAX_PENDING_BYTES`]: room for about 300 requests of usual length. It returns memory as requests are answered.
//!
//! Not implemented: expiry by time. A request that is never answered is dropped when newer ones need its room.
//!
//! # Pitfalls
//!
//! A response that is not found here is delivered like any other as long as there is room.

use base::extensions::Extensions;

/// Size of the pending requests of one session.
const MAX_PENDING_BYTES: usize = 16 * 1024;
/// Capacity that is kept while requests are pending.
const RETAINED_BYTES: usize = 256;
/// The lengths of recipient and id before each entry.
const LENGTHS: usize = 4;

/// Entries of the form `length of recipient, length of id, recipient, id`; the lengths have two bytes each.
#[derive(Debug, Default)]
pub struct PendingRequests(Vec<u8>);

impl base::Extension for PendingRequests {}

struct PendingRequest<'a> {
    peer: &'a [u8],
    id: &'a [u8],
    /// Position after the entry.
    end: usize,
}

impl PendingRequests {
    /// Records a request of the session with these extensions.
    pub fn record(extensions: &mut Extensions, peer: &str, id: &str) {
        if let Some(pending) = extensions.get::<PendingRequests>() {
            return pending.insert(peer, id);
        }
        let mut pending = PendingRequests::default();
        pending.insert(peer, id);
        if !pending.is_empty() {
            extensions.insert(pending);
        }
    }

    /// Removes a request of the session with these extensions; false if there is none.
    pub fn take(extensions: &mut Extensions, peer: &str, id: &str) -> bool {
        let Some(pending) = extensions.get::<PendingRequests>() else { return false };
        let found = pending.remove(peer, id);
        if pending.is_empty() {
            extensions.remove::<PendingRequests>();
        }
        found
    }

    /// Records a request and drops the oldest ones that have no room beside it. One that does not fit alone is
    /// not recorded: its response counts as unsolicited.
    pub fn insert(&mut self, peer: &str, id: &str) {
        let (Ok(peer_length), Ok(id_length)) = (u16::try_from(peer.len()), u16::try_from(id.len())) else {
            return;
        };
        let size = LENGTHS + peer.len() + id.len();
        if size > MAX_PENDING_BYTES {
            return;
        }
        let mut oldest = 0;
        while self.0.len() - oldest + size > MAX_PENDING_BYTES {
            let Some(entry) = self.entry_at(oldest) else { break };
            oldest = entry.end;
        }
        self.0.drain(..oldest);
        self.reserve(size);
        self.0.extend_from_slice(&peer_length.to_be_bytes());
        self.0.extend_from_slice(&id_length.to_be_bytes());
        self.0.extend_from_slice(peer.as_bytes());
        self.0.extend_from_slice(id.as_bytes());
    }

    /// Removes the oldest request with this recipient and id; false if there is none.
    pub fn remove(&mut self, peer: &str, id: &str) -> bool {
        let mut at = 0;
        while let Some(entry) = self.entry_at(at) {
            let end = entry.end;
            if entry.peer == peer.as_bytes() && entry.id == id.as_bytes() {
                self.0.drain(at..end);
                self.shrink();
                return true;
            }
            at = end;
        }
        false
    }

    /// Whether no request is pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes room for an entry. `Vec` would double the buffer beyond [`MAX_PENDING_BYTES`].
    fn reserve(&mut self, size: usize) {
        let needed = self.0.len() + size;
        if needed > self.0.capacity() {
            let doubled = self.0.capacity().saturating_mul(2).min(MAX_PENDING_BYTES);
            self.0.reserve_exact(needed.max(doubled) - self.0.len());
        }
    }

    /// Returns memory when less than a quarter is used, so that an entry is moved rarely.
    fn shrink(&mut self) {
        if self.0.capacity() > RETAINED_BYTES && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(RETAINED_BYTES.max(self.0.len() * 2));
        }
    }

    fn entry_at(&self, at: usize) -> Option<PendingRequest<'_>> {
        let (lengths, rest) = self.0.get(at..)?.split_first_chunk::<LENGTHS>()?;
        let [a, b, c, d] = *lengths;
        let (peer_length, id_length) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let (peer, rest) = rest.split_at_checked(usize::from(peer_length))?;
        let id = rest.get(..usize::from(id_length))?;
        Some(PendingRequest { peer, id, end: at + LENGTHS + peer.len() + id.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_requested_only_with_recipient_and_id_of_a_request() {
        let mut pending = PendingRequests::default();
        pending.insert("a@x/1", "23");
        pending.insert("a@x/1", "7");
        pending.insert("a@x/1", "7");
        // The same text when recipient and id are joined.
        for (peer, id) in [("a@x/12", "3"), ("a@x/", "123"), ("a@x/1", ""), ("b@x/1", "23"), ("", "a@x/123")]
        {
            assert!(!pending.remove(peer, id), "{peer} {id}");
        }
        assert!(pending.remove("a@x/1", "7") && pending.remove("a@x/1", "23"));
        assert!(pending.remove("a@x/1", "7") && !pending.remove("a@x/1", "7"));
        assert!(pending.0.is_empty());
    }

    #[test]
    fn the_oldest_requests_make_room_for_newer_ones() {
        let mut pending = PendingRequests::default();
        for n in 0..10_000 {
            pending.insert("romeo@example.net/orchard", &n.to_string());
            assert!(pending.0.len() <= MAX_PENDING_BYTES);
        }
        let known = (0..10_000).filter(|n| pending.remove("romeo@example.net/orchard", &n.to_string()));
        let known: Vec<u32> = known.collect();
        assert!((300..=600).contains(&known.len()), "{}", known.len());
        assert_eq!((known[0] as usize + known.len(), pending.0.len()), (10_000, 0), "the newest ones");
        // The longest address and id.
        let (peer, id) = ("x".repeat(3071), "i".repeat(8192));
        for _ in 0..3 {
            pending.insert(&peer, &id);
        }
        assert!(pending.remove(&peer, &id) && !pending.remove(&peer, &id), "one at a time");
        pending.insert("a@x", &"i".repeat(20_000));
        pending.insert("a@x", &"i".repeat(70_000));
        assert!(pending.0.is_empty(), "one without room is not recorded");
    }

    #[test]
    fn the_buffer_never_exceeds_its_bound_and_returns_memory_as_requests_are_answered() {
        let mut pending = PendingRequests::default();
        let peer = "romeo@example.net/orchard";
        pending.insert(peer, "0");
        assert!(pending.0.capacity() <= 64, "one request: {}", pending.0.capacity());
        for n in 1..1_000 {
            pending.insert(peer, &n.to_string());
            assert!(pending.0.capacity() <= MAX_PENDING_BYTES, "{n}: {}", pending.0.capacity());
        }
        let mut answered = (0..1_000).filter(|n| pending.remove(peer, &n.to_string())).count();
        assert!(pending.0.is_empty() && answered > 300);
        for n in 0..1_000 {
            pending.insert(peer, &n.to_string());
        }
        // All except the newest one are answered, newest first.
        answered = (0..999).rev().filter(|n| pending.remove(peer, &n.to_string())).count();
        assert!(answered > 300 && !pending.0.is_empty());
        assert!(pending.0.capacity() <= RETAINED_BYTES, "{}", pending.0.capacity());
    }
}
