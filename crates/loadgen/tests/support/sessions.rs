//! Sessions and routing: presence, messages, requests between users, stream management queues.

use std::collections::VecDeque;

use super::script::{OfflinePolicy, PresenceVisibility, ServerAction, ServerStep};
use super::server::{DOMAIN, ScriptedServerState, prefixed, renamed};
use super::text::{attr, bare, child_text, elements, escape, is_stanza, with_child, with_from};

/// A bound user.
pub(crate) struct ServerSession {
    /// `None`: the connection was lost and the session may be resumed.
    pub(crate) conn: Option<usize>,
    pub(crate) resource: String,
    pub(crate) available: bool,
    /// Latest available presence, with `from`.
    presence: String,
    pub(crate) management: Option<ServerStreamManagement>,
}

/// XEP-0198 state of a session.
pub(crate) struct ServerStreamManagement {
    /// Resumption id; `None`: not resumable.
    pub(crate) key: Option<String>,
    pub(crate) received: u32,
    /// Sent and not acknowledged.
    queue: VecDeque<String>,
    acknowledged: u32,
}

impl ServerStreamManagement {
    pub(crate) fn new(key: Option<String>) -> Self {
        Self { key, received: 0, queue: VecDeque::new(), acknowledged: 0 }
    }

    /// False if `h` exceeds what was sent.
    pub(crate) fn acknowledge(&mut self, h: u32) -> bool {
        let count = h.wrapping_sub(self.acknowledged) as usize;
        if count > self.queue.len() {
            return false;
        }
        self.queue.drain(..count);
        self.acknowledged = h;
        true
    }
}

fn number(user: &str) -> Option<u32> {
    user.strip_prefix('u')?.parse().ok()
}

impl ScriptedServerState {
    pub(crate) fn begin(&mut self, id: usize, user: String, resource: String) {
        let session = ServerSession {
            conn: Some(id),
            resource,
            available: false,
            presence: String::new(),
            management: None,
        };
        if let Some(replaced) = self.sessions.insert(user.clone(), session) {
            self.store_unacknowledged(&user, replaced);
        }
    }

    /// Stores the messages that a session had not acknowledged, which a new one of the same user replaces (XEP-0198
    /// section 4: what a stream leaves unacknowledged counts as undelivered).
    fn store_unacknowledged(&mut self, user: &str, replaced: ServerSession) {
        for stanza in replaced.management.into_iter().flat_map(|sm| sm.queue) {
            let id = attr(&stanza, "id").unwrap_or_default();
            if stanza.starts_with("<message") && id.starts_with(['T', 'D']) {
                // It counts as forwarded again when the user fetches it.
                self.truth.forwarded = self.truth.forwarded.saturating_sub(1);
                self.truth.stored += 1;
                self.stored.entry(user.to_owned()).or_default().push(stanza);
            }
        }
    }

    fn user(&self, id: usize) -> Option<String> {
        self.conns.get(&id)?.user.clone()
    }

    fn full(&self, user: &str) -> String {
        let resource = self.sessions.get(user).map_or("", |session| session.resource.as_str());
        format!("{user}@{DOMAIN}/{resource}")
    }

    /// Ends the session of a connection that was closed cleanly.
    pub(crate) fn leave(&mut self, id: usize) {
        let Some(user) = self.user(id) else { return };
        if self.sessions.get(&user).is_some_and(|session| session.conn == Some(id)) {
            let available = self.sessions.get(&user).is_some_and(|session| session.available);
            let from = self.full(&user);
            self.sessions.remove(&user);
            self.leave_rooms(&user);
            if available && self.script.seen == PresenceVisibility::ByAll {
                self.broadcast(
                    &user,
                    &format!("<presence type='unavailable' from='{}'/>", escape(&from)),
                    false,
                );
            }
        }
    }

    /// The connection is lost: the session becomes resumable or ends.
    pub(crate) fn detach(&mut self, id: usize) {
        let Some(user) = self.user(id) else { return };
        let Some(session) = self.sessions.get_mut(&user).filter(|session| session.conn == Some(id)) else {
            return;
        };
        match &mut session.management {
            Some(sm) if sm.key.is_some() => session.conn = None,
            _ => self.leave(id),
        }
    }

