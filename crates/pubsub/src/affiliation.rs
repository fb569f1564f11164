//! Affiliations: XEP-0060 1.30.0, section 4.1.

/// What an entity is to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Affiliation {
    Outcast,
    None,
    Member,
    PublishOnly,
    Publisher,
    Owner,
}

impl Affiliation {
    /// All affiliations. The order is that of the numbers in the store.
    pub(crate) const ALL: [Affiliation; 6] = [
        Affiliation::None,
        Affiliation::Owner,
        Affiliation::Publisher,
        Affiliation::PublishOnly,
        Affiliation::Member,
        Affiliation::Outcast,
    ];

    /// Its name in attributes.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Affiliation::Outcast => "outcast",
            Affiliation::None => "none",
            Affiliation::Member => "member",
            Affiliation::PublishOnly => "publish-only",
            Affiliation::Publisher => "publisher",
            Affiliation::Owner => "owner",
        }
    }

    /// Reads an attribute.
    pub(crate) fn from_name(name: &str) -> Option<Affiliation> {
        Affiliation::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Its number in the store; `None` for no affiliation.
    pub(crate) fn number(self) -> Option<u8> {
        let position = Affiliation::ALL.iter().position(|one| *one == self)?;
        u8::try_from(position).ok().filter(|number| *number > 0)
    }

    /// The affiliation with this number.
    pub(crate) fn from_number(number: u8) -> Option<Affiliation> {
        Affiliation::ALL.get(usize::from(number)).copied()
    }

    /// Whether it permits to subscribe and to retrieve items, whatever the access model is.
    pub(crate) const fn may_always_read(self) -> bool {
        matches!(self, Affiliation::Owner | Affiliation::Publisher | Affiliation::Member)
    }

    /// Whether it permits to publish under every publish model.
    pub(crate) const fn may_always_publish(self) -> bool {
        matches!(self, Affiliation::Owner | Affiliation::Publisher | Affiliation::PublishOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_4_1_the_table_of_privileges() {
        for (affiliation, reads, publishes) in [
            (Affiliation::Owner, true, true),
            (Affiliation::Publisher, true, true),
            (Affiliation::PublishOnly, false, true),
            (Affiliation::Member, true, false),
            (Affiliation::None, false, false),
            (Affiliation::Outcast, false, false),
        ] {
            assert_eq!(affiliation.may_always_read(), reads, "{affiliation:?}");
            assert_eq!(affiliation.may_always_publish(), publishes, "{affiliation:?}");
            assert_eq!(Affiliation::from_name(affiliation.as_str()), Some(affiliation));
            let number = affiliation.number();
            assert_eq!(number.and_then(Affiliation::from_number).unwrap_or(Affiliation::None), affiliation);
        }
    }
}
