//! Configuration of a room: XEP-0045 1.35.5, section 16.5.3 (fields of `muc#roomconfig`); slow mode: XEP-0500 0.1.0.

use stanza::payload::data_form::{DataForm, FormError, FormField, FormFieldType, FormKind};

use crate::options::{RoomDefaults, RoomLimits};
use crate::privileges::{Affiliation, RoomRole};

/// `FORM_TYPE` of the configuration.
pub(crate) const CONFIG_FORM: &str = "http://jabber.org/protocol/muc#roomconfig";
/// Longest text of a field, in bytes.
const MAX_TEXT_BYTES: usize = 1024;
/// Longest slow mode, in seconds.
const MAX_SLOW_MODE_SECONDS: u32 = 86_400;

/// Who may send private messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowPm {
    Anyone,
    Participants,
    Moderators,
    None,
}

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoomConfig {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) language: String,
    pub(crate) pubsub: String,
    pub(crate) password: Option<String>,
    pub(crate) persistent: bool,
    pub(crate) public: bool,
    pub(crate) members_only: bool,
    pub(crate) moderated: bool,
    /// Everybody sees the real JIDs of users, not only moderators.
    pub(crate) non_anonymous: bool,
    pub(crate) allow_invites: bool,
    pub(crate) change_subject: bool,
    pub(crate) logging: bool,
    pub(crate) allow_pm: AllowPm,
    /// 0: the limit of the service.
    pub(crate) max_users: u32,
    pub(crate) history_messages: u32,
    /// 0: disabled.
    pub(crate) slow_mode_seconds: u32,
    /// Roles whose presence everybody receives.
    pub(crate) presence_broadcast: Vec<RoomRole>,
    /// Roles that may retrieve the member list.
    pub(crate) member_list: Vec<RoomRole>,
}

impl AllowPm {
    const ALL: [AllowPm; 4] = [AllowPm::Anyone, AllowPm::Participants, AllowPm::Moderators, AllowPm::None];

    const fn as_str(self) -> &'static str {
        match self {
            AllowPm::Anyone => "anyone",
            AllowPm::Participants => "participants",
            AllowPm::Moderators => "moderators",
            AllowPm::None => "none",
        }
    }

    /// Whether an occupant with this role may send private messages.
    pub(crate) fn permits(self, role: RoomRole) -> bool {
        match self {
            AllowPm::Anyone => true,
            AllowPm::Participants => role >= RoomRole::Participant,
            AllowPm::Moderators => role == RoomRole::Moderator,
            AllowPm::None => false,
        }
    }
}

const LISTED_ROLES: [(RoomRole, &str); 3] = [
    (RoomRole::Moderator, "Moderator"),
    (RoomRole::Participant, "Participant"),
    (RoomRole::Visitor, "Visitor"),
];

impl RoomConfig {
    /// The configuration of a room that is created.
    pub(crate) fn new(defaults: &RoomDefaults) -> RoomConfig {
        RoomConfig {
            name: String::new(),
            description: String::new(),
            language: String::new(),
            pubsub: String::new(),
            password: None,
            persistent: defaults.persistent,
            public: defaults.public,
            members_only: false,
            moderated: false,
            non_anonymous: false,
            allow_invites: false,
            change_subject: false,
            logging: false,
            allow_pm: AllowPm::Anyone,
            max_users: defaults.max_users,
            history_messages: defaults.history_messages,
            slow_mode_seconds: 0,
            presence_broadcast: LISTED_ROLES.map(|(role, _)| role).to_vec(),
            member_list: LISTED_ROLES.map(|(role, _)| role).to_vec(),
        }
    }

    /// Maximum number of occupants.
    pub(crate) fn max_occupants(&self, limits: &RoomLimits) -> usize {
        match self.max_users {
            0 => limits.occupants,
            limit => limits.occupants.min(limit as usize),
        }
    }

