//! `request` with `jabber`: what is sent, and what is waited for.
//!
//! Where a step of the plan measures the same thing (a roster, a ping, a message), it is taken, and the rest is raw XML as
//! Tsung writes it. Conditions on an answer (`match`, `dyn_variable`) are looked at by a raw step that sends nothing and
//! waits. Left out: conditions on the steps of the login, which end the session by themselves when they fail.
//!
//! Trap: `presence:subscribe`, `iq:roster:rename` and `iq:roster:remove` are about the contact of the last
//! `iq:roster:add`, while `destination="previous"` is about the last message.

use super::flow::{Flow, Stream};
use super::names::{REQUESTS, refused_protocol, refused_request};
use super::reader::{Node, Reader, attribute, child, elements};
use crate::plan::{
    Ack, Body, Checks, Destination, MatchAction, MessageKind, Pattern, Piece, PresenceKind, RosterChange,
    Step, Text, nearest,
};

/// What a request waits for.
#[derive(Clone, Debug, PartialEq)]
enum Wait {
    Nothing,
    Packet,
    Expression(String),
    Everybody,
}

impl Wait {
    fn ack(self) -> Ack {
        match self {
            Self::Nothing | Self::Everybody => Ack::None,
            Self::Packet => Ack::Any,
            Self::Expression(regex) => Ack::Match(Pattern::Regex(regex)),
        }
    }
}

/// One request as it is put together.
struct Request<'n> {
    node: Node<'n>,
    kind: &'n str,
    subst: bool,
    wait: Wait,
    checks: Checks,
}

