//! A MUC service of the scripted server (XEP-0045): rooms with occupants, messages, presence, nicknames and history.
//!
//! Not implemented: roles, affiliations, subjects other than the empty one, configuration beyond unlocking.

use std::collections::BTreeMap;

use super::script::ServerAction;
use super::server::{DOMAIN, ScriptedServerState};
use super::text::{attr, bare, escape, with_child, with_from};

/// A room.
#[derive(Default)]
pub(crate) struct ScriptedRoom {
    /// User and nickname, in the order of joining.
    occupants: Vec<(String, String)>,
    history: Vec<String>,
    locked: bool,
    /// Copies held until after the next one to the same user, with their senders.
    held: BTreeMap<String, (String, String)>,
}

/// Address of the service.
pub(crate) fn service() -> String {
    format!("conference.{DOMAIN}")
}

fn presence(room: &str, nick: &str, attributes: &str, inner: &str, codes: &[u16]) -> String {
    let codes: String = codes.iter().map(|code| format!("<status code='{code}'/>")).collect();
    format!(
        "<presence from='{}/{}'{attributes}>{inner}<x xmlns='http://jabber.org/protocol/muc#user'>\
         <item affiliation='none' role='participant'/>{codes}</x></presence>",
        escape(room),
        escape(nick)
    )
}

impl ScriptedServerState {
    /// Handles a stanza to the service. False if it is for another address.
    pub(crate) fn room_stanza(&mut self, id: usize, stanza: &str) -> bool {
        let to = attr(stanza, "to").unwrap_or_default();
        let Some(user) = self.conns.get(&id).and_then(|conn| conn.user.clone()) else { return false };
        let room = bare(&to).to_owned();
        if !room.ends_with(&format!("@{}", service())) {
            return false;
        }
        let nick = to.split_once('/').map(|(_, nick)| nick.to_owned()).unwrap_or_default();
        match super::text::name(stanza) {
            "message" => self.room_message(&user, &room, stanza),
            "presence" => self.room_presence(&user, &room, &nick, stanza),
            _ => {
                self.rooms.entry(room.clone()).or_default().locked = false;
                let request = escape(&attr(stanza, "id").unwrap_or_default());
                self.send(&user, &format!("<iq type='result' id='{request}' from='{}'/>", escape(&room)));
            }
        }
        true
    }

    /// Removes a user whose session is over, silently.
    pub(crate) fn leave_rooms(&mut self, user: &str) {
        for room in self.rooms.values_mut() {
            room.occupants.retain(|(occupant, _)| occupant != user);
        }
    }

    fn send_presence(&mut self, to: &str, presence: &str) {
        self.truth.presences_out += 1;
        self.send(to, presence);
    }

    fn occupants(&self, room: &str) -> Vec<(String, String)> {
        self.rooms.get(room).map(|room| room.occupants.clone()).unwrap_or_default()
    }

    fn room_presence(&mut self, user: &str, room: &str, nick: &str, stanza: &str) {
        let occupants = self.occupants(room);
        let own = occupants.iter().find(|(occupant, _)| occupant == user).map(|(_, nick)| nick.clone());
        match (attr(stanza, "type").as_deref(), own) {
            (Some("unavailable"), Some(own)) => self.room_leave(user, room, &own),
            (None, Some(own)) if own == nick => {
                let id = attr(stanza, "id").map(|id| format!(" id='{}'", escape(&id))).unwrap_or_default();
                self.truth.room_presence_changes += 1;
                for (occupant, _) in &occupants {
                    let codes: &[u16] = if occupant == user { &[110] } else { &[] };
                    self.send_presence(
                        occupant,
                        &presence(room, nick, &id, "<status>changed</status>", codes),
                    );
                }
            }
            (None, own) => {
                let locked = self.rooms.get(room).is_some_and(|room| room.locked);
                let condition = if locked {
                    "item-not-found"
                } else if occupants.iter().any(|(_, taken)| taken == nick) {
                    "conflict"
                } else {
                    match own {
                        Some(own) => self.room_rename(user, room, &own, nick),
                        None => self.room_join(user, room, nick, stanza),
                    }
                    return;
                };
                self.truth.room_joins_refused += 1;
                let error = format!(
                    "<presence type='error' from='{}/{}'><error type='cancel'><{condition} \
                     xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></presence>",
                    escape(room),
                    escape(nick)
                );
                self.send_presence(user, &error);
            }
            _ => {}
        }
    }

