//! Rooms (XEP-0045) of a source: configuration, affiliations, subject, vCard.
//!
//! Not implemented: histories and archives; both servers keep the history in memory only.

use jid::Jid;

/// A persistent room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRoom {
    /// Its address.
    pub jid: Jid,
    /// Values of its configuration, by names of fields (section 16.5.3), such as `muc#roomconfig_roomname`.
    pub config: Vec<(&'static str, Vec<String>)>,
    /// Affiliations of users, and bans of domains.
    pub affiliations: Vec<SourceAffiliation>,
    /// Text of the subject; empty for none.
    pub subject: String,
    /// Nickname of its author; empty if it is not known.
    pub subject_author: String,
    /// The time of the subject, in milliseconds since 1970.
    pub subject_at: Option<u64>,
    /// The vCard as a standalone document.
    pub vcard: Option<Vec<u8>>,
}

/// The affiliation of a user with a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAffiliation {
    /// Bare address.
    pub user: Jid,
    /// `owner`, `admin`, `member` or `outcast`.
    pub affiliation: String,
    /// Reserved nickname; empty for none.
    pub nick: String,
    /// Reason; empty for none.
    pub reason: String,
}

impl SourceRoom {
    /// A room without any configuration.
    pub fn new(jid: Jid) -> SourceRoom {
        SourceRoom {
            jid,
            config: Vec::new(),
            affiliations: Vec::new(),
            subject: String::new(),
            subject_author: String::new(),
            subject_at: None,
            vcard: None,
        }
    }

    /// Sets a field with one value.
    pub fn set(&mut self, field: &'static str, value: impl Into<String>) {
        self.config.push((field, vec![value.into()]));
    }

    /// Sets a field that is true or false.
    pub fn set_bool(&mut self, field: &'static str, value: bool) {
        self.set(field, if value { "1" } else { "0" });
    }

    /// Sets the password, unless it is empty.
    pub fn set_password(&mut self, password: &str) {
        if !password.is_empty() {
            self.set_bool("muc#roomconfig_passwordprotectedroom", true);
            self.set("muc#roomconfig_roomsecret", password);
        }
    }

    /// Adds an affiliation. False if it is not one, or the address is not valid.
    pub fn add_affiliation(&mut self, user: &str, affiliation: &str, nick: &str, reason: &str) -> bool {
        if affiliation == "none" {
            return true;
        }
        let Ok(user) = Jid::from_stored(user) else { return false };
        let is_known = ["owner", "admin", "member", "outcast"].contains(&affiliation);
        if is_known {
            self.affiliations.push(SourceAffiliation {
                user: user.bare().to_jid(),
                affiliation: affiliation.to_owned(),
                nick: nick.to_owned(),
                reason: reason.to_owned(),
            });
        }
        is_known
    }
}