    pub(crate) fn take_over(&mut self, id: usize, user: &str) {
        let Some(session) = self.sessions.get_mut(user) else { return };
        session.conn = Some(id);
        self.truth.resumed += 1;
        let queue: Vec<String> = session.management.iter().flat_map(|sm| sm.queue.iter().cloned()).collect();
        for stanza in queue {
            self.truth.stanzas_out += 1;
            self.bytes(id, stanza.as_bytes());
        }
    }

    /// Counts a stanza received on a connection.
    pub(crate) fn received(&mut self, id: usize) {
        let Some(user) = self.user(id) else { return };
        if let Some(sm) = self.sessions.get_mut(&user).and_then(|session| session.management.as_mut()) {
            sm.received = sm.received.wrapping_add(1);
        }
    }

    /// Queues a stanza sent to a managed session.
    pub(crate) fn keep(&mut self, id: usize, xml: &str) {
        let Some(user) = self.user(id) else { return };
        if let Some(sm) = self.sessions.get_mut(&user).and_then(|session| session.management.as_mut()) {
            sm.queue.extend(elements(xml).into_iter().filter(|element| is_stanza(element)));
        }
    }

    /// Sends a stanza to an online user, or queues it for the resumption.
    pub(crate) fn send(&mut self, user: &str, stanza: &str) {
        let Some(session) = self.sessions.get_mut(user) else { return };
        match session.conn {
            Some(id) => {
                let managed = session.management.is_some();
                self.put(id, stanza);
                if managed {
                    self.bytes(id, b"<r xmlns='urn:xmpp:sm:3'/>");
                }
            }
            None => {
                if let Some(sm) = &mut session.management {
                    sm.queue.push_back(stanza.to_owned());
                }
            }
        }
    }

    pub(crate) fn presence(&mut self, id: usize, presence: &str) {
        if self.room_stanza(id, presence) {
            return;
        }
        let Some(user) = self.user(id) else { return };
        let stamped = with_from(presence, &self.full(&user));
        if let Some(to) = attr(presence, "to") {
            let to = bare(&to).split('@').next().unwrap_or_default().to_owned();
            if self.sessions.get(&to).is_some_and(|session| session.available) {
                self.truth.presences_out += 1;
                self.send(&to, &stamped);
            }
            return;
        }
        let available = match attr(presence, "type").as_deref() {
            None => true,
            Some("unavailable") => false,
            _ => return,
        };
        let all = self.script.seen == PresenceVisibility::ByAll;
        let Some(session) = self.sessions.get_mut(&user) else { return };
        let first = available && !session.available;
        session.available = available;
        session.presence = stamped.clone();
        if available && self.answer(id, ServerStep::Reflection, &stamped) {
            self.truth.reflections += 1;
            self.truth.presences_out += 1;
        }
        if all {
            self.broadcast(&user, &stamped, available);
        }
        if !first {
            return;
        }
        if all {
            let others: Vec<String> = self.others(&user);
            for other in others {
                let presence = self.sessions.get(&other).map(|session| session.presence.clone());
                self.truth.presences_out += 1;
                self.send(&user, &presence.unwrap_or_default());
            }
        }
        for stanza in self.stored.remove(&user).unwrap_or_default() {
            self.truth.fetched += 1;
            self.truth.forwarded += 1;
            let delay = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z' from='load.test'/>";
            self.send(&user, &with_child(&stanza, delay));
        }
    }

    fn others(&self, user: &str) -> Vec<String> {
        let there = self.sessions.iter().filter(|(other, session)| session.available && *other != user);
        there.map(|(other, _)| other.clone()).collect()
    }

    fn broadcast(&mut self, user: &str, presence: &str, available: bool) {
        for other in self.others(user) {
            let presence = match self.act(ServerStep::Presence) {
                ServerAction::Nothing => continue,
                ServerAction::Prefixed => prefixed(presence),
                _ => presence.to_owned(),
            };
            self.truth.broadcasts += u64::from(available);
            self.truth.presences_out += 1;
            self.send(&other, &presence);
        }
    }

