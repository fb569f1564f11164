//! Roles and affiliations: XEP-0045 1.35.5, section 5.

/// What an occupant may do while in the room (section 5.1). Ordered by privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoomRole {
    /// Not in the room.
    None,
    /// Without voice in a moderated room.
    Visitor,
    /// With voice.
    Participant,
    /// May kick, and grant and revoke voice.
    Moderator,
}

/// A long-lived association of a user with the room (section 5.2). Ordered by privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Affiliation {
    /// Banned.
    Outcast,
    /// No association.
    None,
    /// May enter a members-only room.
    Member,
    /// May ban, and grant membership and the role of moderator.
    Admin,
    /// May configure and destroy the room.
    Owner,
}

impl RoomRole {
    /// All roles.
    pub(crate) const ALL: [RoomRole; 4] =
        [RoomRole::None, RoomRole::Visitor, RoomRole::Participant, RoomRole::Moderator];

    /// Value of the attribute.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            RoomRole::None => "none",
            RoomRole::Visitor => "visitor",
            RoomRole::Participant => "participant",
            RoomRole::Moderator => "moderator",
        }
    }

    /// Parses the attribute.
    pub(crate) fn from_name(text: &str) -> Option<RoomRole> {
        RoomRole::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl Affiliation {
    /// All affiliations.
    pub(crate) const ALL: [Affiliation; 5] = [
        Affiliation::Outcast,
        Affiliation::None,
        Affiliation::Member,
        Affiliation::Admin,
        Affiliation::Owner,
    ];

    /// Value of the attribute.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Affiliation::Outcast => "outcast",
            Affiliation::None => "none",
            Affiliation::Member => "member",
            Affiliation::Admin => "admin",
            Affiliation::Owner => "owner",
        }
    }

    /// The number by which the store knows it; see [`store::rooms::NO_AFFILIATION`].
    pub(crate) const fn number(self) -> u8 {
        match self {
            Affiliation::Outcast => 0,
            Affiliation::None => store::rooms::NO_AFFILIATION,
            Affiliation::Member => 2,
            Affiliation::Admin => 3,
            Affiliation::Owner => 4,
        }
    }

    /// The affiliation with this number.
    pub(crate) fn from_number(number: u8) -> Option<Affiliation> {
        Affiliation::ALL.into_iter().find(|affiliation| affiliation.number() == number)
    }

    /// Parses the attribute.
    pub(crate) fn from_name(text: &str) -> Option<Affiliation> {
        Affiliation::ALL.into_iter().find(|affiliation| affiliation.as_str() == text)
    }

    /// The role of a user who enters (section 5.1.2).
    pub(crate) const fn default_role(self, moderated: bool) -> RoomRole {
        match self {
            Affiliation::Outcast => RoomRole::None,
            Affiliation::None if moderated => RoomRole::Visitor,
            Affiliation::None | Affiliation::Member => RoomRole::Participant,
            Affiliation::Admin | Affiliation::Owner => RoomRole::Moderator,
        }
    }

    /// Whether it is that of an administrator or an owner.
    pub(crate) const fn is_privileged(self) -> bool {
        matches!(self, Affiliation::Admin | Affiliation::Owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_5_1_2_the_role_on_entering_depends_on_the_affiliation_and_on_moderation() {
        for (affiliation, moderated, unmoderated) in [
            (Affiliation::Owner, RoomRole::Moderator, RoomRole::Moderator),
            (Affiliation::Admin, RoomRole::Moderator, RoomRole::Moderator),
            (Affiliation::Member, RoomRole::Participant, RoomRole::Participant),
            (Affiliation::None, RoomRole::Visitor, RoomRole::Participant),
            (Affiliation::Outcast, RoomRole::None, RoomRole::None),
        ] {
            assert_eq!(affiliation.default_role(true), moderated);
            assert_eq!(affiliation.default_role(false), unmoderated);
            assert_eq!(Affiliation::from_name(affiliation.as_str()), Some(affiliation));
            assert_eq!(Affiliation::from_number(affiliation.number()), Some(affiliation));
        }
        assert!(RoomRole::ALL.into_iter().all(|role| RoomRole::from_name(role.as_str()) == Some(role)));
    }
}
