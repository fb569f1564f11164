//! All connections of a node, and the sweep that rings their alarms once a second.
//!
//! One sweep over plain numbers replaces a timer in each session: a timer costs a hundred bytes and a wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use stanza::StreamError;

use super::Link;

const SHARDS: usize = 16;

/// All connections of a node.
#[derive(Default)]
pub struct Links {
    shards: [Mutex<HashMap<u64, Arc<Link>, Hash>>; SHARDS],
    count: AtomicUsize,
}

type Hash = std::hash::BuildHasherDefault<Number>;

/// Link numbers are sequential: multiplying spreads them.
#[derive(Default)]
struct Number(u64);
impl std::hash::Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

impl Links {
    /// Adds a connection.
    pub fn add(&self, link: Arc<Link>) {
        let old = self.shard(link.id).lock().insert(link.id, link);
        if old.is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// Removes a connection.
    pub fn remove(&self, link: &Link) {
        let mut shard = self.shard(link.id).lock();
        if shard.remove(&link.id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        // A wave of logouts gives its table back.
        if shard.capacity() > 64 && shard.len() * 8 < shard.capacity() {
            shard.shrink_to_fit();
        }
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes in all queues. Locks every connection once: for who asks, not for every second.
    pub fn queued_bytes(&self) -> u64 {
        let of = |shard: &Mutex<HashMap<u64, Arc<Link>, Hash>>| {
            shard.lock().values().map(|link| u64::from(link.queued_bytes())).sum::<u64>()
        };
        self.shards.iter().map(of).sum()
    }
    /// Rings every alarm that is due.
    pub fn sweep(&self, now: u32) {
        for shard in &self.shards {
            for link in shard.lock().values() {
                link.sweep(now);
            }
        }
    }
    /// Asks every connection to end.
    pub fn close_all(&self, why: &StreamError) {
        for shard in &self.shards {
            for link in shard.lock().values() {
                link.close(why.clone());
            }
        }
    }
    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Arc<Link>, Hash>> {
        &self.shards[id as usize % SHARDS]
    }
}
