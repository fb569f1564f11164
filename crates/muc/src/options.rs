//! Options of the service: limits, and what a room is like when it is created.

use std::borrow::Cow;

use feature_api::feature::{FeatureOptions, OptionKind, OptionSpec, OptionValue};
use feature_api::service::ServiceSpec;

/// Bytes of the history of each room of a user whose rooms take too much memory.
const HISTORY_OVER_QUOTA: usize = 10_000;
/// Bytes of a vCard then: enough for an empty one, which removes the avatar.
const AVATAR_OVER_QUOTA: usize = 100;

/// Who may create rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreationAccess {
    Users,
    Admins,
    All,
}

/// The options of a domain.
#[derive(Clone, Debug)]
pub(crate) struct ServiceOptions {
    pub(crate) creation: CreationAccess,
    pub(crate) rooms: usize,
    pub(crate) rooms_per_user: usize,
    /// Memory of the rooms in use that one user has created, in bytes: the quota.
    pub(crate) memory_per_user: usize,
    pub(crate) limits: RoomLimits,
    /// The same for rooms of a user whose rooms take more.
    pub(crate) limits_over_quota: RoomLimits,
    pub(crate) room_defaults: RoomDefaults,
}

/// Limits of each room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomLimits {
    /// Sessions in the room.
    pub(crate) occupants: usize,
    /// Occupants above which presence is sent to moderators and to the occupant itself only.
    pub(crate) presence_occupants: usize,
    pub(crate) history_messages: usize,
    /// Messages that the store keeps of a persistent room, at least those in memory.
    pub(crate) stored_history_messages: usize,
    pub(crate) history_bytes: usize,
    pub(crate) nick_bytes: usize,
    pub(crate) subject_bytes: usize,
    pub(crate) affiliations: usize,
    pub(crate) presence_bytes: usize,
    pub(crate) avatar_bytes: usize,
    /// Invitations of one user in an hour, to all rooms.
    pub(crate) invitations_per_hour: usize,
}

/// Configuration of a room that is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomDefaults {
    pub(crate) persistent: bool,
    pub(crate) public: bool,
    pub(crate) history_messages: u32,
    pub(crate) max_users: u32,
}

const fn number(key: &'static str, min: i64, max: i64, default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(min, max), default: OptionValue::Int(default), doc }
}

const fn switch(key: &'static str, default: bool, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Bool, default: OptionValue::Bool(default), doc }
}

/// All options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    ServiceSpec::address_option("conference.{domain}"),
    ServiceSpec::rate_option(50),
    OptionSpec {
        key: "creation",
        kind: OptionKind::Text,
        default: OptionValue::Text(Cow::Borrowed("users")),
        doc: "Who can create rooms: `users` with an account on the domain, `admins` only, or `all` including anonymous \
              users and users of other servers.",
    },
    number("rooms", 1, 10_000_000, 1_000_000, "Rooms of the service that are in use."),
    number(
        "rooms_per_user",
        1,
        1_000_000,
        500,
        "Rooms that one user can have created, persistent ones and those in use each; administrators are exempt.",
    ),
    number(
        "memory_per_user",
        100_000,
        1_000_000_000_000,
        64_000_000,
        "Bytes of history, lists, vCards and waiting requests of the rooms in use that one user has created. Above it they have a \
         short history, and nothing but bans is added to their lists; rooms of administrators are exempt.",
    ),
    number("occupants", 2, 1_000_000, 10_000, "Sessions in one room."),
    number(
        "presence_occupants",
        0,
        1_000_000,
        1_000,
        "Occupants of one room above which the presence of further ones is sent to moderators and to themselves only.",
    ),
    number(
        "history_messages",
        0,
        10_000,
        500,
        "Messages of a room's history that are kept in memory, of which newcomers receive some.",
    ),
    number("history_bytes", 0, 100_000_000, 500_000, "Bytes of these messages."),
    number(
        "stored_history_messages",
        0,
        10_000_000,
        0,
        "Messages of a persistent room that the database keeps, and on average a hundredth more; 0: those that are in memory. More \
         are of use to an archive only.",
    ),
    number("nick_bytes", 1, 1023, 128, "Bytes of a nickname."),
    number("subject_bytes", 1, 100_000, 4_096, "Bytes of a subject."),
    number(
        "affiliations",
        1,
        1_000_000,
        10_000,
        "Owners, administrators, members and banned users of one room.",
    ),
    number(
        "presence_bytes",
        0,
        100_000,
        4_096,
        "Bytes of the content of a presence; a longer one is sent without it.",
    ),
    number("avatar_bytes", 0, 1_000_000, 65_536, "Bytes of a room's vCard."),
    number(
        "invitations_per_hour",
        0,
        1_000_000,
        100,
        "Invitations that one user can send in an hour, to all rooms; administrators of the node are exempt.",
    ),
    switch("default_persistent", false, "Rooms are persistent when they are created."),
    switch("default_public", true, "Rooms are listed when they are created."),
    number(
        "default_history_messages",
        0,
        10_000,
        20,
        "Messages that a user receives on entering a room when it is created.",
    ),
    number(
        "default_max_users",
        0,
        1_000_000,
        0,
        "Maximum number of occupants of a room when it is created; 0: that of the service.",
    ),
];

impl ServiceOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// The option with an invalid value, and the problem.
    pub(crate) fn read(options: &FeatureOptions) -> Result<ServiceOptions, (&'static str, String)> {
        let creation = match options.text("creation") {
            "users" => CreationAccess::Users,
            "admins" => CreationAccess::Admins,
            "all" => CreationAccess::All,
            other => return Err(("creation", format!("must be users, admins or all, not \"{other}\""))),
        };
        let of = |key: &str| usize::try_from(options.int(key)).unwrap_or(usize::MAX);
        let small = |key: &str| u32::try_from(options.int(key)).unwrap_or(u32::MAX);
        let limits = RoomLimits {
            occupants: of("occupants"),
            presence_occupants: of("presence_occupants"),
            history_messages: of("history_messages"),
            stored_history_messages: of("stored_history_messages"),
            history_bytes: of("history_bytes"),
            nick_bytes: of("nick_bytes"),
            subject_bytes: of("subject_bytes"),
            affiliations: of("affiliations"),
            presence_bytes: of("presence_bytes"),
            avatar_bytes: of("avatar_bytes"),
            invitations_per_hour: of("invitations_per_hour"),
        };
        let limits_over_quota = RoomLimits {
            history_bytes: limits.history_bytes.min(HISTORY_OVER_QUOTA),
            avatar_bytes: limits.avatar_bytes.min(AVATAR_OVER_QUOTA),
            ..limits
        };
        Ok(ServiceOptions {
            creation,
            rooms: of("rooms"),
            rooms_per_user: of("rooms_per_user"),
            memory_per_user: of("memory_per_user"),
            limits,
            limits_over_quota,
            room_defaults: RoomDefaults {
                persistent: options.bool("default_persistent"),
                public: options.bool("default_public"),
                history_messages: small("default_history_messages"),
                max_users: small("default_max_users"),
            },
        })
    }
}
