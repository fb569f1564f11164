//! Server side of streams: RFC 6120 negotiation, binding, XEP-0077, XEP-0198, and dispatch of requests.

use super::sasl::{self, SaslOutcome};
use super::script::{LegacySessionOffer, ScriptTls, ServerStep};
use super::server::{DOMAIN, ScriptedServerState};
use super::sessions::ServerStreamManagement;
use super::text::{attr, child_text, escape, name, own_text};

impl ScriptedServerState {
    pub(crate) fn header(&mut self, id: usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.open = true;
        let (secure, user) = (conn.secure, conn.user.is_some());
        let mut features = String::new();
        if self.script.tls == ScriptTls::Starttls && !secure {
            features.push_str("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>");
        } else if !user {
            features.push_str("<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>");
            for mechanism in &self.script.mechanisms {
                features.push_str(&format!("<mechanism>{mechanism}</mechanism>"));
            }
            features.push_str("</mechanisms><register xmlns='http://jabber.org/features/iq-register'/>");
        } else {
            features.push_str("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/><sm xmlns='urn:xmpp:sm:3'/>");
            features.push_str(match self.script.old_session {
                LegacySessionOffer::Absent => "",
                LegacySessionOffer::Optional => {
                    "<session xmlns='urn:ietf:params:xml:ns:xmpp-session'><optional/></session>"
                }
                LegacySessionOffer::Required => "<session xmlns='urn:ietf:params:xml:ns:xmpp-session'/>",
            });
        }
        let header = format!(
            "<?xml version='1.0'?><stream:stream from='{DOMAIN}' id='s{id}' version='1.0' xml:lang='en' \
             xmlns='jabber:client' xmlns:x='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>\
             <stream:features>{features}</stream:features>"
        );
        self.answer(id, ServerStep::Features, &header);
    }

    pub(crate) fn element(&mut self, id: usize, element: &str) {
        match name(element) {
            "starttls" => self.starttls(id),
            "auth" => self.auth(id, element),
            "response" => self.response(id, element),
            "enable" | "resume" | "r" | "a" => self.management(id, element),
            "iq" => {
                self.truth.iqs_in += 1;
                self.received(id);
                self.iq(id, element);
            }
            "message" => {
                self.received(id);
                self.message(id, element);
            }
            "presence" => {
                self.truth.presences_in += 1;
                self.received(id);
                self.presence(id, element);
            }
            _ => self.truth.wrong.push(format!("unknown element {element}")),
        }
    }

