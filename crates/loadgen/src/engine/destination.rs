//! Destination of a step: a user chosen by rule or at random, or any address.

use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::NOBODY;
use super::writer::ResolvedDestination;
use crate::plan::Destination;

impl WorkerEngine<'_> {
    /// Resolves a destination; counts an error if no user qualifies.
    pub(super) fn destination(&mut self, slot: UserSlot, destination: &Destination) -> ResolvedDestination {
        let user = &self.users[slot];
        let (me, accounts) = (user.account, self.plan.accounts.count());
        let (chosen, error) = match destination {
            Destination::Online => (self.online.pick(me, &mut self.rng), "nobody-online"),
            Destination::Offline => (self.online.pick_offline(&mut self.rng), "nobody-offline"),
            Destination::Random => (Some(self.rng.below(accounts)), ""),
            Destination::Unique => {
                let next = self.next_account;
                self.next_account = (next + 1) % accounts.max(1);
                (Some(next), "")
            }
            Destination::Previous => {
                (Some(user.last_message).filter(|last| *last != NOBODY), "no-previous-destination")
            }
            Destination::LastContact => {
                (Some(user.last_contact).filter(|last| *last != NOBODY), "no-previous-contact")
            }
            Destination::First => (Some(0), ""),
            Destination::Contact => {
                let count = user.contacts.len() as u32;
                (user.contacts.get(self.rng.below(count) as usize).copied(), "no-contact")
            }
            Destination::OnlineContact => {
                // Searching from a random position needs no list of candidates.
                let count = user.contacts.len();
                let from = self.rng.below(count as u32) as usize;
                let mut candidates = user.contacts.iter().cycle().skip(from).take(count);
                (candidates.find(|contact| self.online.contains(**contact)).copied(), "no-online-contact")
            }
            Destination::Ring(distance) => {
                let ring = (i64::from(me) + i64::from(*distance)).rem_euclid(i64::from(accounts.max(1)));
                (Some(ring as u32), "")
            }
            Destination::Partner => (Some(me ^ 1).filter(|partner| *partner < accounts), "no-partner"),
            Destination::Myself => (Some(me), ""),
            Destination::Full(to, resource) => {
                let resource = self.text(slot, resource);
                return match self.destination(slot, to) {
                    ResolvedDestination::User(user) => {
                        let mut address = String::new();
                        self.names.bare(user, &mut address);
                        ResolvedDestination::Address(format!("{address}/{resource}"))
                    }
                    ResolvedDestination::Address(address) => {
                        ResolvedDestination::Address(format!("{address}/{resource}"))
                    }
                    ResolvedDestination::Nobody => ResolvedDestination::Nobody,
                };
            }
            Destination::Server => return ResolvedDestination::Address(self.plan.target.domain.clone()),
            Destination::Jid(text) => {
                let address = self.text(slot, text);
                return match self.names.index(&address) {
                    Some(user) => {
                        self.users[slot].last = user;
                        // A full JID is used as it is.
                        if address.contains('/') {
                            ResolvedDestination::Address(address)
                        } else {
                            ResolvedDestination::User(user)
                        }
                    }
                    None => ResolvedDestination::Address(address),
                };
            }
        };
        match chosen {
            Some(chosen) => {
                self.users[slot].last = chosen;
                ResolvedDestination::User(chosen)
            }
            None => {
                self.record.error(error);
                ResolvedDestination::Nobody
            }
        }
    }
}
