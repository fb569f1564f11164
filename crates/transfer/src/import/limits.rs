//! Limits of imported data: those that the server sets to clients. A source of another server may contain what no client of
//! this one could have stored, and what no client could be sent: longer rosters, larger vCards, labels with control
//! characters.

use std::collections::HashMap;

use jid::Jid;
use store::vcards::MAX_VCARD_BYTES;
use store::{AccountKvLimits, Quota, QuotaUsage, RosterItem, RosterSize};

use crate::{ContactData, ContactRequest};

/// Limits of the data of an account.
#[derive(Clone, Copy, Debug)]
pub struct AccountLimits {
    /// Contacts, unanswered requests included.
    pub roster_items: u32,
    /// Bytes of addresses, names and groups in a roster.
    pub roster_bytes: u64,
    /// Bytes of the name of a contact.
    pub name_bytes: usize,
    /// Bytes of the name of a group.
    pub group_bytes: usize,
    /// Groups of a contact.
    pub groups: usize,
    /// Unanswered requests.
    pub requests: u32,
    /// Private values.
    pub private: AccountKvLimits,
    /// Bytes of a vCard.
    pub vcard_bytes: usize,
    /// Addresses on a blocklist.
    pub blocked: u32,
    /// Bytes of these addresses.
    pub blocked_bytes: usize,
    /// Offline messages.
    pub offline: Quota,
    /// Bytes of a stanza.
    pub stanza_bytes: usize,
}

impl AccountLimits {
    /// Those of the store only.
    pub const UNLIMITED: AccountLimits = AccountLimits {
        roster_items: u32::MAX,
        roster_bytes: store::roster::MAX_ROSTER_BYTES,
        name_bytes: usize::MAX,
        group_bytes: usize::MAX,
        groups: usize::MAX,
        requests: u32::MAX,
        private: AccountKvLimits::UNLIMITED,
        vcard_bytes: MAX_VCARD_BYTES,
        blocked: u32::MAX,
        blocked_bytes: store::blocklists::MAX_BLOCKLIST_BYTES,
        offline: Quota::messages_only(u32::MAX),
        stanza_bytes: usize::MAX,
    };

    /// Removes labels that cannot be stored, and returns the reasons.
    pub(super) fn check_labels(&self, contact: &mut ContactData) -> Vec<String> {
        let mut reasons = Vec::new();
        let jid = &contact.jid;
        contact.name = contact.name.take().filter(|name| match text_fault(name, self.name_bytes) {
            Some(fault) => {
                reasons.push(format!("the name of the contact {jid} {fault}"));
                false
            }
            None => true,
        });
        contact.groups.retain(|group| match text_fault(group, self.group_bytes) {
            Some(fault) => {
                reasons.push(format!("a group of the contact {jid} {fault}"));
                false
            }
            None => true,
        });
        if contact.groups.len() > self.groups {
            reasons.push(format!("the contact {jid} is in more than {} groups", self.groups));
            contact.groups.truncate(self.groups);
        }
        reasons
    }
}

/// Why a text cannot be stored; a part of a sentence.
pub(super) fn text_fault(text: &str, limit: usize) -> Option<String> {
    if text.len() > limit {
        Some(format!("has more than {limit} bytes"))
    } else if !text.chars().all(xml::is_char) {
        Some("has characters that XML does not allow".to_owned())
    } else {
        None
    }
}

/// What an account has, in a dry run.
#[derive(Clone, Copy, Default)]
pub(super) struct AccountUsage {
    pub(super) roster: RosterSize,
    /// Values and bytes.
    pub(super) private: (usize, usize),
    /// Addresses and bytes.
    pub(super) blocked: (usize, usize),
    pub(super) offline: QuotaUsage,
}

/// Contacts and requests that did not fit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct RosterRefusals {
    pub(super) contacts: u64,
    pub(super) requests: u64,
}

/// A roster that is filled up to its limits.
pub(super) struct RosterFill<'a> {
    limits: &'a AccountLimits,
    size: RosterSize,
    /// Bytes of its entries, and whether they have a request.
    entries: HashMap<Jid, (u64, bool)>,
}

