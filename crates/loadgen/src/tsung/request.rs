//! `request` with `jabber` of Tsung scenarios: what is sent, and what is awaited.
//!
//! If a step of the plan measures the same thing (a roster, a ping, a message), it is used; everything else is raw XML
//! as Tsung writes it. Conditions on a response (`match`, `dyn_variable`) are evaluated by a raw step that sends
//! nothing and waits.
//!
//! Not implemented: conditions on login steps, which end the session anyway when they fail.
//!
//! # Pitfalls
//!
//! `presence:subscribe`, `iq:roster:rename` and `iq:roster:remove` refer to the contact of the last `iq:roster:add`,
//! whereas `destination="previous"` refers to the last message.

use super::names::{REQUESTS, refused_protocol, refused_request};
use super::reader::{TsungReader, XmlNode, attribute, child, elements};
use super::session_flow::{SessionFlow, StreamKnowledge};
use crate::plan::{
    AckMode, Destination, MatchAction, MessageBody, MessageKind, PlanStep, PresenceKind, ResponseChecks,
    RosterChange, StanzaPattern, TemplatePart, TextTemplate, nearest,
};

/// Response that a request waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TsungAck {
    Nothing,
    Packet,
    Expression(String),
    Everybody,
}

impl TsungAck {
    pub(super) fn ack(self) -> AckMode {
        match self {
            Self::Nothing | Self::Everybody => AckMode::None,
            Self::Packet => AckMode::Any,
            Self::Expression(regex) => AckMode::Match(StanzaPattern::Regex(regex)),
        }
    }
}

/// A request under construction.
pub(super) struct TsungRequest<'n> {
    pub(super) node: XmlNode<'n>,
    pub(super) kind: &'n str,
    pub(super) subst: bool,
    pub(super) wait: TsungAck,
    pub(super) checks: ResponseChecks,
}