    fn room_join(&mut self, user: &str, room: &str, nick: &str, stanza: &str) {
        let created = !self.rooms.contains_key(room);
        let occupants = self.occupants(room);
        for (_, other) in &occupants {
            self.send_presence(user, &presence(room, other, "", "", &[]));
        }
        for (occupant, _) in &occupants {
            self.send_presence(occupant, &presence(room, nick, "", "", &[]));
        }
        let codes: &[u16] = if created { &[110, 201] } else { &[110] };
        self.send_presence(user, &presence(room, nick, "", "", codes));
        let lock = created && self.script.lock_rooms;
        let state = self.rooms.entry(room.to_owned()).or_default();
        state.locked = lock;
        state.occupants.push((user.to_owned(), nick.to_owned()));
        let most = stanza.split("maxstanzas='").nth(1).and_then(|rest| rest.split('\'').next()?.parse().ok());
        let skipped = state.history.len().saturating_sub(most.unwrap_or(20));
        let history: Vec<String> = state.history[skipped..].to_vec();
        self.truth.room_joins += 1;
        let delay = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>";
        for message in history {
            self.truth.room_history += 1;
            self.send(user, &with_child(&message, delay));
        }
        let subject = format!("<message type='groupchat' from='{}'><subject/></message>", escape(room));
        self.send(user, &subject);
    }

    fn room_leave(&mut self, user: &str, room: &str, nick: &str) {
        self.truth.room_leaves += 1;
        for (occupant, _) in self.occupants(room) {
            let codes: &[u16] = if occupant == user { &[110] } else { &[] };
            let leaving = presence(room, nick, " type='unavailable'", "", codes);
            self.send_presence(&occupant, &leaving);
        }
        if let Some(room) = self.rooms.get_mut(room) {
            room.occupants.retain(|(occupant, _)| occupant != user);
        }
    }

    fn room_rename(&mut self, user: &str, room: &str, old: &str, nick: &str) {
        self.truth.room_nicks += 1;
        for (occupant, _) in self.occupants(room) {
            let own = occupant == user;
            let codes: &[u16] = if own { &[110, 303] } else { &[303] };
            self.send_presence(&occupant, &presence(room, old, " type='unavailable'", "", codes));
            let codes: &[u16] = if own { &[110] } else { &[] };
            self.send_presence(&occupant, &presence(room, nick, "", "", codes));
        }
        let occupants = self.rooms.get_mut(room).map(|room| &mut room.occupants);
        for (_, known) in occupants.into_iter().flatten().filter(|(occupant, _)| occupant == user) {
            nick.clone_into(known);
        }
    }

    fn room_message(&mut self, user: &str, room: &str, message: &str) {
        let occupants = self.occupants(room);
        let own = occupants.iter().find(|(occupant, _)| occupant == user).map(|(_, nick)| nick.clone());
        let number = self.truth.room_messages;
        self.truth.room_messages += 1;
        let refused = matches!((self.script.copy)(number, ""), ServerAction::Refuse);
        let Some(nick) = own.filter(|_| !refused) else {
            self.truth.room_refused += 1;
            let error = format!(
                "<message type='error' id='{}' from='{}'><error type='modify'><not-acceptable \
                 xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></message>",
                escape(&attr(message, "id").unwrap_or_default()),
                escape(room)
            );
            return self.send(user, &error);
        };
        let copy = with_from(message, &format!("{room}/{nick}"));
        for (occupant, _) in &occupants {
            let held = self.rooms.get_mut(room).and_then(|room| room.held.remove(occupant));
            match (self.script.copy)(number, occupant) {
                ServerAction::Nothing => self.truth.room_dropped += 1,
                ServerAction::Hold => {
                    let state = self.rooms.entry(room.to_owned()).or_default();
                    state.held.insert(occupant.clone(), (user.to_owned(), copy.clone()));
                }
                action => {
                    self.truth.room_copies += 1;
                    self.send(occupant, &copy);
                    if matches!(action, ServerAction::Twice) {
                        self.truth.room_duplicated += 1;
                        self.send(occupant, &copy);
                    }
                }
            }
            if let Some((sender, held)) = held {
                self.truth.room_copies += 1;
                self.truth.room_swapped += 1;
                self.truth.room_sender_swapped += u64::from(sender == user);
                self.send(occupant, &held);
            }
        }
        if let Some(room) = self.rooms.get_mut(room) {
            room.history.push(copy);
        }
    }
}