impl Reader<'_> {
    pub(super) fn request(&mut self, node: Node<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let subst = self
            .choice(node, "subst", &["true", "false", "all_except_body"])
            .is_some_and(|value| value != "false");
        if let Some(tag) = attribute(node, "tag") {
            self.note(node, format!("tag \"{tag}\" is ignored: no request is left out"));
        }
        let checks = self.checks(node, flow);
        let mut found = None;
        for inner in elements(node) {
            let name = inner.tag_name().name();
            match name {
                "match" | "dyn_variable" => {}
                "jabber" if found.is_none() => found = Some(inner),
                "jabber" => self.wrong(inner, name, "a request holds one jabber"),
                _ => match refused_protocol(name) {
                    Some(why) => {
                        self.wrong(inner, name, why);
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
                self.wrong(node, "request", "needs jabber");
            }
            None => {}
        }
    }

    fn jabber(
        &mut self,
        node: Node<'_>,
        flow: &mut Flow,
        subst: bool,
        checks: Checks,
        steps: &mut Vec<Step>,
    ) {
        self.known_attributes(node);
        let kind = attribute(node, "type").unwrap_or("chat");
        if let Some(why) = refused_request(kind) {
            self.wrong(node, kind, why);
            return;
        } else if !REQUESTS.contains(&kind) {
            let near = nearest(kind, REQUESTS);
            self.wrong(node, "jabber", format!("type=\"{kind}\": no such request{near}"));
            return;
        }
        let Some(wait) = self.wait(node, kind, flow) else { return };
        if flow.stream == Stream::Closed && kind != "connect" {
            self.wrong(node, kind, "the stream is not open here; connect comes first");
            flow.stream = Stream::Unknown;
        }
        if !flow.started {
            flow.started = true;
            if let Some(inner) = child(node, "xmpp_authenticate") {
                self.authenticate(inner, flow, subst);
            }
        }
        let request = Request { node, kind, subst, wait, checks };
        match kind {
            "connect" | "starttls" | "close" | "register" => self.stream_step(request, flow, steps),
            _ if kind.starts_with("auth_") && kind != "auth_get" => self.login_step(request, flow, steps),
            _ if kind.starts_with("presence") => self.presence(request, flow, steps),
            _ if kind.starts_with("iq:roster:") || kind == "ping" => self.query(request, flow, steps),
            "chat" => self.chat(request, flow, steps),
            _ => self.raw(request, flow, steps),
        }
    }

    fn wait(&mut self, node: Node<'_>, kind: &str, flow: &mut Flow) -> Option<Wait> {
        if let Some(regex) = node.attribute("regexp") {
            self.regex(node, regex);
            flow.regexp = Some(regex.to_owned());
        }
        let ack = match attribute(node, "ack") {
            None => "no_ack",
            Some(_) => self.choice(node, "ack", &["local", "no_ack", "global", "parse", "bidi_ack"])?,
        };
        Some(match ack {
            "local" => Wait::Packet,
            "global" => Wait::Everybody,
            "parse" => flow.regexp.clone().map_or(Wait::Packet, Wait::Expression),
            "bidi_ack" if kind != "starttls" => {
                self.wrong(node, kind, "ack=\"bidi_ack\" has an end with starttls only");
                return None;
            }
            _ => Wait::Nothing,
        })
    }

    fn stream_step(&mut self, request: Request<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let node = request.node;
        match request.kind {
            "connect" => {
                if attribute(node, "version").is_some_and(|version| version != "1.0") {
                    self.note(node, "connect: version is ignored, streams are of version 1.0");
                }
                // An open stream has been opened again by the step before.
                if flow.stream != Stream::Open {
                    steps.push(Step::Connect);
                }
                flow.stream = Stream::Open;
            }
            "starttls" => {
                self.certificate(node);
                steps.push(Step::StartTls);
            }
            "register" => {
                flow.login = true;
                if flow.credentials.is_some() {
                    self.wrong(
                        node,
                        "register",
                        "this version creates accounts with the names of the run only",
                    );
                }
                steps.push(Step::Register);
            }
            _ => {
                flow.stream = Stream::Closed;
                steps.push(Step::Disconnect);
            }
        }
        self.no_checks(&request);
        self.everybody(&request.wait, steps);
    }

    fn login_step(&mut self, request: Request<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let credentials = flow.credentials.clone();
        let sasl = |mechanism: &str, credentials| Step::Authenticate {
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
                Step::LegacyAuthenticate { resource: self.resource(&request, flow), credentials }
            }
            "auth_sasl_bind" => Step::Bind { resource: Some(self.resource(&request, flow)) },
            _ => Step::OpenSession,
        };
        steps.push(step);
        self.no_checks(&request);
        self.everybody(&request.wait, steps);
    }

    fn resource(&mut self, request: &Request<'_>, flow: &mut Flow) -> Text {
        let resource = request.node.attribute("resource").unwrap_or("tsung");
        self.text(request.node, flow, resource, request.subst)
    }

    /// Says that conditions on a step of the login are not looked at.
    fn no_checks(&mut self, request: &Request<'_>) {
        let kind = request.kind;
        if let Some((name, _)) = request.checks.captures.first() {
            let text = format!("dyn_variable {name}: this version keeps nothing of the answer to {kind}");
            self.wrong(request.node, kind, text);
        }
        if !request.checks.matches.is_empty() {
            let text = format!("match on {kind} is ignored: the step looks at its answer by itself");
            self.note(request.node, text);
        }
    }

    fn everybody(&mut self, wait: &Wait, steps: &mut Vec<Step>) {
        if *wait == Wait::Everybody {
            steps.push(self.barrier());
        }
    }

    fn presence(&mut self, request: Request<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let node = request.node;
        let mut show = None;
        let mut status = None;
        if ["presence:broadcast", "presence:directed"].contains(&request.kind) {
            // Not substituted by Tsung either.
            let value = |name, default| Some(Text::literal(node.attribute(name).unwrap_or(default)));
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
        steps.push(Step::Presence { kind, to, show, status });
        self.answer(request, true, steps);
    }

    fn query(&mut self, request: Request<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let node = request.node;
        // Tsung substitutes no group, and the group of the manual is its default.
        let group = Some(Text::literal(node.attribute("group").unwrap_or("Tsung Group")));
        let step = match request.kind {
            "iq:roster:get" => Step::Roster,
            "iq:roster:add" => {
                flow.contact = true;
                let to = self.destination(node, flow);
                let name = Some(Text(vec![Piece::Destination]));
                Step::RosterSet { change: RosterChange::Set, to, name, group }
            }
            "iq:roster:rename" => {
                self.needs_contact(&request, flow);
                let name = Some(Text::literal("Tsung Testuser"));
                Step::RosterSet { change: RosterChange::Set, to: Destination::LastContact, name, group }
            }
            "iq:roster:remove" => {
                self.needs_contact(&request, flow);
                let to = Destination::LastContact;
                Step::RosterSet { change: RosterChange::Remove, to, name: None, group: None }
            }
            _ => Step::Ping {
                to: (attribute(node, "destination") == Some("online")).then_some(Destination::Online),
            },
        };
        let waits_itself =
            request.checks == Checks::default() && matches!(request.wait, Wait::Packet | Wait::Everybody);
        if waits_itself {
            steps.push(step);
            self.everybody(&request.wait, steps);
        } else {
            steps.push(Step::NoWait(Box::new(step)));
            self.answer(request, true, steps);
        }
    }

    /// Notes that nobody was added to the roster before.
    fn needs_contact(&mut self, request: &Request<'_>, flow: &Flow) {
        if !flow.contact {
            let text = format!("{}: no iq:roster:add comes before it, so nothing is sent", request.kind);
            self.note(request.node, text);
        }
    }

    fn chat(&mut self, request: Request<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let node = request.node;
        let to = self.destination(node, flow);
        flow.message = true;
        let body = match node.attribute("data") {
            Some(data) => {
                if data.contains(['<', '&']) {
                    self.note(node, "chat: what is XML in data is sent as text; raw sends XML");
                }
                Body::Text(self.text(node, flow, data, request.subst))
            }
            None => Body::Size(self.count(node, "size").unwrap_or(0)),
        };
        let plain = request.checks == Checks::default();
        let ack = if plain { request.wait.clone().ack() } else { Ack::None };
        steps.push(Step::Message { to, body, kind: MessageKind::Chat, ack });
        if plain {
            self.everybody(&request.wait, steps);
        } else {
            self.answer(request, true, steps);
        }
    }

    /// Waits as the request says, once it has been sent.
    fn answer(&mut self, request: Request<'_>, sent: bool, steps: &mut Vec<Step>) {
        let Request { node, kind, wait, checks, .. } = request;
        let conditions = checks != Checks::default();
        if conditions && wait == Wait::Nothing {
            self.note(
                node,
                format!("{kind}: match and dyn_variable are ignored: ack=\"no_ack\" waits for no answer"),
            );
            return;
        }
        if sent && checks.matches.iter().any(|check| check.action == MatchAction::Loop) {
            let text = "match do=\"loop\": this version repeats raw, privacy and auth_get requests only";
            self.wrong(node, kind, text);
        }
        match wait {
            Wait::Nothing => {}
            Wait::Everybody => {
                if conditions {
                    self.note(
                        node,
                        format!("{kind}: match and dyn_variable are ignored with ack=\"global\""),
                    );
                }
                steps.push(self.barrier());
            }
            wait if conditions => steps.push(Step::Raw { xml: Text::default(), ack: wait.ack(), checks }),
            wait => {
                let what = match wait {
                    Wait::Expression(regex) => Pattern::Regex(regex),
                    _ => Pattern::Stanza { name: None, kind: None, namespace: None },
                };
                steps.push(Step::WaitFor { what, timeout_ms: self.settings.answer_timeout_ms });
            }
        }
    }

    /// What is XML as it stands: `raw`, `privacy:*`, `auth_get`; and `wait`, which sends nothing.
    fn raw(&mut self, request: Request<'_>, flow: &mut Flow, steps: &mut Vec<Step>) {
        let literal = |text: &str| Piece::Literal(text.to_owned());
        let xml = match request.kind {
            "wait" => {
                if request.wait == Wait::Nothing {
                    self.note(request.node, "wait with ack=\"no_ack\" waits for nothing and is ignored");
                    return;
                }
                self.answer(request, false, steps);
                return;
            }
            "raw" => match request.node.attribute("data") {
                Some(data) => self.text(request.node, flow, data, request.subst),
                None => {
                    self.note(request.node, "raw without data sends nothing");
                    Text::default()
                }
            },
            "auth_get" => Text(vec![
                literal("<iq id='"),
                Piece::Unique,
                literal("' type='get'><query xmlns='jabber:iq:auth'><username>"),
                Piece::User,
                literal("</username></query></iq>"),
            ]),
            "privacy:get_names" => Text(vec![
                literal("<iq from='"),
                Piece::User,
                literal("@"),
                Piece::Domain,
                literal("/tsung' type='get' id='getlist'><query xmlns='jabber:iq:privacy'/></iq>"),
            ]),
            _ => Text(vec![
                literal("<iq from='"),
                Piece::User,
                literal("@"),
                Piece::Domain,
                literal("/tsung' type='set' id='active1'><query xmlns='jabber:iq:privacy'><active name='"),
                Piece::User,
                literal("@"),
                Piece::Domain,
                literal("_list'/></query></iq>"),
            ]),
        };
        let conditions = request.checks != Checks::default();
        if conditions && matches!(request.wait, Wait::Nothing | Wait::Everybody) {
            let text =
                format!("{}: match and dyn_variable are ignored: nothing waits for an answer", request.kind);
            self.note(request.node, text);
            steps.push(Step::Raw { xml, ack: Ack::None, checks: Checks::default() });
        } else {
            steps.push(Step::Raw { xml, ack: request.wait.clone().ack(), checks: request.checks });
        }
        self.everybody(&request.wait, steps);
    }

    /// Whom a request is for.
    fn destination(&mut self, node: Node<'_>, flow: &mut Flow) -> Destination {
        const WORDS: [&str; 5] = ["online", "offline", "random", "unique", "previous"];
        match attribute(node, "destination").unwrap_or("random") {
            "online" => Destination::Online,
            "offline" => Destination::Offline,
            "random" => Destination::Random,
            "unique" => Destination::First,
            "previous" => {
                if !flow.message {
                    self.note(node, "destination=\"previous\": no message comes before it");
                }
                Destination::Previous
            }
            jid if jid.contains('@') => Destination::Jid(Text::literal(jid)),
            user => {
                let near = nearest(user, WORDS);
                self.note(node, format!("destination=\"{user}\" is taken for the name of a user{near}"));
                Destination::Jid(Text(vec![Piece::Literal(format!("{user}@")), Piece::Domain]))
            }
        }
    }
}
