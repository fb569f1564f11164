//! Writes an account as XEP-0227, always in the same order and form: an import and another export give the same bytes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jid::Jid;
use sasl::{Credentials, ScramHash};
use stanza::payload::datetime::format_utc;
use store::{LastActivity, RosterItem, Subscription};
use xml::{Ns, Writer};

use super::{BLOCKLIST_NAME, EXTENSION_NAMESPACE, SCRAM_NAMESPACE};
use crate::OfflineData;
use crate::stanza_form::to_file_form;

/// All data of an account.
pub(crate) struct ExportedUser {
    pub(crate) jid: Jid,
    pub(crate) credentials: Credentials,
    /// Whether a provider has the password. An element without a password is all that the format has for it.
    pub(crate) external: bool,
    pub(crate) disabled: bool,
    pub(crate) last_activity: Option<LastActivity>,
    /// Ordered by address.
    pub(crate) roster: Vec<RosterItem>,
    /// Elements, ordered by their keys.
    pub(crate) private: Vec<Vec<u8>>,
    pub(crate) vcard: Option<Vec<u8>>,
    pub(crate) blocklist: Vec<Jid>,
    pub(crate) offline: Vec<OfflineData>,
}

/// Appends `<user/>` with a line for each of its children.
pub(crate) fn write_user(user: &ExportedUser, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    writer.start("user").attr("name", user.jid.local().unwrap_or_default());
    for hash in ScramHash::ALL {
        write_keys(&mut writer, &user.credentials, hash);
    }
    if user.disabled {
        line(&mut writer).start("disabled").xmlns(EXTENSION_NAMESPACE).end();
    }
    if let Some(seen) = &user.last_activity {
        line(&mut writer).start("last-activity").xmlns(EXTENSION_NAMESPACE);
        writer.attr("stamp", &format_utc(seen.at.saturating_mul(1000), false));
        writer.text(seen.status.as_deref().unwrap_or_default()).end();
    }
    write_roster(&mut writer, user);
    if !user.private.is_empty() {
        line(&mut writer).start_ns("query", Ns::Private);
        for value in &user.private {
            line(&mut writer).raw(value);
        }
        line(&mut writer).end();
    }
    if let Some(vcard) = &user.vcard {
        line(&mut writer).raw(vcard);
    }
    write_blocklist(&mut writer, &user.blocklist);
    if !user.offline.is_empty() {
        line(&mut writer).start("offline-messages");
        for message in &user.offline {
            if let Some(expires) = message.expires {
                line(&mut writer).start("expires").xmlns(EXTENSION_NAMESPACE);
                writer.attr("stamp", &format_utc(expires, true)).end();
            }
            line(&mut writer).raw(&to_file_form(&message.stanza));
        }
        line(&mut writer).end();
    }
    line(&mut writer).end();
    line(&mut writer);
}

fn line<'w, 'v>(writer: &'w mut Writer<'v>) -> &'w mut Writer<'v> {
    writer.raw(b"\n")
}

/// Section 4.3.
fn write_keys(writer: &mut Writer<'_>, credentials: &Credentials, hash: ScramHash) {
    let Some(keys) = credentials.keys(hash) else { return };
    line(writer).start("scram-credentials").xmlns(SCRAM_NAMESPACE).attr("mechanism", hash.scram_name());
    writer.text_element("iter-count", &keys.iterations.to_string());
    writer.text_element("salt", &BASE64_STANDARD.encode(&keys.salt));
    writer.text_element("server-key", &BASE64_STANDARD.encode(keys.server_key.expose()));
    writer.text_element("stored-key", &BASE64_STANDARD.encode(keys.stored_key.expose()));
    writer.end();
}

/// Sections 4.4 and 4.9.
fn write_roster(writer: &mut Writer<'_>, user: &ExportedUser) {
    let is_shown = |item: &&RosterItem| item.subscription.contains(Subscription::IN_ROSTER);
    if user.roster.iter().any(|item| is_shown(&item)) {
        line(writer).start_ns("query", Ns::Roster);
        for item in user.roster.iter().filter(is_shown) {
            line(writer).start("item").attr("jid", item.jid.as_str()).attr_opt("name", item.name.as_deref());
            write_state(writer, item.subscription);
            for group in &item.groups {
                writer.text_element("group", group);
            }
            writer.end();
        }
        line(writer).end();
    }
    for item in &user.roster {
        let state = item.subscription.without(Subscription::PENDING_IN);
        if !is_shown(&item) && state != Subscription::NONE {
            line(writer).start("hidden-item").xmlns(EXTENSION_NAMESPACE).attr("jid", item.jid.as_str());
            write_state(writer, state);
            writer.end();
        }
    }
    for item in user.roster.iter().filter(|item| item.subscription.contains(Subscription::PENDING_IN)) {
        match &item.request {
            Some(stanza) => {
                line(writer).raw(&to_file_form(stanza));
            }
            None => {
                line(writer).start_ns("presence", Ns::Client);
                writer.attr("from", item.jid.as_str()).attr("type", "subscribe").end();
            }
        }
    }
}

fn write_state(writer: &mut Writer<'_>, state: Subscription) {
    writer.attr("subscription", state.as_str());
    if state.contains(Subscription::PENDING_OUT) {
        writer.attr("ask", "subscribe");
    }
    if state.contains(Subscription::APPROVED) {
        writer.attr("approved", "true");
    }
}

/// Section 4.8: the specification knows no blocklist (XEP-0191), but section 5 of XEP-0191 relates it to a privacy list.
fn write_blocklist(writer: &mut Writer<'_>, blocklist: &[Jid]) {
    if blocklist.is_empty() {
        return;
    }
    line(writer).start_ns("query", Ns::Privacy);
    line(writer).start("default").attr("name", BLOCKLIST_NAME).end();
    line(writer).start("list").attr("name", BLOCKLIST_NAME);
    for (number, jid) in blocklist.iter().enumerate() {
        line(writer).start("item").attr("type", "jid").attr("value", jid.as_str());
        writer.attr("action", "deny").attr("order", &(number + 1).to_string()).end();
    }
    line(writer).end();
    line(writer).end();
}