    /// The form without owners and administrators.
    pub(crate) fn form(&self, kind: FormKind) -> DataForm {
        let list = |var: &str, label: &str, chosen: &[RoomRole]| {
            let mut field = FormField::new(FormFieldType::ListMulti, var).label(label);
            field = field.values(chosen.iter().map(|role| role.as_str()));
            LISTED_ROLES.iter().fold(field, |field, (role, label)| field.option(*label, role.as_str()))
        };
        let text = |var: &str, label: &str, value: &str| {
            let field = FormField::new(FormFieldType::TextSingle, var).label(label);
            if value.is_empty() { field } else { field.value(value) }
        };
        let switch = |var: &str, label: &str, on: bool| FormField::boolean(var, on).label(label);
        let mut max_users = FormField::new(FormFieldType::ListSingle, "muc#roomconfig_maxusers")
            .label("Maximum Number of Occupants")
            .value(if self.max_users == 0 { "none".to_owned() } else { self.max_users.to_string() });
        max_users = max_users.option("No Maximum", "none");
        let listed = [10, 20, 30, 50, 100, 200, 500, 1000, 5000, 10_000];
        for limit in listed
            .iter()
            .copied()
            .chain(Some(self.max_users).filter(|limit| *limit != 0 && !listed.contains(limit)))
        {
            max_users = max_users.option(limit.to_string(), limit.to_string());
        }
        let mut allow_pm = FormField::new(FormFieldType::ListSingle, "muc#roomconfig_allowpm")
            .label("Who Can Send Private Messages?")
            .value(self.allow_pm.as_str());
        for (choice, label) in
            AllowPm::ALL.into_iter().zip(["Anyone", "Participants", "Moderators", "Nobody"])
        {
            allow_pm = allow_pm.option(label, choice.as_str());
        }
        let secret =
            FormField::new(FormFieldType::TextPrivate, "muc#roomconfig_roomsecret").label("Password");
        DataForm::typed(kind, CONFIG_FORM)
            .field(text("muc#roomconfig_roomname", "Name of the Room", &self.name))
            .field(text("muc#roomconfig_roomdesc", "Description of the Room", &self.description))
            .field(text("muc#roomconfig_lang", "Language of the Discussion", &self.language))
            .field(text("muc#roomconfig_pubsub", "Address of an Associated PubSub Node", &self.pubsub))
            .field(switch("muc#roomconfig_persistentroom", "Make the Room Persistent?", self.persistent))
            .field(switch("muc#roomconfig_publicroom", "Make the Room Publicly Searchable?", self.public))
            .field(switch(
                "muc#roomconfig_passwordprotectedroom",
                "Require a Password?",
                self.password.is_some(),
            ))
            .field(match &self.password {
                Some(password) => secret.value(password.clone()),
                None => secret,
            })
            .field(switch("muc#roomconfig_membersonly", "Admit Members Only?", self.members_only))
            .field(switch("muc#roomconfig_moderatedroom", "Make the Room Moderated?", self.moderated))
            .field(switch(
                "muc#roomconfig_allowinvites",
                "Allow Occupants to Invite Others?",
                self.allow_invites,
            ))
            .field(switch(
                "muc#roomconfig_changesubject",
                "Allow Occupants to Change the Subject?",
                self.change_subject,
            ))
            .field(switch("muc#roomconfig_enablelogging", "Announce Public Logging?", self.logging))
            .field(
                FormField::new(FormFieldType::ListSingle, "muc#roomconfig_whois")
                    .label("Who Can See the Addresses of Occupants?")
                    .value(if self.non_anonymous { "anyone" } else { "moderators" })
                    .option("Moderators Only", "moderators")
                    .option("Anyone", "anyone"),
            )
            .field(allow_pm)
            .field(max_users)
            .field(text(
                "muc#maxhistoryfetch",
                "Messages of the History on Entering",
                &self.history_messages.to_string(),
            ))
            .field(
                text("muc#roomconfig_slow_mode_duration", "Slow Mode", &self.slow_mode_seconds.to_string())
                    .desc("Seconds between two messages of one user; 0: no limit.")
                    .integers(0..=i64::from(MAX_SLOW_MODE_SECONDS)),
            )
            .field(list(
                "muc#roomconfig_presencebroadcast",
                "Roles Whose Presence Is Broadcast",
                &self.presence_broadcast,
            ))
            .field(list(
                "muc#roomconfig_getmemberlist",
                "Roles That May Retrieve the Member List",
                &self.member_list,
            ))
    }

