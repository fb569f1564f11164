//! Rooms of mod_muc: the options of `muc_room`, an Erlang list in Mnesia and the text of one in SQL.

use jid::Jid;

use crate::erlang::{ErlangTerm, parse_term};
use crate::room::SourceRoom;

/// The room of these options, and the number of affiliations that were skipped.
///
/// # Errors
/// One sentence, if they are not options of a room.
pub fn room_of_options(jid: Jid, options: &ErlangTerm) -> Result<(SourceRoom, usize), String> {
    let options = options.as_list().ok_or("its options are not a list")?;
    let mut room = SourceRoom::new(jid);
    let mut skipped = 0;
    // Options of a room are those in which it differs from the defaults since ejabberd 19; before, all.
    room.set_bool("muc#roomconfig_persistentroom", true);
    for option in options {
        let Some([name, value]) = option.as_tuple() else { continue };
        let Some(name) = name.as_atom() else { continue };
        if name == "affiliations" {
            skipped += read_affiliations(&mut room, value);
        } else {
            read_option(&mut room, name, value);
        }
    }
    let is_protected = std::mem::take(&mut room.config);
    room.config = without_unused_password(is_protected);
    Ok((room, skipped))
}

/// The room of the text of a column.
///
/// # Errors
/// One sentence, if it is not a list of options.
pub fn room_of_text(jid: Jid, options: &str) -> Result<(SourceRoom, usize), String> {
    let text = options.trim().trim_end_matches('.');
    let term = parse_term(text.as_bytes()).map_err(|error| format!("its options cannot be read: {error}"))?;
    room_of_options(jid, &term)
}

fn read_option(room: &mut SourceRoom, name: &str, value: &ErlangTerm) {
    let text = || value.to_text().unwrap_or_default();
    let is_on = value.as_atom() == Some("true");
    match name {
        "title" => room.set("muc#roomconfig_roomname", text()),
        "description" => room.set("muc#roomconfig_roomdesc", text()),
        "lang" => room.set("muc#roomconfig_lang", text()),
        "pubsub" => room.set("muc#roomconfig_pubsub", text()),
        "public" => room.set_bool("muc#roomconfig_publicroom", is_on),
        "members_only" => room.set_bool("muc#roomconfig_membersonly", is_on),
        "moderated" => room.set_bool("muc#roomconfig_moderatedroom", is_on),
        "allow_change_subj" => room.set_bool("muc#roomconfig_changesubject", is_on),
        "allow_user_invites" => room.set_bool("muc#roomconfig_allowinvites", is_on),
        "logging" => room.set_bool("muc#roomconfig_enablelogging", is_on),
        "password_protected" => room.set_bool("muc#roomconfig_passwordprotectedroom", is_on),
        "password" => room.set("muc#roomconfig_roomsecret", text()),
        "anonymous" => room.set("muc#roomconfig_whois", if is_on { "moderators" } else { "anyone" }),
        "allow_private_messages" => {
            room.set("muc#roomconfig_allowpm", if is_on { "anyone" } else { "none" });
        }
        "allowpm" => {
            if let Some(choice) = value.as_atom() {
                room.set("muc#roomconfig_allowpm", choice);
            }
        }
        "max_users" => {
            if let Some(most) = value.as_integer().filter(|most| *most > 0) {
                room.set("muc#roomconfig_maxusers", most.to_string());
            }
        }
        "presence_broadcast" => {
            let roles = value.as_list().unwrap_or_default().iter().filter_map(ErlangTerm::as_atom);
            room.config.push(("muc#roomconfig_presencebroadcast", roles.map(str::to_owned).collect()));
        }
        // A list of texts with languages since ejabberd 18.09; before, a text.
        "subject" => room.subject = subject(value),
        "subject_author" => {
            // The nickname, since ejabberd 23 with the address.
            let nick = value.as_tuple().and_then(<[ErlangTerm]>::first).unwrap_or(value);
            room.subject_author = nick.to_text().unwrap_or_default();
        }
        _ => {}
    }
}

fn subject(value: &ErlangTerm) -> String {
    let is_text = |part: &&ErlangTerm| {
        part.as_tuple().is_some_and(|parts| parts.first().and_then(ErlangTerm::as_atom) == Some("text"))
    };
    match value.as_list().and_then(|texts| texts.iter().find(is_text)) {
        Some(found) => found.as_tuple().and_then(|parts| parts.get(2)?.to_text()).unwrap_or_default(),
        None => value.to_text().unwrap_or_default(),
    }
}

