//! Negotiation of a client's stream: RFC 6120, sections 4 to 7, RFC 3921 sessions, in-band registration before login
//! (XEP-0077, version 2.4), channel binding types (XEP-0440, version 0.4).
//!
//! SASL2 and its extensions are in [`super::fast`].
//!
//! # Pitfalls
//!
//! After STARTTLS nothing that was read in plaintext may be trusted; a byte after `<proceed/>` ends the login.

use sasl::Mechanism;
use sasl::client::Gs2;
use stanza::Head;
use stanza::kind::{IqType, StanzaKind};
use xml::{NamespaceContext, Ns, Tree};

use super::connection::LIMITS;
use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::{LOGGED_IN, MANAGEABLE, PAUSED, SESSION_OPEN, ServerFeatures, WaitState};
use crate::clock::now_us;
use crate::measure::{Counter, Timing};
use crate::plan::{AccountSource, StreamTransport, TextTemplate};
use crate::sasl::{ClientExchange, SaslError, can_bind, choose, from_base64, parse_mechanism, to_base64};

const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";
const SM: &str = "urn:xmpp:sm:3";
/// Parts of a stream header before and after the domain.
const HEADER: (&[u8], &[u8]) = (
    b"<?xml version='1.0'?><stream:stream to='",
    b"' version='1.0' xml:lang='en' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
);