    /// Applies a submission that was validated against [`RoomConfig::form`].
    ///
    /// # Errors
    /// A combination that is not allowed (section 10.1.3).
    pub(crate) fn apply(&mut self, submitted: &DataForm, limits: &RoomLimits) -> Result<(), FormError> {
        let mut next = self.clone();
        for (var, field) in [
            ("muc#roomconfig_roomname", &mut next.name),
            ("muc#roomconfig_roomdesc", &mut next.description),
            ("muc#roomconfig_lang", &mut next.language),
            ("muc#roomconfig_pubsub", &mut next.pubsub),
        ] {
            if let Some(given) = submitted.get(var) {
                *field = given.values.first().cloned().unwrap_or_default();
                if field.len() > MAX_TEXT_BYTES {
                    return Err(FormError::of(var, "is too long"));
                }
            }
        }
        for (var, field) in [
            ("muc#roomconfig_persistentroom", &mut next.persistent),
            ("muc#roomconfig_publicroom", &mut next.public),
            ("muc#roomconfig_membersonly", &mut next.members_only),
            ("muc#roomconfig_moderatedroom", &mut next.moderated),
            ("muc#roomconfig_allowinvites", &mut next.allow_invites),
            ("muc#roomconfig_changesubject", &mut next.change_subject),
            ("muc#roomconfig_enablelogging", &mut next.logging),
        ] {
            *field = submitted.bool(var).unwrap_or(*field);
        }
        if let Some(whois) = submitted.value("muc#roomconfig_whois") {
            next.non_anonymous = whois == "anyone";
        }
        if let Some(choice) = submitted.value("muc#roomconfig_allowpm") {
            next.allow_pm =
                AllowPm::ALL.into_iter().find(|one| one.as_str() == choice).unwrap_or(next.allow_pm);
        }
        if let Some(limit) = submitted.value("muc#roomconfig_maxusers") {
            next.max_users = limit.parse().unwrap_or(0);
        }
        next.history_messages = number(submitted, "muc#maxhistoryfetch", next.history_messages)?
            .min(u32::try_from(limits.history_messages).unwrap_or(u32::MAX));
        let var = "muc#roomconfig_slow_mode_duration";
        next.slow_mode_seconds = number(submitted, var, next.slow_mode_seconds)?;
        if next.slow_mode_seconds > MAX_SLOW_MODE_SECONDS {
            return Err(FormError::of(var, "must be at most a day"));
        }
        for (var, field) in [
            ("muc#roomconfig_presencebroadcast", &mut next.presence_broadcast),
            ("muc#roomconfig_getmemberlist", &mut next.member_list),
        ] {
            if let Some(given) = submitted.get(var) {
                *field = given.values.iter().filter_map(|name| RoomRole::from_name(name)).collect();
            }
        }
        next.apply_password(submitted)?;
        *self = next;
        Ok(())
    }

    fn apply_password(&mut self, submitted: &DataForm) -> Result<(), FormError> {
        let var = "muc#roomconfig_roomsecret";
        let given = submitted.get(var).map(|field| field.values.first().cloned().unwrap_or_default());
        let is_protected =
            submitted.bool("muc#roomconfig_passwordprotectedroom").unwrap_or(self.password.is_some());
        self.password = match (is_protected, given.or_else(|| self.password.clone())) {
            (false, _) => None,
            (true, Some(password)) if password.len() > MAX_TEXT_BYTES => {
                return Err(FormError::of(var, "is too long"));
            }
            (true, Some(password)) if !password.is_empty() => Some(password),
            // Section 10.1.3: a password-protected room with a blank password violates the policy.
            (true, _) => return Err(FormError::of(var, "must not be empty")),
        };
        Ok(())
    }

    /// Whether a user with this affiliation and role may retrieve the member list (section 9.5).
    pub(crate) fn permits_member_list(&self, affiliation: Affiliation, role: RoomRole) -> bool {
        // Moderators see the addresses of occupants in every room.
        let sees = self.non_anonymous || role == RoomRole::Moderator;
        affiliation.is_privileged()
            || sees && (affiliation == Affiliation::Member || self.member_list.contains(&role))
    }
}

fn number(submitted: &DataForm, var: &str, current: u32) -> Result<u32, FormError> {
    match submitted.value(var).map(str::trim) {
        None | Some("") => Ok(current),
        Some(text) => text.parse().map_err(|_| FormError::of(var, "must be a number")),
    }
}