/// Adds all affiliations: `{{User, Server, Resource}, Affiliation}`, or with the reason `{Affiliation, Reason}`. Returns the
/// number of those that are not valid.
fn read_affiliations(room: &mut SourceRoom, list: &ErlangTerm) -> usize {
    let mut skipped = 0;
    for entry in list.as_list().unwrap_or_default() {
        skipped += usize::from(read_affiliation(room, entry).is_none());
    }
    skipped
}

fn read_affiliation(room: &mut SourceRoom, entry: &ErlangTerm) -> Option<()> {
    let [user, value] = entry.as_tuple()? else { return None };
    let [name, server, ..] = user.as_tuple()? else { return None };
    let (name, server) = (name.to_text()?, server.to_text()?);
    let user = if name.is_empty() { server } else { format!("{name}@{server}") };
    let (affiliation, reason) = match value.as_tuple() {
        Some([affiliation, reason]) => (affiliation.as_atom()?, reason.to_text().unwrap_or_default()),
        _ => (value.as_atom()?, String::new()),
    };
    room.add_affiliation(&user, affiliation, "", &reason).then_some(())
}

/// A password that is not required is kept by ejabberd.
fn without_unused_password(mut config: Vec<(&'static str, Vec<String>)>) -> Vec<(&'static str, Vec<String>)> {
    let is = |field: &str, value: &str| {
        config.iter().any(|(name, values)| *name == field && values.first().is_some_and(|it| it == value))
    };
    let is_used = is("muc#roomconfig_passwordprotectedroom", "1") && !is("muc#roomconfig_roomsecret", "");
    config.retain(|(name, _)| {
        is_used || !matches!(*name, "muc#roomconfig_passwordprotectedroom" | "muc#roomconfig_roomsecret")
    });
    config
}

#[cfg(test)]
mod tests {
    use super::room_of_text;

    #[test]
    fn options_of_old_and_recent_versions_are_read() {
        let jid = || jid::Jid::parse("lobby@conference.capulet.lit").unwrap();
        let recent = "[{title,<<\"The Lobby\">>},{anonymous,false},{password,<<\"s\">>},{password_protected,true},\
            {allowpm,moderators},{max_users,50},{presence_broadcast,[moderator,participant]},\
            {subject,[{text,<<>>,<<\"Balls\">>}]},{subject_author,{<<\"romeo\">>,{jid,<<\"r\">>}}},\
            {affiliations,[{{<<\"juliet\">>,<<\"capulet.lit\">>,<<>>},{owner,<<>>}},\
            {{<<>>,<<\"spam.lit\">>,<<>>},{outcast,<<\"spam\">>}},{x,y}]}]";
        let (room, skipped) = room_of_text(jid(), recent).unwrap();
        let value = |field| room.config.iter().find(|(name, _)| *name == field).map(|(_, it)| it.join(","));
        for (field, expected) in [
            ("muc#roomconfig_roomname", "The Lobby"),
            ("muc#roomconfig_whois", "anyone"),
            ("muc#roomconfig_roomsecret", "s"),
            ("muc#roomconfig_allowpm", "moderators"),
            ("muc#roomconfig_maxusers", "50"),
            ("muc#roomconfig_presencebroadcast", "moderator,participant"),
        ] {
            assert_eq!(value(field).as_deref(), Some(expected), "{field}");
        }
        assert_eq!((room.subject.as_str(), room.subject_author.as_str()), ("Balls", "romeo"));
        let found: Vec<_> =
            room.affiliations.iter().map(|it| (it.user.as_str(), &*it.affiliation, &*it.reason)).collect();
        assert_eq!(found, [("juliet@capulet.lit", "owner", ""), ("spam.lit", "outcast", "spam")]);
        assert_eq!(skipped, 1);
        let old = "[{title,\"Old\"},{password_protected,false},{password,\"x\"},{subject,\"S\"},{subject_author,\"nurse\"},\
            {affiliations,[{{\"juliet\",\"capulet.lit\",[]},admin}]}]";
        let (room, skipped) = room_of_text(jid(), old).unwrap();
        assert_eq!((room.subject.as_str(), room.subject_author.as_str(), skipped), ("S", "nurse", 0));
        assert_eq!(room.affiliations[0].affiliation, "admin");
        assert!(
            room.config.iter().all(|(name, _)| !name.contains("secret")),
            "an unused password is dropped"
        );
        assert!(room_of_text(jid(), "{x").is_err() && room_of_text(jid(), "x").is_err());
    }
}