    pub(crate) fn message(&mut self, id: usize, message: &str) {
        if self.room_stanza(id, message) {
            return;
        }
        let Some(user) = self.user(id) else { return };
        let from = self.full(&user);
        let to = attr(message, "to").unwrap_or_default();
        let recipient = bare(&to).strip_suffix(&format!("@{DOMAIN}")).unwrap_or_default().to_owned();
        let class = attr(message, "id").and_then(|id| id.chars().next());
        let stamped = with_from(message, &from);
        if matches!(class, Some('E' | 'F')) {
            self.truth.echoes += 1;
            return self.send(&recipient, &stamped);
        }
        if !matches!(class, Some('T' | 'D')) {
            self.truth.elsewhere += 1;
            self.truth.bodies.push(child_text(message, "body").unwrap_or_default());
            if self.sessions.contains_key(&recipient) {
                self.send(&recipient, &stamped);
            }
            return;
        }
        self.truth.messages += 1;
        if let (Some(from), Some(to)) = (number(&user), number(&recipient)) {
            *self.truth.pairs.entry((from, to)).or_default() += 1;
        }
        if !self.is_account(&recipient) {
            return self.refuse(&user, message);
        }
        let pair = (user.clone(), recipient.clone());
        match self.act(ServerStep::Message) {
            ServerAction::Nothing => self.truth.dropped += 1,
            ServerAction::Refuse => self.refuse(&user, message),
            ServerAction::Late(ms) => self.forward_later(ms, &recipient, stamped),
            ServerAction::Hold => {
                self.held.insert(pair, stamped);
                return;
            }
            ServerAction::Twice => {
                self.forward(&recipient, &stamped);
                self.truth.duplicated += 1;
                self.send(&recipient, &stamped);
            }
            ServerAction::Renamed => self.forward(&recipient, &renamed(&stamped)),
            ServerAction::Prefixed => self.forward(&recipient, &prefixed(&stamped)),
            ServerAction::After(before) => {
                self.send(&recipient, &before);
                self.forward(&recipient, &stamped);
            }
            _ => self.forward(&recipient, &stamped),
        }
        if let Some(held) = self.held.remove(&pair) {
            self.truth.swapped += 1;
            self.forward(&recipient, &held);
        }
    }

    /// Forwards a message to its recipient, or applies the offline policy.
    pub(crate) fn forward(&mut self, to: &str, stanza: &str) {
        if self.sessions.get(to).is_some_and(|session| session.available) {
            self.truth.forwarded += 1;
            return self.send(to, stanza);
        }
        match self.script.absent {
            OfflinePolicy::Store => {
                self.truth.stored += 1;
                self.stored.entry(to.to_owned()).or_default().push(stanza.to_owned());
            }
            OfflinePolicy::Drop => self.truth.dropped += 1,
            OfflinePolicy::Refuse => {
                let from = attr(stanza, "from").unwrap_or_default();
                let sender = from.split('@').next().unwrap_or_default().to_owned();
                let without = stanza.replacen(&format!(" from='{}'", escape(&from)), "", 1);
                self.refuse(&sender, &without);
            }
        }
    }

    fn refuse(&mut self, sender: &str, message: &str) {
        self.truth.refused += 1;
        let to = attr(message, "to").unwrap_or_default();
        let id = attr(message, "id").unwrap_or_default();
        let error = format!(
            "<message type='error' id='{}' from='{}' to='{}'><error type='cancel'>\
             <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></message>",
            escape(&id),
            escape(&to),
            escape(&self.full(sender))
        );
        self.send(sender, &error);
    }

    /// Forwards a request between users, or its answer.
    pub(crate) fn iq_to_user(&mut self, id: usize, to: &str, iq: &str, kind: &str) {
        if self.room_stanza(id, iq) || self.node_request(id, iq) {
            return;
        }
        let Some(user) = self.user(id) else { return };
        let recipient = to.split('@').next().unwrap_or_default();
        if self.sessions.contains_key(recipient) && to.contains('/') {
            let stamped = with_from(iq, &self.full(&user));
            return self.send(recipient, &stamped);
        }
        if matches!(kind, "get" | "set") {
            let error = format!(
                "<iq type='error' id='{}' from='{}'><error type='cancel'>\
                 <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>",
                escape(&attr(iq, "id").unwrap_or_default()),
                escape(to)
            );
            self.answer(id, ServerStep::Request, &error);
        }
    }
}
