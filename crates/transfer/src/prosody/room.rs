//! Rooms of mod_muc: `HOST/config/ROOM.dat` of a host that is a component, with the vCard in `vcard_muc`.
//!
//! # Pitfalls
//!
//! A room is a table of its own keys (`_jid`, `_data`) and of affiliations by address; before Prosody 0.10 these were in
//! `_affiliations`.

use jid::Jid;

use crate::lua::{LuaTable, LuaValue};
use crate::room::SourceRoom;

/// Roles in the order of the form.
const ROLES: [&str; 3] = ["moderator", "participant", "visitor"];

/// The room of a file with its address, or the reason why it is not one, and affiliations that were skipped.
pub(super) fn read_room(jid: Jid, stored: &LuaTable) -> Result<(SourceRoom, usize), String> {
    let data = stored.get("_data").and_then(LuaValue::as_table);
    let data = data.ok_or_else(|| "it is not a room of a known format".to_owned())?;
    if is_true(data, "destroyed") {
        return Err("it has been destroyed".to_owned());
    }
    if !is_true(data, "persistent") {
        return Err("it is temporary".to_owned());
    }
    let mut room = SourceRoom::new(jid);
    room.set_bool("muc#roomconfig_persistentroom", true);
    for (key, field) in [
        ("name", "muc#roomconfig_roomname"),
        ("description", "muc#roomconfig_roomdesc"),
        ("language", "muc#roomconfig_lang"),
    ] {
        if let Some(text) = data.text(key) {
            room.set(field, text);
        }
    }
    room.set_bool("muc#roomconfig_publicroom", !is_true(data, "hidden"));
    for (key, field) in [
        ("members_only", "muc#roomconfig_membersonly"),
        ("moderated", "muc#roomconfig_moderatedroom"),
        ("changesubject", "muc#roomconfig_changesubject"),
        ("allow_member_invites", "muc#roomconfig_allowinvites"),
        ("archiving", "muc#roomconfig_enablelogging"),
    ] {
        room.set_bool(field, is_true(data, key));
    }
    room.set("muc#roomconfig_whois", data.text("whois").unwrap_or("moderators"));
    room.set_password(data.text("password").unwrap_or_default());
    let history = ["default_history_messages", "history_length"].map(|key| data.get(key)?.as_u64());
    if let Some(messages) = history.into_iter().flatten().next() {
        room.set("muc#maxhistoryfetch", messages.to_string());
    }
    if let Some(broadcast) = data.get("presence_broadcast").and_then(LuaValue::as_table) {
        let roles = ROLES.into_iter().filter(|role| is_true(broadcast, role)).map(str::to_owned);
        room.config.push(("muc#roomconfig_presencebroadcast", roles.collect()));
    }
    room.subject = data.text("subject").unwrap_or_default().to_owned();
    let author = data.text("subject_from").and_then(|from| from.split_once('/'));
    room.subject_author = author.map_or("", |(_, nick)| nick).to_owned();
    room.subject_at = data.get("subject_time").and_then(LuaValue::as_u64).map(|at| at.saturating_mul(1_000));
    let skipped = read_affiliations(&mut room, stored);
    Ok((room, skipped))
}

/// Adds all affiliations; returns the number of those that are not valid.
fn read_affiliations(room: &mut SourceRoom, stored: &LuaTable) -> usize {
    let nested = stored.get("_affiliations").and_then(LuaValue::as_table);
    let details = stored.get("_affiliation_data").and_then(LuaValue::as_table);
    let mut skipped = 0;
    for (user, affiliation) in nested.unwrap_or(stored).pairs() {
        // The keys of the room begin with `_`, and live state has resources and tables.
        let (Some(user), Some(affiliation)) = (user.as_str(), affiliation.as_str()) else { continue };
        if user.starts_with('_') || (nested.is_none() && user == "jid") || user.contains('/') {
            continue;
        }
        let details = details.and_then(|details| details.get(user)?.as_table());
        let detail = |key| details.and_then(|details| details.text(key)).unwrap_or_default();
        skipped += usize::from(!room.add_affiliation(
            user,
            affiliation,
            detail("reserved_nickname"),
            detail("reason"),
        ));
    }
    skipped
}

fn is_true(table: &LuaTable, key: &str) -> bool {
    // `hidden` and others are absent when they are false.
    !matches!(table.get(key), None | Some(LuaValue::Nil | LuaValue::Boolean(false)))
}

#[cfg(test)]
mod tests {
    use super::read_room;
    use crate::lua::parse_value;

    fn read(text: &str) -> Result<(super::SourceRoom, usize), String> {
        let value = parse_value(text.as_bytes()).unwrap();
        let jid = jid::Jid::parse("lobby@conference.capulet.lit").unwrap();
        read_room(jid, value.as_table().unwrap())
    }

    /// As Prosody 0.12 writes it.
    const ROOM: &str = r#"return {
        ["_jid"] = "lobby@conference.capulet.lit";
        ["_data"] = {
            ["persistent"] = true; ["hidden"] = true; ["name"] = "The Lobby"; ["whois"] = "anyone"; ["password"] = "s";
            ["subject"] = "Balls"; ["subject_from"] = "lobby@conference.capulet.lit/romeo"; ["subject_time"] = 1700000000;
            ["presence_broadcast"] = { ["moderator"] = true; ["visitor"] = false; };
        };
        ["_affiliation_data"] = { ["juliet@capulet.lit"] = { ["reserved_nickname"] = "jule"; }; };
        ["juliet@capulet.lit"] = "owner"; ["spam.lit"] = "outcast"; ["@"] = "member"; ["nurse@capulet.lit"] = "none";
    };"#;

    #[test]
    fn a_room_with_its_affiliations_is_read() {
        let (room, skipped) = read(ROOM).unwrap();
        let value =
            |field| room.config.iter().find(|(name, _)| *name == field).map(|(_, values)| values.join(","));
        for (field, expected) in [
            ("muc#roomconfig_roomname", "The Lobby"),
            ("muc#roomconfig_publicroom", "0"),
            ("muc#roomconfig_whois", "anyone"),
            ("muc#roomconfig_passwordprotectedroom", "1"),
            ("muc#roomconfig_roomsecret", "s"),
            ("muc#roomconfig_presencebroadcast", "moderator"),
        ] {
            assert_eq!(value(field).as_deref(), Some(expected), "{field}");
        }
        assert_eq!((room.subject.as_str(), room.subject_author.as_str()), ("Balls", "romeo"));
        assert_eq!(room.subject_at, Some(1_700_000_000_000));
        let mut found: Vec<_> =
            room.affiliations.iter().map(|it| (it.user.as_str(), &*it.affiliation, &*it.nick)).collect();
        found.sort_unstable();
        assert_eq!(found, [("juliet@capulet.lit", "owner", "jule"), ("spam.lit", "outcast", "")]);
        assert_eq!(skipped, 1);
    }

    #[test]
    fn the_old_format_is_read_and_temporary_rooms_are_not() {
        let old = r#"return { ["jid"] = "lobby@conference.capulet.lit"; ["_data"] = { ["persistent"] = true; };
            ["_affiliations"] = { ["juliet@capulet.lit"] = "admin"; }; };"#;
        let (room, skipped) = read(old).unwrap();
        assert_eq!((room.affiliations[0].affiliation.as_str(), skipped), ("admin", 0));
        assert_eq!(read(r#"return { ["_data"] = {}; };"#), Err("it is temporary".to_owned()));
        assert!(read(r#"return { ["x"] = 1; };"#).is_err());
    }
}
