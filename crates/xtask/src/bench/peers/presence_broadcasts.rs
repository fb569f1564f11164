//! Presence changes of several users at once, each to all of its contacts: the load behind "CPU a presence delivered" of `bench peers`.
//!
//! A few of the connected users change state again and again (RFC 6121, section 4.4.2), each as soon as all its contacts have the last change.
//! Several at once, so that the server is measured at work and not at waking up. What its other resources would get is left out: each has one.
//!
//! The trap: the servers send a presence back to the user's own connection as well. It is not counted, and all of them do it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::clock::now;
use super::super::driver::{Driver, Outs};
use super::super::presence::stamp_of;
use super::super::process::CpuMeter;

/// Users who change state at a time.
const SENDERS: usize = 16;
/// The stamp in the status: who in the upper 16 bits, which change in the lower 48.
const CHANGE_MASK: u64 = (1 << 48) - 1;

/// One who changes state.
struct PresenceSender {
    slot: usize,
    change: u64,
    /// Contacts that have the newest change.
    received: usize,
}

impl PresenceSender {
    fn send(&mut self, number: usize, outs: &mut Outs) {
        self.change += 1;
        self.received = 0;
        let show = if self.change.is_multiple_of(2) { "away" } else { "dnd" };
        let stamp = (number as u64) << 48 | (self.change & CHANGE_MASK);
        let text = format!("<presence><show>{show}</show><status>{stamp:016x} back soon</status></presence>");
        outs.to(self.slot).extend_from_slice(text.as_bytes());
    }
}

/// The senders and what they have done.
pub(super) struct PresenceBroadcasts {
    senders: Vec<PresenceSender>,
    contacts: usize,
    delivered: u64,
    last: Instant,
}

impl PresenceBroadcasts {
    /// How many connections are needed for rings of `contacts`: the senders stand where all their neighbours are connected.
    pub(super) fn connections(contacts: usize) -> usize {
        2 * contacts + SENDERS
    }

    /// For a driver with the first [`PresenceBroadcasts::connections`] accounts of a ring, all online.
    pub(super) fn new(contacts: usize) -> Self {
        let sender = |number| PresenceSender { slot: contacts + number, change: 0, received: 0 };
        Self { senders: (0..SENDERS).map(sender).collect(), contacts, delivered: 0, last: now() }
    }

    /// Changes states for `length`. Returns microseconds of the server's CPU for each presence that a contact got.
    pub(super) fn run(&mut self, driver: &mut Driver, cpu: &mut CpuMeter, length: Duration) -> Result<f64> {
        for (number, sender) in self.senders.iter_mut().enumerate() {
            sender.send(number, &mut driver.outs);
        }
        self.drive(driver, length / 4)?;
        cpu.elapsed()?;
        let before = self.delivered;
        self.drive(driver, length)?;
        let (used, delivered) = (cpu.elapsed()?, self.delivered - before);
        ensure!(delivered > 0, "no presence was delivered");
        self.last = now();
        while self.senders.iter().any(|sender| sender.received < self.contacts) {
            driver.turn(Some(Duration::from_millis(200)), |_, slot, element| {
                self.record(slot, element);
            })?;
            let missing: usize = self.senders.iter().map(|sender| self.contacts - sender.received).sum();
            ensure!(
                self.last.elapsed() < Duration::from_secs(10),
                "{missing} presences of {} were not delivered",
                SENDERS * self.contacts
            );
        }
        Ok(used as f64 / 1e3 / delivered as f64)
    }

    fn drive(&mut self, driver: &mut Driver, length: Duration) -> Result<()> {
        driver.run_until(now() + length, |outs, slot, element| {
            if let Some(number) = self.record(slot, element) {
                self.senders[number].send(number, outs);
            }
        })
    }

    /// Takes an element. Returns the sender whose change everybody has now.
    fn record(&mut self, slot: usize, element: &[u8]) -> Option<usize> {
        let stamp = stamp_of(element)?;
        let number = (stamp >> 48) as usize;
        let sender = self.senders.get_mut(number)?;
        if slot == sender.slot || stamp & CHANGE_MASK != sender.change {
            return None;
        }
        sender.received += 1;
        self.delivered += 1;
        self.last = now();
        (sender.received == self.contacts).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring_roster::neighbours;
    use super::{PresenceBroadcasts, SENDERS};

    #[test]
    fn all_contacts_of_the_senders_are_connected() {
        for contacts in [2, 3, 50] {
            let connections = PresenceBroadcasts::connections(contacts);
            for sender in PresenceBroadcasts::new(contacts).senders {
                let around = neighbours(sender.slot, 4_000, contacts);
                assert_eq!(around.len(), contacts);
                assert!(around.iter().all(|contact| *contact < connections), "{} of {SENDERS}", sender.slot);
            }
        }
    }

    #[test]
    fn only_the_newest_change_at_a_contact_counts() {
        let mut broadcasts = PresenceBroadcasts::new(2);
        broadcasts.senders[1].change = 5;
        let presence = |change: u64| {
            format!("<presence><status>{:016x} back soon</status></presence>", 1_u64 << 48 | change)
        };
        let own = broadcasts.senders[1].slot;
        assert_eq!(broadcasts.record(own, presence(5).as_bytes()), None);
        assert_eq!(broadcasts.record(own + 1, presence(4).as_bytes()), None);
        assert_eq!(broadcasts.record(own + 1, b"<presence/>"), None);
        assert_eq!(broadcasts.record(own + 1, presence(5).as_bytes()), None);
        assert_eq!(broadcasts.record(own - 1, presence(5).as_bytes()), Some(1));
        assert_eq!(broadcasts.delivered, 2);
    }
}