    fn starttls(&mut self, id: usize) {
        let right =
            self.answer(id, ServerStep::Starttls, "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
        if let (true, Some(conn), Some(config)) = (right, self.conns.get_mut(&id), &self.tls) {
            // Pending plain text precedes all data encrypted from here on.
            conn.wire.start_tls(config);
            conn.secure = true;
            conn.open = false;
        }
    }

    fn known(&self, user: &str) -> bool {
        let number = user.strip_prefix('u').and_then(|digits| digits.parse::<u32>().ok());
        !self.removed.contains(user)
            && (self.created.contains(user) || number.is_some_and(|number| number < self.script.accounts))
    }

    /// Whether this local part is an account.
    pub(crate) fn is_account(&self, user: &str) -> bool {
        self.known(user)
    }

    fn auth(&mut self, id: usize, element: &str) {
        let message = sasl::decode(own_text(element));
        let outcome = match attr(element, "mechanism").as_deref() {
            Some("PLAIN") => {
                self.truth.plain += 1;
                sasl::plain(&message, |user| self.known(user))
            }
            Some("SCRAM-SHA-1") => {
                self.truth.scram += 1;
                sasl::scram_first(&message, |user| self.known(user))
            }
            Some("ANONYMOUS") => SaslOutcome::Success(format!("guest{id}"), String::new()),
            _ => SaslOutcome::Failure("invalid-mechanism"),
        };
        self.sasl(id, outcome);
    }

    fn response(&mut self, id: usize, element: &str) {
        let Some(scram) = self.conns.get_mut(&id).and_then(|conn| conn.scram.take()) else {
            self.truth.wrong.push("a response without a challenge".to_owned());
            return;
        };
        let outcome =
            sasl::scram_final(&scram, &sasl::decode(own_text(element)), self.script.wrong_signature);
        self.sasl(id, outcome);
    }

    fn sasl(&mut self, id: usize, outcome: SaslOutcome) {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        match outcome {
            SaslOutcome::Challenge(scram, text) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.scram = Some(scram);
                }
                let xml = format!(
                    "<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{}</challenge>",
                    encode(&text)
                );
                self.answer(id, ServerStep::Challenge, &xml);
            }
            SaslOutcome::Success(user, text) => {
                let xml =
                    format!("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{}</success>", encode(&text));
                if self.answer(id, ServerStep::Success, &xml)
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.user = Some(user);
                    self.restart(id);
                }
            }
            SaslOutcome::Failure(condition) => {
                self.truth.failed_logins += 1;
                let xml =
                    format!("<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><{condition}/></failure>");
                self.answer(id, ServerStep::Success, &xml);
            }
        }
    }

    fn iq(&mut self, id: usize, iq: &str) {
        let kind = attr(iq, "type").unwrap_or_default();
        let request = attr(iq, "id").unwrap_or_default();
        let to = attr(iq, "to").filter(|to| to != DOMAIN);
        if let Some(to) = to {
            return self.iq_to_user(id, &to, iq, &kind);
        }
        let request = escape(&request);
        let result = format!("<iq type='result' id='{request}'/>");
        match kind.as_str() {
            "result" => self.truth.iqs_answered += 1,
            "error" => self.truth.iqs_refused += 1,
            _ if iq.contains("urn:ietf:params:xml:ns:xmpp-bind") => self.bind(id, iq, &request),
            _ if iq.contains("urn:ietf:params:xml:ns:xmpp-session") => {
                if self.answer(id, ServerStep::Session, &result) {
                    self.truth.sessions_opened += 1;
                    if self.script.old_session == LegacySessionOffer::Required {
                        self.truth.logins += 1;
                    }
                }
            }
            _ if iq.contains("jabber:iq:register") => self.register(id, iq, &request),
            _ if iq.contains("jabber:iq:roster") && kind == "get" => {
                self.truth.rosters += 1;
                let xml = format!(
                    "<iq type='result' id='{request}'><query xmlns='jabber:iq:roster'>{}</query></iq>",
                    self.roster(id)
                );
                self.answer(id, ServerStep::Roster, &xml);
            }
            _ if iq.contains("jabber:iq:roster") => {
                self.truth.roster_sets += 1;
                self.answer(id, ServerStep::RosterSet, &result);
            }
            _ if iq.contains("urn:xmpp:ping") => {
                self.truth.pings += 1;
                self.answer(id, ServerStep::Ping, &result);
            }
            _ if iq.contains("urn:test:say") => {
                let word = child_text(iq, "word").unwrap_or_default();
                let xml = format!(
                    "<iq type='result' id='{request}'><said xmlns='urn:test:say'><word>{}</word></said></iq>",
                    escape(&word)
                );
                self.truth.bodies.push(word);
                self.answer(id, ServerStep::Request, &xml);
            }
            _ => {
                let xml = format!(
                    "<iq type='error' id='{request}'><error type='cancel'>\
                     <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
                );
                self.answer(id, ServerStep::Request, &xml);
            }
        }
    }

    fn bind(&mut self, id: usize, iq: &str, request: &str) {
        let Some(user) = self.conns.get(&id).and_then(|conn| conn.user.clone()) else {
            self.truth.wrong.push("a bind before a login".to_owned());
            return;
        };
        let resource = child_text(iq, "resource").unwrap_or_else(|| format!("r{id}"));
        let xml = format!(
            "<iq type='result' id='{request}'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
             <jid>{user}@{DOMAIN}/{}</jid></bind></iq>",
            escape(&resource)
        );
        if self.answer(id, ServerStep::Bind, &xml) {
            self.begin(id, user, resource);
            if self.script.old_session != LegacySessionOffer::Required {
                self.truth.logins += 1;
            }
        }
    }

    fn register(&mut self, id: usize, iq: &str, request: &str) {
        let error = |condition: &str| {
            format!(
                "<iq type='error' id='{request}'><error type='cancel'>\
                 <{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )
        };
        let xml = if iq.contains("<remove/>") {
            let user = self.conns.get(&id).and_then(|conn| conn.user.clone()).unwrap_or_default();
            self.truth.removed += 1;
            self.removed.insert(user);
            format!("<iq type='result' id='{request}'/>")
        } else {
            let user = child_text(iq, "username").unwrap_or_default();
            if self.known(&user) {
                error("conflict")
            } else {
                self.truth.registered += 1;
                self.removed.remove(&user);
                self.created.insert(user);
                format!("<iq type='result' id='{request}'/>")
            }
        };
        self.answer(id, ServerStep::Register, &xml);
    }

    fn roster(&self, id: usize) -> String {
        let user = self.conns.get(&id).and_then(|conn| conn.user.clone()).unwrap_or_default();
        let own: u32 = user.trim_start_matches('u').parse().unwrap_or(0);
        let mut items = "<item jid='nurse@other.test' subscription='both'/>".to_owned();
        for contact in (1..=self.script.contacts).map(|step| (own + step) % self.script.accounts) {
            items.push_str(&format!("<item jid='u{contact}@{DOMAIN}' subscription='both'/>"));
        }
        items
    }

    fn management(&mut self, id: usize, element: &str) {
        let h = attr(element, "h").and_then(|h| h.parse::<u32>().ok());
        let user = self.conns.get(&id).and_then(|conn| conn.user.clone()).unwrap_or_default();
        match name(element) {
            "enable" => {
                let resume = matches!(attr(element, "resume").as_deref(), Some("true" | "1"));
                let key = format!("sm-{user}-{id}");
                let more = if resume { format!(" id='{key}' resume='true'") } else { String::new() };
                if self.answer(id, ServerStep::Enabled, &format!("<enabled xmlns='urn:xmpp:sm:3'{more}/>"))
                    && let Some(session) = self.sessions.get_mut(&user)
                {
                    session.management = Some(ServerStreamManagement::new(resume.then_some(key)));
                }
            }
            "resume" => self.resume(id, &user, element, h.unwrap_or(0)),
            "r" => {
                self.truth.acks_asked += 1;
                let count = self.sessions.get(&user).and_then(|session| session.management.as_ref());
                let answer = format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", count.map_or(0, |sm| sm.received));
                self.bytes(id, answer.as_bytes());
            }
            _ => {
                let session = self.sessions.get_mut(&user);
                if let (Some(h), Some(sm)) = (h, session.and_then(|session| session.management.as_mut()))
                    && !sm.acknowledge(h)
                {
                    self.truth.wrong.push(format!("{user} acknowledges {h}, which was not sent"));
                }
            }
        }
    }

    fn resume(&mut self, id: usize, user: &str, element: &str, h: u32) {
        let previous = attr(element, "previd").unwrap_or_default();
        let session = self.sessions.get_mut(user);
        let Some(sm) = session
            .and_then(|session| session.management.as_mut())
            .filter(|sm| sm.key.as_ref() == Some(&previous))
        else {
            self.bytes(id, b"<failed xmlns='urn:xmpp:sm:3'><item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></failed>");
            return;
        };
        if !sm.acknowledge(h) {
            self.truth.wrong.push(format!("{user} resumes with {h}, which was not sent"));
        }
        let resumed = format!("<resumed xmlns='urn:xmpp:sm:3' previd='{previous}' h='{}'/>", sm.received);
        if self.answer(id, ServerStep::Resumed, &resumed) {
            self.take_over(id, user);
        }
    }
}