impl WorkerEngine<'_> {
    /// Sends a stream header and waits for features.
    pub(super) fn open_stream(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        user.scanner = xml::Scanner::new();
        user.wait = WaitState::Features;
        user.login().since = now_us();
        if let Some(bosh) = &mut user.bosh {
            bosh.wants_stream();
            self.mark_dirty(slot);
            return self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        }
        let web = self.plan.target.web.transport == StreamTransport::WebSocket;
        let (begin, end) = if web { super::websocket::OPEN } else { HEADER };
        user.out.extend_from_slice(begin);
        xml::escape::attr(&self.plan.target.domain, &mut user.out);
        user.out.extend_from_slice(end);
        self.mark_dirty(slot);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        self.prove_token_at_once(slot);
    }

    /// Handles the server's stream header.
    pub(super) fn opened(&mut self, slot: UserSlot, tag: &[u8]) {
        match NamespaceContext::from_open_tag(tag, &LIMITS) {
            Ok(scope) => self.users[slot].scope = scope,
            Err(error) => self.invalid_xml(slot, &error),
        }
    }

    /// Handles stream features.
    pub(super) fn features(&mut self, slot: UserSlot, bytes: &[u8]) {
        let now = now_us();
        let user = &mut self.users[slot];
        if user.wait != WaitState::Features {
            return;
        }
        let scope = user.scope.clone();
        let features = match read_features(bytes, &scope) {
            Ok(features) => features,
            Err(error) => return self.invalid_xml(slot, &error),
        };
        let login = user.login();
        let since = login.since;
        login.sasl2 = false;
        login.features = features;
        let resuming = login.resuming;
        let manageable = login.features.management;
        let offers_login = !login.features.mechanisms.is_empty();
        user.set(MANAGEABLE, manageable);
        // The first features of a session over HTTP are the response to its creation.
        let begins = self.plan.target.web.transport.is_web() && offers_login;
        self.record.time(if begins { Timing::Initiate } else { Timing::Features }, now - since);
        if begins {
            self.record.add(Counter::InitiateBytes, self.answer_bytes as u64);
        }
        self.record_acceptable(slot, now - since);
        if self.needs_starttls(slot) {
            return self.ask_starttls(slot);
        }
        if resuming {
            return self.continue_resumption(slot);
        }
        self.resume_program(slot, now);
    }

    /// Requests STARTTLS.
    pub(super) fn ask_starttls(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        if !user.login().features.starttls {
            return self.login_failed(slot, "login:no-starttls", "the server does not offer STARTTLS");
        }
        user.wait = WaitState::Proceed;
        user.out.extend_from_slice(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
        self.mark_dirty(slot);
    }

    /// Starts SASL with the strongest mechanism that is offered and allowed.
    pub(super) fn authenticate(
        &mut self,
        slot: UserSlot,
        wanted: &[String],
        credentials: Option<&(TextTemplate, TextTemplate)>,
    ) {
        let mut wanted: Vec<Mechanism> = wanted.iter().filter_map(|name| parse_mechanism(name)).collect();
        let anonymous = matches!(self.plan.accounts.source, AccountSource::Anonymous { .. });
        if wanted.is_empty() && anonymous {
            wanted.push(Mechanism::Anonymous);
        }
        let (name, password) = self.credentials(slot, credentials);
        let user = &mut self.users[slot];
        let (exporter, end_point) = match &user.socket {
            Some(socket) => (socket.tls_exporter(), socket.server_end_point()),
            None => (None, None),
        };
        let login = user.login();
        let offered = login.features.mechanisms.iter().map(String::as_str);
        let types: Option<Vec<&str>> =
            login.features.bindings.as_ref().map(|types| types.iter().map(String::as_str).collect());
        let can_bind = can_bind(exporter.is_some(), end_point.is_some(), types.as_deref(), &wanted);
        let Some(choice) = choose(offered, &wanted, can_bind) else {
            let wanted: Vec<&str> = wanted.iter().map(|mechanism| mechanism.name()).collect();
            let detail = match wanted.as_slice() {
                [] => "the server offers no SASL mechanism that the generator supports".to_owned(),
                wanted => format!("the server offers none of the requested mechanisms {}", wanted.join(", ")),
            };
            return self.login_failed(slot, "login:no-mechanism", &detail);
        };
        let binding = if choice.mechanism.hash().is_some() {
            choice.binding(exporter, end_point, types.as_deref())
        } else {
            Gs2::None
        };
        let begun = ClientExchange::begin(choice.mechanism, &name, &password, None, binding, &sasl::nonce());
        let (exchange, initial) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.login_failed(slot, "login:credentials", &error.to_string()),
        };
        let mut auth = String::with_capacity(256);
        auth.push_str("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='");
        auth.push_str(choice.mechanism.name());
        auth.push_str("'>");
        to_base64(&initial, "=", &mut auth);
        auth.push_str("</auth>");
        let user = &mut self.users[slot];
        user.wait = WaitState::Sasl;
        let login = user.login();
        login.exchange = Some(exchange);
        login.mechanism = choice.mechanism.name();
        login.since = now_us();
        user.out.extend_from_slice(auth.as_bytes());
        self.mark_dirty(slot);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Name and password of a user; empty for anonymous ones.
    pub(super) fn credentials(
        &mut self,
        slot: UserSlot,
        given: Option<&(TextTemplate, TextTemplate)>,
    ) -> (String, String) {
        match given {
            Some((name, password)) => (self.text(slot, name), self.text(slot, password)),
            None => {
                let account = self.users[slot].account;
                let mut name = String::new();
                self.names.name(account, &mut name);
                (name, self.names.password(account))
            }
        }
    }

    /// Whether the server has SASL and does not offer XEP-0078 logins. These are then not tried: before SASL the server
    /// ends the stream on any stanza (RFC 6120, section 4.9.3.12).
    pub(super) fn wants_sasl(&self, slot: UserSlot) -> bool {
        let user = &self.users[slot];
        let features = user.login.as_ref().map(|login| &login.features);
        !user.is(LOGGED_IN) && features.is_some_and(|f| !f.legacy && !f.mechanisms.is_empty())
    }

    /// Logs in with XEP-0078 (version 2.5), section 3.1, with the plaintext password, in one request.
    pub(super) fn authenticate_legacy(
        &mut self,
        slot: UserSlot,
        resource: &TextTemplate,
        credentials: Option<&(TextTemplate, TextTemplate)>,
    ) {
        let resource = self.text(slot, resource);
        let (name, password) = self.credentials(slot, credentials);
        let number = self.begin_request(slot);
        let user = &mut self.users[slot];
        user.login().since = now_us();
        user.wait = WaitState::Answer(number);
        user.out.extend_from_slice(b"<iq type='set' id='");
        super::writer::request_id(b'L', number, 0, &mut user.out);
        user.out.extend_from_slice(b"'>");
        let mut writer = xml::Writer::new(&mut user.out);
        writer.start("query").xmlns("jabber:iq:auth");
        writer
            .text_element("username", &name)
            .text_element("password", &password)
            .text_element("resource", &resource)
            .end();
        writer.finish();
        user.out.extend_from_slice(b"</iq>");
        user.resource = resource.into();
        self.sent(slot, Counter::IqSent);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Handles an element that is not a stanza.
    pub(super) fn other(&mut self, slot: UserSlot, ns: &str, name: &str, bytes: &[u8]) {
        match (ns, name) {
            ("http://etherx.jabber.org/streams", "features") => self.features(slot, bytes),
            ("http://etherx.jabber.org/streams", "error") => self.stream_error(slot, bytes),
            (SASL | super::fast::SASL2, "challenge" | "success" | "failure") => self.sasl(slot, name, bytes),
            ("urn:ietf:params:xml:ns:xmpp-tls", "proceed") if self.users[slot].wait == WaitState::Proceed => {
                self.start_tls(slot, false);
            }
            ("urn:ietf:params:xml:ns:xmpp-tls", "failure") => {
                self.login_failed(slot, "login:tls", "the server refuses STARTTLS");
            }
            (SM, _) => self.management(slot, name, bytes),
            ("urn:ietf:params:xml:ns:xmpp-framing", "close") => self.connection_closed(slot, None),
            _ => {}
        }
    }

    fn stream_error(&mut self, slot: UserSlot, bytes: &[u8]) {
        let scope = self.users[slot].scope.clone();
        let condition = Tree::parse(bytes, &scope, &LIMITS)
            .ok()
            .and_then(|tree| tree.root().child_elements().next().map(|child| child.name().to_owned()));
        let condition = condition.as_deref().unwrap_or("unknown");
        self.record.error(&format!("stream:{condition}"));
        let user = &self.users[slot];
        if !user.is(LOGGED_IN) && user.wait != WaitState::Closing {
            self.login_failed(slot, "login:stream-error", &format!("the server returned {condition}"));
        }
    }

    fn sasl(&mut self, slot: UserSlot, name: &str, bytes: &[u8]) {
        let now = now_us();
        let user = &mut self.users[slot];
        if user.wait != WaitState::Sasl {
            return;
        }
        let scope = user.scope.clone();
        let Ok(tree) = Tree::parse(bytes, &scope, &LIMITS) else { return };
        if name == "failure" {
            let condition = tree.root().child_elements().next().map_or("unknown", |child| child.name());
            let kind = format!("login:{condition}");
            if user.login().sasl2 {
                // A token that is refused once is refused again.
                self.tokens.remove(&user.account);
            }
            return self.login_failed(slot, &kind, &format!("the server refuses the login: {condition}"));
        }
        if name == "success" && user.login().sasl2 {
            return self.sasl2_success(slot, bytes);
        }
        let data = match from_base64(tree.root().text().trim()) {
            Ok(data) => data,
            Err(error) => return self.login_failed(slot, "login:sasl", &error.to_string()),
        };
        let login = user.login.get_or_insert_default();
        let Some(exchange) = &mut login.exchange else { return };
        if login.challenge.is_some() {
            return self.login_failed(slot, "login:sasl", &SaslError::Unexpected.to_string());
        }
        if name == "challenge" {
            return match exchange.missing(&data, &self.keys) {
                Some(derivation) => self.derive(slot, data, derivation),
                None => self.answer_challenge(slot, &data),
            };
        }
        match exchange.success(&data) {
            Ok(()) => {
                let since = login.since;
                login.exchange = None;
                self.record.time(Timing::Authenticate, now.saturating_sub(since));
                self.record.add(Counter::AuthenticateBytes, self.answer_bytes as u64);
                self.record_acceptable(slot, now.saturating_sub(since));
                self.open_stream(slot);
            }
            Err(error) => self.login_failed(slot, "login:sasl", &error.to_string()),
        }
    }

    /// Answers a challenge whose key is available.
    pub(super) fn answer_challenge(&mut self, slot: UserSlot, challenge: &[u8]) {
        let user = &mut self.users[slot];
        let Some(login) = user.login.as_mut() else { return };
        let namespace = if login.sasl2 { super::fast::SASL2 } else { SASL };
        let Some(exchange) = login.exchange.as_mut() else { return };
        match exchange.challenge(challenge, &mut self.keys) {
            Ok(answer) => {
                let mut response = String::with_capacity(256);
                response.push_str("<response xmlns='");
                response.push_str(namespace);
                response.push_str("'>");
                to_base64(&answer, "", &mut response);
                response.push_str("</response>");
                user.out.extend_from_slice(response.as_bytes());
                self.mark_dirty(slot);
            }
            Err(error) => self.login_failed(slot, "login:sasl", &error.to_string()),
        }
    }

    /// Requests resource binding.
    pub(super) fn bind(&mut self, slot: UserSlot, resource: Option<&TextTemplate>) {
        let resource = resource.map(|text| self.text(slot, text));
        let number = self.begin_request(slot);
        let user = &mut self.users[slot];
        user.login().since = now_us();
        user.wait = WaitState::Answer(number);
        let mut out = std::mem::take(&mut user.out);
        out.extend_from_slice(b"<iq type='set' id='");
        super::writer::request_id(b'B', number, 0, &mut out);
        out.extend_from_slice(b"'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>");
        if let Some(resource) = resource {
            out.extend_from_slice(b"<resource>");
            xml::escape::text(&resource, &mut out);
            out.extend_from_slice(b"</resource>");
        }
        out.extend_from_slice(b"</bind></iq>");
        self.users[slot].out = out;
        self.sent(slot, Counter::IqSent);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Opens a session (RFC 3921).
    pub(super) fn open_session(&mut self, slot: UserSlot) {
        let number = self.begin_request(slot);
        let user = &mut self.users[slot];
        user.login().since = now_us();
        user.wait = WaitState::Answer(number);
        user.out.extend_from_slice(b"<iq type='set' id='");
        super::writer::request_id(b'S', number, 0, &mut user.out);
        user.out.extend_from_slice(b"'><session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></iq>");
        self.sent(slot, Counter::IqSent);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Creates or removes the account.
    pub(super) fn register(&mut self, slot: UserSlot, remove: bool) {
        let account = self.users[slot].account;
        let mut name = String::new();
        self.names.name(account, &mut name);
        let password = self.names.password(account);
        let number = self.begin_request(slot);
        let user = &mut self.users[slot];
        user.wait = WaitState::Answer(number);
        user.out.extend_from_slice(b"<iq type='set' id='");
        super::writer::request_id(if remove { b'U' } else { b'G' }, number, user.due, &mut user.out);
        user.out.extend_from_slice(b"'><query xmlns='jabber:iq:register'>");
        if remove {
            user.out.extend_from_slice(b"<remove/>");
        } else {
            user.out.extend_from_slice(b"<username>");
            xml::escape::text(&name, &mut user.out);
            user.out.extend_from_slice(b"</username><password>");
            xml::escape::text(&password, &mut user.out);
            user.out.extend_from_slice(b"</password>");
        }
        user.out.extend_from_slice(b"</query></iq>");
        self.sent(slot, Counter::IqSent);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Handles the response to a negotiation request: `B`, `L`, `S`, `G` or `U`.
    pub(super) fn negotiated(&mut self, slot: UserSlot, class: u8, head: &Head, bytes: &[u8]) {
        let now = now_us();
        let good = head.kind == StanzaKind::Iq(IqType::Result);
        let since = self.users[slot].login.as_ref().map_or(now, |login| login.since);
        match class {
            b'B' if good => {
                self.record.time(Timing::Bind, now - since);
                self.record.add(Counter::BindBytes, self.answer_bytes as u64);
                self.record_acceptable(slot, now - since);
                let needs_session = self.bound(slot, bytes);
                if needs_session {
                    return self.open_session(slot);
                }
                self.ready(slot, now);
            }
            b'L' if good => {
                self.record.time(Timing::Authenticate, now - since);
                self.record_acceptable(slot, now - since);
                self.ready(slot, now);
            }
            b'S' => {
                if good {
                    self.record.time(Timing::OpenSession, now - since);
                    self.record.add(Counter::SessionBytes, self.answer_bytes as u64);
                } else {
                    self.record.add(Counter::SessionErrors, 1);
                }
                self.users[slot].set(SESSION_OPEN, true);
                if self.users[slot].is(LOGGED_IN) {
                    self.resume_program(slot, now)
                } else {
                    self.ready(slot, now)
                }
            }
            b'G' => {
                let due = self.users[slot].due;
                let condition =
                    if good { None } else { Some(error_condition(bytes, &self.users[slot].scope)) };
                match condition.as_deref() {
                    None => self.record.time(Timing::Register, now.saturating_sub(due)),
                    // The account exists, which is what was wanted.
                    Some("conflict") => self.record.error("register:exists"),
                    Some(condition) => {
                        let detail = format!("the server refuses to register: {condition}");
                        return self.login_failed(slot, "register:refused", &detail);
                    }
                }
                self.resume_program(slot, now);
            }
            b'U' => {
                if !good {
                    self.record.error("unregister:refused");
                }
                self.resume_program(slot, now);
            }
            _ => {
                let condition = error_condition(bytes, &self.users[slot].scope);
                let kind = format!("login:{condition}");
                self.login_failed(slot, &kind, &format!("the server refuses: {condition}"));
            }
        }
    }

    /// Stores the bound address. Returns true if the server requires a session to be opened.
    fn bound(&mut self, slot: UserSlot, bytes: &[u8]) -> bool {
        let scope = self.users[slot].scope.clone();
        let address = Tree::parse(bytes, &scope, &LIMITS).ok().and_then(|tree| {
            let bind = tree.root().child("bind", Ns::Bind)?;
            let jid = bind.child("jid", Ns::Bind)?;
            jid::Jid::parse(jid.text().trim()).ok()
        });
        let user = &mut self.users[slot];
        if let Some(address) = address {
            user.resource = address.resource().unwrap_or_default().into();
            if matches!(self.plan.accounts.source, AccountSource::Anonymous { .. }) {
                user.extra().anonymous = address.local().map(Into::into);
            }
        } else {
            self.record.error("bind:no-address");
        }
        let user = &mut self.users[slot];
        user.login().features.session && !user.is(SESSION_OPEN)
    }

    /// Handles the end of negotiation.
    pub(super) fn ready(&mut self, slot: UserSlot, now: u64) {
        self.logged_in(slot, now);
        let user = &mut self.users[slot];
        user.login = None;
        user.set(PAUSED, false);
        self.resume_program(slot, now);
    }
}

/// Name of a stanza error's condition.
pub(super) fn error_condition(bytes: &[u8], scope: &NamespaceContext) -> String {
    let condition = Tree::parse(bytes, scope, &LIMITS).ok().and_then(|tree| {
        let error = tree.root().child_elements().find(|child| child.name() == "error")?;
        let named =
            error.child_elements().find(|child| child.ns_text() == "urn:ietf:params:xml:ns:xmpp-stanzas")?;
        Some(named.name().to_owned())
    });
    condition.unwrap_or_else(|| "unknown".to_owned())
}

fn read_features(bytes: &[u8], scope: &NamespaceContext) -> Result<ServerFeatures, xml::Error> {
    let tree = Tree::parse(bytes, scope, &LIMITS)?;
    let mut features = ServerFeatures { known: true, ..ServerFeatures::default() };
    for child in tree.root().child_elements() {
        match (child.ns_text(), child.name()) {
            ("urn:ietf:params:xml:ns:xmpp-tls", "starttls") => features.starttls = true,
            (SASL, "mechanisms") => {
                for mechanism in child.child_elements().filter(|inner| inner.name() == "mechanism") {
                    features.mechanisms.push(mechanism.text().trim().to_owned());
                }
            }
            (super::fast::SASL2, "authentication") => {
                for mechanism in child.child_elements().filter(|inner| inner.name() == "mechanism") {
                    features.sasl2.push(mechanism.text().trim().to_owned());
                }
            }
            ("http://jabber.org/features/iq-auth", "auth") => features.legacy = true,
            ("urn:xmpp:sasl-cb:0", "sasl-channel-binding") => {
                let types = child
                    .child_elements()
                    .filter_map(|inner| inner.attr("type").map(|name| name.into_owned()));
                features.bindings = Some(types.collect());
            }
            (SM, "sm") => features.management = true,
            ("urn:ietf:params:xml:ns:xmpp-session", "session") => {
                features.session = !child.child_elements().any(|inner| inner.name() == "optional");
            }
            _ => {}
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::read_features;
    use xml::NamespaceContext;

    #[test]
    fn stream_features_of_real_servers_are_parsed() {
        let prosody = b"<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>\
            <mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>PLAIN</mechanism>\
            <mechanism>SCRAM-SHA-1</mechanism></mechanisms></stream:features>";
        let features = read_features(prosody, &NamespaceContext::client()).unwrap();
        assert!(features.starttls && !features.session);
        assert_eq!(features.mechanisms, ["PLAIN", "SCRAM-SHA-1"]);
        let ejabberd = b"<stream:features><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>\
            <session xmlns='urn:ietf:params:xml:ns:xmpp-session'><optional/></session></stream:features>";
        assert!(!read_features(ejabberd, &NamespaceContext::client()).unwrap().session);
        let old =
            b"<stream:features><session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></stream:features>";
        assert!(read_features(old, &NamespaceContext::client()).unwrap().session);
    }
}