impl<'a> RosterFill<'a> {
    /// A roster with these entries; `others` is the size of entries that are not known.
    pub(super) fn new(
        limits: &'a AccountLimits,
        others: RosterSize,
        items: Vec<RosterItem>,
    ) -> RosterFill<'a> {
        let mut size = others;
        let mut entries = HashMap::with_capacity(items.len());
        for item in items {
            let asks = item.subscription.contains(store::Subscription::PENDING_IN);
            size.contacts = size.contacts.saturating_add(1);
            size.requests = size.requests.saturating_add(u32::from(asks));
            size.bytes = size.bytes.saturating_add(item.bytes());
            entries.insert(item.jid.clone(), (item.bytes(), asks));
        }
        RosterFill { limits, size, entries }
    }

    /// Whether all of these fit, whatever entries there are.
    pub(super) fn has_room(
        limits: &AccountLimits,
        size: RosterSize,
        contacts: &[ContactData],
        requests: &[ContactRequest],
    ) -> bool {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let bytes = contacts.iter().map(contact_bytes);
        let bytes =
            bytes.chain(requests.iter().map(|request| request.from.as_str().len() as u64)).sum::<u64>();
        let items = size.contacts.saturating_add(count(contacts.len())).saturating_add(count(requests.len()));
        items <= limits.roster_items
            && size.requests.saturating_add(count(requests.len())) <= limits.requests
            && size.bytes.saturating_add(bytes) <= limits.roster_bytes
    }

    /// Removes those that do not fit.
    pub(super) fn fill(
        &mut self,
        contacts: &mut Vec<ContactData>,
        requests: &mut Vec<ContactRequest>,
    ) -> RosterRefusals {
        let before = (contacts.len(), requests.len());
        contacts.retain(|contact| self.put(&contact.jid, contact_bytes(contact), false));
        requests.retain(|request| self.put(&request.from, request.from.as_str().len() as u64, true));
        RosterRefusals {
            contacts: (before.0 - contacts.len()) as u64,
            requests: (before.1 - requests.len()) as u64,
        }
    }

    /// The size with what was put.
    pub(super) const fn size(&self) -> RosterSize {
        self.size
    }

    fn put(&mut self, jid: &Jid, bytes: u64, asks: bool) -> bool {
        let known = self.entries.get(jid).copied();
        let (bytes_before, asked) = known.unwrap_or_default();
        // A request leaves the labels of a contact as they are.
        let bytes = if asks { bytes.max(bytes_before) } else { bytes };
        let size = RosterSize {
            contacts: self.size.contacts.saturating_add(u32::from(known.is_none())),
            requests: self.size.requests.saturating_add(u32::from(asks && !asked)),
            bytes: self.size.bytes.saturating_sub(bytes_before).saturating_add(bytes),
        };
        let limits = self.limits;
        // An entry of a roster beyond its limits may be replaced by one that is not larger.
        let fits = (known.is_some() || size.contacts <= limits.roster_items)
            && (!asks || asked || size.requests <= limits.requests)
            && (size.bytes <= limits.roster_bytes || size.bytes <= self.size.bytes);
        if fits {
            self.size = size;
            self.entries.insert(jid.clone(), (bytes, asked || asks));
        }
        fits
    }
}

/// As counted by [`RosterItem::bytes`].
fn contact_bytes(contact: &ContactData) -> u64 {
    let texts = contact.groups.iter().chain(&contact.name).map(String::len).sum::<usize>();
    (contact.jid.as_str().len() + texts) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Subscription;

    const LIMITS: AccountLimits = AccountLimits {
        roster_items: 3,
        roster_bytes: 20,
        name_bytes: 4,
        group_bytes: 3,
        groups: 2,
        requests: 1,
        ..AccountLimits::UNLIMITED
    };

    fn contact(jid: &str, name: &str, groups: &[&str]) -> ContactData {
        ContactData {
            jid: Jid::parse(jid).unwrap(),
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            subscription: Subscription::IN_ROSTER,
        }
    }

    fn request(jid: &str) -> ContactRequest {
        ContactRequest { from: Jid::parse(jid).unwrap(), stanza: None }
    }

    #[test]
    fn labels_that_cannot_be_stored_are_removed_and_the_contact_stays() {
        let mut wrong = contact("a@b", "12345", &["1234", "abc", "\u{1}", "d", "e"]);
        let reasons = LIMITS.check_labels(&mut wrong);
        assert_eq!((wrong.name, wrong.groups), (None, vec!["abc".to_owned(), "d".to_owned()]));
        assert_eq!(
            reasons,
            [
                "the name of the contact a@b has more than 4 bytes",
                "a group of the contact a@b has more than 3 bytes",
                "a group of the contact a@b has characters that XML does not allow",
                "the contact a@b is in more than 2 groups",
            ]
        );
        let mut right = contact("a@b", "1234", &["abc", "日"]);
        assert!(LIMITS.check_labels(&mut right).is_empty());
        let mut control = contact("a@b", "a\u{fffe}", &[]);
        assert_eq!(LIMITS.check_labels(&mut control).len(), 1);
    }

    #[test]
    fn a_roster_is_filled_up_to_each_of_its_limits() {
        let fill = |contacts: &[(&str, &str)], requests: &[&str]| {
            let before = store::RosterItem::new(Jid::parse("a@b").unwrap());
            let mut contacts: Vec<_> = contacts.iter().map(|(jid, name)| contact(jid, name, &[])).collect();
            let mut requests: Vec<_> = requests.iter().map(|jid| request(jid)).collect();
            let mut fill = RosterFill::new(&LIMITS, RosterSize::default(), vec![before]);
            let refused = fill.fill(&mut contacts, &mut requests);
            (refused.contacts, refused.requests, fill.size().contacts)
        };
        assert_eq!(fill(&[("a@b", ""), ("c@d", ""), ("e@f", ""), ("g@h", "")], &[]), (1, 0, 3));
        assert_eq!(fill(&[("c@d", "1234"), ("e@f", "1234"), ("e@f", "")], &[]), (0, 0, 3));
        assert_eq!(fill(&[("c@d", "123456789012345"), ("e@f", "")], &[]), (1, 0, 2), "bytes");
        assert_eq!(fill(&[("c@d", "")], &["a@b", "c@d", "e@f"]), (0, 2, 2), "one request");
        let one = [contact("c@d", "", &[])];
        let size = RosterSize { contacts: 2, requests: 1, bytes: 14 };
        assert!(RosterFill::has_room(&LIMITS, size, &one, &[]));
        assert!(!RosterFill::has_room(&LIMITS, size, &one, &[request("e@f")]));
        assert!(!RosterFill::has_room(&LIMITS, RosterSize { bytes: 18, ..size }, &one, &[]));
    }
}