impl TsungReader<'_> {
    pub(super) fn request(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let subst = self
            .choice(node, "subst", &["true", "false", "all_except_body"])
            .is_some_and(|value| value != "false");
        if let Some(tag) = attribute(node, "tag") {
            self.note(node, format!("tag \"{tag}\" is ignored: all requests are sent"));
        }
        let checks = self.checks(node, flow);
        let mut found = None;
        for inner in elements(node) {
            let name = inner.tag_name().name();
            match name {
                "match" | "dyn_variable" => {}
                "jabber" if found.is_none() => found = Some(inner),
                "jabber" => self.error(inner, name, "a request must contain exactly one jabber"),
                _ => match refused_protocol(name) {
                    Some(reason) => {
                        self.error(inner, name, reason);
                        return;
                    }
                    None => self.unknown(inner, ["jabber", "match", "dyn_variable"]),
                },
            }
        }
        match found {
            Some(jabber) => self.jabber(jabber, flow, subst, checks, steps),
            None if elements(node)
                .all(|inner| ["match", "dyn_variable"].contains(&inner.tag_name().name())) =>
            {
                self.error(node, "request", "needs jabber");
            }
            None => {}
        }
    }

    fn jabber(
        &mut self,
        node: XmlNode<'_>,
        flow: &mut SessionFlow,
        subst: bool,
        checks: ResponseChecks,
        steps: &mut Vec<PlanStep>,
    ) {
        self.known_attributes(node);
        let kind = attribute(node, "type").unwrap_or("chat");
        if let Some(reason) = refused_request(kind) {
            self.error(node, kind, reason);
            return;
        } else if !REQUESTS.contains(&kind) {
            let near = nearest(kind, REQUESTS);
            self.error(node, "jabber", format!("type=\"{kind}\": unknown request{near}"));
            return;
        }
        let Some(wait) = self.wait(node, kind, flow) else { return };
        if flow.stream == StreamKnowledge::Closed && kind != "connect" {
            self.error(node, kind, "the stream is not open here; put connect first");
            flow.stream = StreamKnowledge::Unknown;
        }
        if !flow.started {
            flow.started = true;
            if let Some(inner) = child(node, "xmpp_authenticate") {
                self.authenticate(inner, flow, subst);
            }
        }
        let request = TsungRequest { node, kind, subst, wait, checks };
        match kind {
            "connect" | "starttls" | "close" | "register" => self.stream_step(request, flow, steps),
            _ if kind.starts_with("auth_") && kind != "auth_get" => self.login_step(request, flow, steps),
            _ if kind.starts_with("presence") => self.presence(request, flow, steps),
            _ if kind.starts_with("iq:roster:") || kind == "ping" => self.query(request, flow, steps),
            "chat" => self.chat(request, flow, steps),
            _ if kind.starts_with("muc:") => self.room(request, flow, steps),
            _ if kind.starts_with("pubsub:") => self.pubsub(request, flow, steps),
            _ => self.raw(request, flow, steps),
        }
    }

    fn wait(&mut self, node: XmlNode<'_>, kind: &str, flow: &mut SessionFlow) -> Option<TsungAck> {
        if let Some(regex) = node.attribute("regexp") {
            self.regex(node, regex);
            flow.regexp = Some(regex.to_owned());
        }
        let ack = match attribute(node, "ack") {
            None => "no_ack",
            Some(_) => self.choice(node, "ack", &["local", "no_ack", "global", "parse", "bidi_ack"])?,
        };
        Some(match ack {
            "local" => TsungAck::Packet,
            "global" => TsungAck::Everybody,
            "parse" => flow.regexp.clone().map_or(TsungAck::Packet, TsungAck::Expression),
            "bidi_ack" if kind != "starttls" => {
                self.error(node, kind, "ack=\"bidi_ack\" ends only with starttls");
                return None;
            }
            _ => TsungAck::Nothing,
        })
    }

    fn stream_step(&mut self, request: TsungRequest<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let node = request.node;
        match request.kind {
            "connect" => {
                if attribute(node, "version").is_some_and(|version| version != "1.0") {
                    self.note(node, "connect: version is ignored: streams always have version 1.0");
                }
                // An open stream has been reopened by the step before.
                if flow.stream != StreamKnowledge::Open {
                    steps.push(PlanStep::Connect);
                }
                flow.stream = StreamKnowledge::Open;
            }
            "starttls" => {
                self.certificate(node);
                steps.push(PlanStep::StartTls);
            }
            "register" => {
                flow.login = true;
                if flow.credentials.is_some() {
                    self.error(
                        node,
                        "register",
                        "this version creates only accounts with the names of the run",
                    );
                }
                steps.push(PlanStep::Register);
            }
            _ => {
                flow.stream = StreamKnowledge::Closed;
                steps.push(PlanStep::Disconnect);
            }
        }
        self.no_checks(&request);
        self.everybody(&request.wait, steps);
    }

    fn login_step(&mut self, request: TsungRequest<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let credentials = flow.credentials.clone();
        let sasl = |mechanism: &str, credentials| PlanStep::Authenticate {
            mechanisms: vec![mechanism.to_owned()],
            credentials,
        };
        flow.login |= ["auth_sasl", "auth_sasl_external", "auth_set_plain"].contains(&request.kind);
        flow.anonymous |= request.kind == "auth_sasl_anonymous";
        let step = match request.kind {
            "auth_sasl" => sasl("PLAIN", credentials),
            "auth_sasl_anonymous" => sasl("ANONYMOUS", None),
            "auth_sasl_external" => sasl("EXTERNAL", credentials),
            "auth_set_plain" => {
                PlanStep::LegacyAuthenticate { resource: self.resource(&request, flow), credentials }
            }
            "auth_sasl_bind" => PlanStep::Bind { resource: Some(self.resource(&request, flow)) },
            _ => PlanStep::OpenSession,
        };
        steps.push(step);
        self.no_checks(&request);
        self.everybody(&request.wait, steps);
    }

    fn resource(&mut self, request: &TsungRequest<'_>, flow: &mut SessionFlow) -> TextTemplate {
        let resource = request.node.attribute("resource").unwrap_or("tsung");
        self.text(request.node, flow, resource, request.subst)
    }

    /// Notes that conditions on a login step are ignored.
    fn no_checks(&mut self, request: &TsungRequest<'_>) {
        let kind = request.kind;
        if let Some((name, _)) = request.checks.captures.first() {
            let text = format!("dyn_variable {name}: this version does not store responses to {kind}");
            self.error(request.node, kind, text);
        }
        if !request.checks.matches.is_empty() {
            let text = format!("match on {kind} is ignored: the step checks its response itself");
            self.note(request.node, text);
        }
    }

    pub(super) fn everybody(&mut self, wait: &TsungAck, steps: &mut Vec<PlanStep>) {
        if *wait == TsungAck::Everybody {
            steps.push(self.barrier());
        }
    }

    fn presence(&mut self, request: TsungRequest<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let node = request.node;
        let mut show = None;
        let mut status = None;
        if ["presence:broadcast", "presence:directed"].contains(&request.kind) {
            // Tsung does not substitute it either.
            let value = |name, default| Some(TextTemplate::literal(node.attribute(name).unwrap_or(default)));
            show = value("show", "chat");
            status = value("status", "Available");
        }
        let (kind, to) = match request.kind {
            "presence:final" => (PresenceKind::Unavailable, None),
            "presence:directed" => (PresenceKind::Available, Some(Destination::Online)),
            "presence:roster" => (PresenceKind::Subscribed, Some(self.destination(node, flow))),
            "presence:subscribe" => {
                self.needs_contact(&request, flow);
                (PresenceKind::Subscribe, Some(Destination::LastContact))
            }
            _ => (PresenceKind::Available, None),
        };
        steps.push(PlanStep::Presence { kind, to, show, status });
        self.answer(request, true, steps);
    }

    fn query(&mut self, request: TsungRequest<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let node = request.node;
        // Tsung does not substitute the group; its default is that of the manual.
        let group = Some(TextTemplate::literal(node.attribute("group").unwrap_or("Tsung Group")));
        let step = match request.kind {
            "iq:roster:get" => PlanStep::Roster,
            "iq:roster:add" => {
                flow.contact = true;
                let to = self.destination(node, flow);
                let name = Some(TextTemplate(vec![TemplatePart::Destination]));
                PlanStep::RosterSet { change: RosterChange::Set, to, name, group }
            }
            "iq:roster:rename" => {
                self.needs_contact(&request, flow);
                let name = Some(TextTemplate::literal("Tsung Testuser"));
                PlanStep::RosterSet { change: RosterChange::Set, to: Destination::LastContact, name, group }
            }
            "iq:roster:remove" => {
                self.needs_contact(&request, flow);
                let to = Destination::LastContact;
                PlanStep::RosterSet { change: RosterChange::Remove, to, name: None, group: None }
            }
            _ => PlanStep::Ping {
                to: (attribute(node, "destination") == Some("online")).then_some(Destination::Online),
            },
        };
        let waits_itself = request.checks == ResponseChecks::default()
            && matches!(request.wait, TsungAck::Packet | TsungAck::Everybody);
        if waits_itself {
            steps.push(step);
            self.everybody(&request.wait, steps);
        } else {
            steps.push(PlanStep::NoWait(Box::new(step)));
            self.answer(request, true, steps);
        }
    }

    /// Notes that no contact has been added to the roster before.
    fn needs_contact(&mut self, request: &TsungRequest<'_>, flow: &SessionFlow) {
        if !flow.contact {
            let text = format!("{}: no iq:roster:add precedes it, so nothing is sent", request.kind);
            self.note(request.node, text);
        }
    }

    fn chat(&mut self, request: TsungRequest<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let node = request.node;
        let to = self.destination(node, flow);
        flow.message = true;
        let body = match node.attribute("data") {
            Some(data) => {
                if data.contains(['<', '&']) {
                    self.note(node, "chat: XML in data is sent as text; use raw to send XML");
                }
                MessageBody::Text(self.text(node, flow, data, request.subst))
            }
            None => MessageBody::Size(self.count(node, "size").unwrap_or(0)),
        };
        let plain = request.checks == ResponseChecks::default();
        let ack = if plain { request.wait.clone().ack() } else { AckMode::None };
        steps.push(PlanStep::Message { to, body, kind: MessageKind::Chat, ack });
        if plain {
            self.everybody(&request.wait, steps);
        } else {
            self.answer(request, true, steps);
        }
    }

    /// Appends the wait for the response, once the request is sent.
    pub(super) fn answer(&mut self, request: TsungRequest<'_>, sent: bool, steps: &mut Vec<PlanStep>) {
        let TsungRequest { node, kind, wait, checks, .. } = request;
        let conditions = checks != ResponseChecks::default();
        if conditions && wait == TsungAck::Nothing {
            self.note(
                node,
                format!(
                    "{kind}: match and dyn_variable are ignored: ack=\"no_ack\" does not wait for a response"
                ),
            );
            return;
        }
        if sent && checks.matches.iter().any(|check| check.action == MatchAction::Loop) {
            let text = "match do=\"loop\": this version repeats only raw, privacy and auth_get requests";
            self.error(node, kind, text);
        }
        match wait {
            TsungAck::Nothing => {}
            TsungAck::Everybody => {
                if conditions {
                    self.note(
                        node,
                        format!("{kind}: match and dyn_variable are ignored with ack=\"global\""),
                    );
                }
                steps.push(self.barrier());
            }
            wait if conditions => {
                steps.push(PlanStep::Raw { xml: TextTemplate::default(), ack: wait.ack(), checks })
            }
            wait => {
                let what = match wait {
                    TsungAck::Expression(regex) => StanzaPattern::Regex(regex),
                    _ => StanzaPattern::Stanza { name: None, kind: None, namespace: None },
                };
                steps.push(PlanStep::WaitFor { what, timeout_ms: self.settings.answer_timeout_ms });
            }
        }
    }

    /// Requests sent as literal XML: `raw`, `privacy:*`, `auth_get`; and `wait`, which sends nothing.
    fn raw(&mut self, request: TsungRequest<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let literal = |text: &str| TemplatePart::Literal(text.to_owned());
        let xml = match request.kind {
            "wait" => {
                if request.wait == TsungAck::Nothing {
                    self.note(request.node, "wait is ignored with ack=\"no_ack\", which waits for nothing");
                    return;
                }
                self.answer(request, false, steps);
                return;
            }
            "raw" => match request.node.attribute("data") {
                Some(data) => self.text(request.node, flow, data, request.subst),
                None => {
                    self.note(request.node, "raw without data sends nothing");
                    TextTemplate::default()
                }
            },
            "auth_get" => TextTemplate(vec![
                literal("<iq id='"),
                TemplatePart::Unique,
                literal("' type='get'><query xmlns='jabber:iq:auth'><username>"),
                TemplatePart::User,
                literal("</username></query></iq>"),
            ]),
            "privacy:get_names" => TextTemplate(vec![
                literal("<iq from='"),
                TemplatePart::User,
                literal("@"),
                TemplatePart::Domain,
                literal("/tsung' type='get' id='getlist'><query xmlns='jabber:iq:privacy'/></iq>"),
            ]),
            _ => TextTemplate(vec![
                literal("<iq from='"),
                TemplatePart::User,
                literal("@"),
                TemplatePart::Domain,
                literal("/tsung' type='set' id='active1'><query xmlns='jabber:iq:privacy'><active name='"),
                TemplatePart::User,
                literal("@"),
                TemplatePart::Domain,
                literal("_list'/></query></iq>"),
            ]),
        };
        let conditions = request.checks != ResponseChecks::default();
        if conditions && matches!(request.wait, TsungAck::Nothing | TsungAck::Everybody) {
            let text = format!(
                "{}: match and dyn_variable are ignored: the step does not wait for a response",
                request.kind
            );
            self.note(request.node, text);
            steps.push(PlanStep::Raw { xml, ack: AckMode::None, checks: ResponseChecks::default() });
        } else {
            steps.push(PlanStep::Raw { xml, ack: request.wait.clone().ack(), checks: request.checks });
        }
        self.everybody(&request.wait, steps);
    }

    /// Destination of a request.
    fn destination(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow) -> Destination {
        const WORDS: [&str; 5] = ["online", "offline", "random", "unique", "previous"];
        match attribute(node, "destination").unwrap_or("random") {
            "online" => Destination::Online,
            "offline" => Destination::Offline,
            "random" => Destination::Random,
            "unique" => Destination::First,
            "previous" => {
                if !flow.message {
                    self.note(node, "destination=\"previous\": no message precedes it");
                }
                Destination::Previous
            }
            jid if jid.contains('@') => Destination::Jid(TextTemplate::literal(jid)),
            user => {
                let near = nearest(user, WORDS);
                self.note(node, format!("destination=\"{user}\" is interpreted as the name of a user{near}"));
                Destination::Jid(TextTemplate(vec![
                    TemplatePart::Literal(format!("{user}@")),
                    TemplatePart::Domain,
                ]))
            }
        }
    }
}
