//! Declared interest: the stanzas that a handler wants to see.

use stanza::{Head, PayloadNs, PayloadSet, StanzaKindSet};

/// Interest of a handler. All three conditions must hold.
#[derive(Clone, Copy, Debug)]
pub struct Interest {
    /// Stanza kinds and types.
    pub kinds: StanzaKindSet,
    /// Any of these child namespaces; the empty set matches every stanza.
    pub payloads: PayloadSet,
    /// All of these session flags.
    pub flags: u64,
}

/// The properties of one stanza that are matched against an [`Interest`].
#[derive(Clone, Copy, Debug)]
pub struct InterestProbe {
    /// The bit of its kind and type.
    pub kind: u32,
    /// Namespaces of its children.
    pub payloads: PayloadSet,
    /// Flags of the session concerned.
    pub flags: u64,
}

impl Interest {
    /// Every stanza.
    pub const ALL: Interest = Interest { kinds: StanzaKindSet::ALL, payloads: PayloadSet::NONE, flags: 0 };
    /// Stanzas of these kinds.
    pub const fn kinds(kinds: StanzaKindSet) -> Interest {
        Interest { kinds, ..Interest::ALL }
    }

    /// Restricts the interest to stanzas with a child in this namespace.
    #[must_use]
    pub const fn payload(mut self, ns: PayloadNs) -> Interest {
        self.payloads = self.payloads.with(ns);
        self
    }

    /// Restricts the interest to sessions with these flags.
    #[must_use]
    pub const fn flags(mut self, flags: u64) -> Interest {
        self.flags |= flags;
        self
    }

    /// Whether the stanza matches.
    pub const fn wants(&self, probe: &InterestProbe) -> bool {
        self.kinds.0 & probe.kind != 0
            && (self.payloads.is_empty() || self.payloads.intersects(probe.payloads))
            && self.flags & probe.flags == self.flags
    }
}

impl InterestProbe {
    /// The probe of a stanza.
    pub fn of(head: &Head, flags: u64) -> InterestProbe {
        InterestProbe { kind: head.kind.bit(), payloads: head.payloads(), flags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanza::{MessageType, StanzaKind};

    #[test]
    fn a_handler_runs_only_if_all_three_conditions_hold() {
        let chat = StanzaKind::Message(MessageType::Chat).bit();
        let interest = Interest::kinds(StanzaKindSet::MESSAGES).payload(PayloadNs::Delay).flags(2);
        let delay = PayloadSet::of(&[PayloadNs::Delay]);
        let probe = |kind, payloads, flags| InterestProbe { kind, payloads, flags };
        assert!(interest.wants(&probe(chat, delay, 3)));
        assert!(!interest.wants(&probe(chat, PayloadSet::NONE, 3)));
        assert!(!interest.wants(&probe(chat, delay, 1)));
        assert!(!interest.wants(&probe(1 << 20, delay, 3)));
        assert!(Interest::ALL.wants(&probe(chat, PayloadSet::NONE, 0)));
    }
}
