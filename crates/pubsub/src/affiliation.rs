//! Affiliations: XEP-0060 1.30.0, section 4.1.

/// What an entity is to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeAffiliation {
    Outcast,
    None,
    Member,
    PublishOnly,
    Publisher,
    Owner,
}

/// Number in the store of an owner whom others have named, and who has not acted as one yet.
pub(crate) const UNCONFIRMED_OWNER: u8 = 6;

impl NodeAffiliation {
    /// All affiliations. The order is that of the numbers in the store.
    pub(crate) const ALL: [NodeAffiliation; 6] = [
        NodeAffiliation::None,
        NodeAffiliation::Owner,
        NodeAffiliation::Publisher,
        NodeAffiliation::PublishOnly,
        NodeAffiliation::Member,
        NodeAffiliation::Outcast,
    ];

    /// Its name in attributes.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            NodeAffiliation::Outcast => "outcast",
            NodeAffiliation::None => "none",
            NodeAffiliation::Member => "member",
            NodeAffiliation::PublishOnly => "publish-only",
            NodeAffiliation::Publisher => "publisher",
            NodeAffiliation::Owner => "owner",
        }
    }

    /// Reads an attribute.
    pub(crate) fn from_name(name: &str) -> Option<NodeAffiliation> {
        NodeAffiliation::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Its number in the store; `None` for no affiliation.
    pub(crate) fn number(self) -> Option<u8> {
        let position = NodeAffiliation::ALL.iter().position(|one| *one == self)?;
        u8::try_from(position).ok().filter(|number| *number > 0)
    }

    /// The affiliation with this number.
    pub(crate) fn from_number(number: u8) -> Option<NodeAffiliation> {
        match number {
            UNCONFIRMED_OWNER => Some(NodeAffiliation::Owner),
            number => NodeAffiliation::ALL.get(usize::from(number)).copied(),
        }
    }

    /// Whether it permits to subscribe and to retrieve items, whatever the access model is.
    pub(crate) const fn may_always_read(self) -> bool {
        matches!(self, NodeAffiliation::Owner | NodeAffiliation::Publisher | NodeAffiliation::Member)
    }

    /// Whether it permits to publish under every publish model.
    pub(crate) const fn may_always_publish(self) -> bool {
        matches!(self, NodeAffiliation::Owner | NodeAffiliation::Publisher | NodeAffiliation::PublishOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_4_1_the_table_of_privileges() {
        for (affiliation, reads, publishes) in [
            (NodeAffiliation::Owner, true, true),
            (NodeAffiliation::Publisher, true, true),
            (NodeAffiliation::PublishOnly, false, true),
            (NodeAffiliation::Member, true, false),
            (NodeAffiliation::None, false, false),
            (NodeAffiliation::Outcast, false, false),
        ] {
            assert_eq!(affiliation.may_always_read(), reads, "{affiliation:?}");
            assert_eq!(affiliation.may_always_publish(), publishes, "{affiliation:?}");
            assert_eq!(NodeAffiliation::from_name(affiliation.as_str()), Some(affiliation));
            let number = affiliation.number();
            assert_eq!(
                number.and_then(NodeAffiliation::from_number).unwrap_or(NodeAffiliation::None),
                affiliation
            );
        }
    }
}
