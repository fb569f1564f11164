//! Rooms of other servers as this service stores them.
//!
//! # Pitfalls
//!
//! The limits are the defaults of the options: those of the domain apply when a room is used.

use std::sync::Arc;

use feature_api::feature::FeatureOptions;
use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use store::RoomUpdate;

use crate::options::{OPTIONS, ServiceOptions};
use crate::room::Room;

/// Configuration, affiliations and subject of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedRoom<'a> {
    /// Its address.
    pub jid: &'a Jid,
    /// Values of the fields of its configuration, such as `muc#roomconfig_roomname`.
    pub config: Vec<(&'a str, &'a [String])>,
    /// Bare address of a user or domain, affiliation, reserved nickname and reason.
    pub affiliations: Vec<(&'a Jid, &'a str, &'a str, &'a str)>,
    /// Text of the subject; empty for none.
    pub subject: &'a str,
    /// Nickname of its author; empty if it is not known.
    pub subject_author: &'a str,
    /// The time of the subject, in milliseconds since 1970.
    pub subject_at: Option<u64>,
    /// The vCard as a standalone document.
    pub vcard: Option<&'a [u8]>,
}

impl ImportedRoom<'_> {
    /// The room as it is stored.
    ///
    /// # Errors
    /// One sentence, if the configuration is not valid.
    pub fn update(&self) -> Result<RoomUpdate, String> {
        let options = ServiceOptions::read(&FeatureOptions::defaults(OPTIONS));
        let options = options.map_err(|(key, problem)| format!("{key} {problem}"))?;
        let mut form = DataForm::new(FormKind::Submit);
        for (field, values) in &self.config {
            // Text that XML does not allow is lost.
            let values = values.iter().filter(|value| value.chars().all(xml::is_char));
            form = form.field(FormField::new(FormFieldType::TextMulti, *field).values(values.cloned()));
        }
        Room::import(Arc::new(options), self, &form)
    }
}
