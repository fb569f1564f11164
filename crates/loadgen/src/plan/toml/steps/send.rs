//! Parser of steps that send or await something: logins, rosters, presence, messages, raw stanzas.

use super::super::super::{
    AckMode, MatchAction, MessageBody, MessageKind, PlanStep, PresenceKind, ResponseChecks, ResponseMatch,
    RosterChange, StanzaPattern, TextTemplate,
};
use super::super::reader::TomlSection;
use super::{LARGEST_BODY, whole};

/// IQs wait for their responses unless `wait = "none"` is given.
pub(super) fn unless_waiting(s: &TomlSection<'_>, step: PlanStep) -> PlanStep {
    match s.get("wait").and_then(|n| n.word(&[("answer", true), ("none", false)])) {
        Some(false) => PlanStep::NoWait(Box::new(step)),
        _ => step,
    }
}

pub(super) fn authenticate(s: &TomlSection<'_>) -> PlanStep {
    PlanStep::Authenticate { mechanisms: mechanisms(s), credentials: credentials(s) }
}

/// `fast` and `stream_management` select a SASL2 login.
pub(super) fn login(s: &TomlSection<'_>) -> Option<PlanStep> {
    let fast = s.get("fast").and_then(|n| n.boolean()).unwrap_or(false);
    let manage = s.get("stream_management");
    let resource = s.get("resource");
    if !fast {
        if let Some(node) = manage {
            node.error("belongs to a login with fast = true; elsewhere add the step \"stream_management\"");
        }
        return Some(PlanStep::Login {
            mechanisms: mechanisms(s),
            resource: resource.and_then(|n| n.template()),
        });
    }
    if let Some(node) = resource {
        node.error("cannot be chosen with fast = true, where the server assigns it (XEP-0386); remove it");
    }
    let manage = manage.and_then(|n| n.boolean()).unwrap_or(false);
    Some(PlanStep::FastLogin { mechanisms: mechanisms(s), manage })
}

pub(super) fn legacy_authenticate(s: &TomlSection<'_>) -> Option<PlanStep> {
    let credentials = credentials(s);
    let resource = s.need("resource", "resource = \"load\"").and_then(|n| n.template());
    Some(PlanStep::LegacyAuthenticate { resource: resource?, credentials })
}

/// `user` and `password`, if they differ from those of the account.
fn credentials(s: &TomlSection<'_>) -> Option<(TextTemplate, TextTemplate)> {
    let user = s.get("user").and_then(|n| n.template());
    let password = s.get("password").and_then(|n| n.template());
    match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        _ => {
            s.error("needs both \"user\" and \"password\", or neither for those of the account");
            None
        }
    }
}

pub(super) fn mechanisms(s: &TomlSection<'_>) -> Vec<String> {
    s.get("mechanisms").and_then(|n| n.texts()).unwrap_or_default()
}

pub(super) fn roster_change(s: &TomlSection<'_>, change: RosterChange) -> Option<PlanStep> {
    let to = s.need("to", "to = \"ring+1\"").and_then(|n| n.destination());
    let text = |key| s.get(key).and_then(|n| n.template());
    let (name, group) = match change {
        RosterChange::Set => (text("name"), text("group")),
        RosterChange::Remove => (None, None),
    };
    Some(unless_waiting(s, PlanStep::RosterSet { change, to: to?, name, group }))
}

pub(super) fn presence(s: &TomlSection<'_>) -> PlanStep {
    let kinds = [
        ("available", PresenceKind::Available),
        ("unavailable", PresenceKind::Unavailable),
        ("subscribe", PresenceKind::Subscribe),
        ("subscribed", PresenceKind::Subscribed),
        ("unsubscribe", PresenceKind::Unsubscribe),
        ("probe", PresenceKind::Probe),
    ];
    let kind = s.get("kind").and_then(|n| n.word(&kinds)).unwrap_or(PresenceKind::Available);
    let to = s.get("to").and_then(|n| n.destination());
    if to.is_none() && !matches!(kind, PresenceKind::Available | PresenceKind::Unavailable) {
        s.error("of this kind needs \"to\", such as to = \"ring+1\"");
    }
    let show = s.get("show").and_then(|n| n.template());
    let presence = PlanStep::Presence { kind, to, show, status: s.get("status").and_then(|n| n.template()) };
    match s.get("deliveries").and_then(|n| n.whole(1, i64::from(u32::MAX))) {
        Some(users) if kind == PresenceKind::Available => {
            PlanStep::Delivered { presence: Box::new(presence), users: users as u32 }
        }
        Some(_) => {
            s.error("of this kind is not measured; remove \"deliveries\"");
            presence
        }
        None => presence,
    }
}

pub(super) fn message(s: &TomlSection<'_>) -> Option<PlanStep> {
    let to = s.need("to", "to = \"online\"").and_then(|n| n.destination());
    let kinds =
        [("chat", MessageKind::Chat), ("normal", MessageKind::Normal), ("headline", MessageKind::Headline)];
    let kind = s.get("kind").and_then(|n| n.word(&kinds)).unwrap_or_default();
    let ack = ack(s);
    let body = body(s)?;
    Some(PlanStep::Message { to: to?, body, kind, ack })
}

/// `size` or `text`.
pub(super) fn body(s: &TomlSection<'_>) -> Option<MessageBody> {
    let size = s.get("size");
    let text = s.get("text");
    if let (Some(_), Some(text)) = (&size, &text) {
        text.error("cannot be combined with \"size\"; keep one of the two");
    }
    Some(match text {
        Some(text) => MessageBody::Text(text.template()?),
        None => MessageBody::Size(size.and_then(|n| n.whole(0, LARGEST_BODY)).unwrap_or(100) as u32),
    })
}

pub(super) fn ack(s: &TomlSection<'_>) -> AckMode {
    let Some(node) = s.get("wait") else { return AckMode::None };
    if node.is_table() {
        let pattern = node.section().and_then(|section| {
            let pattern = pattern(&section);
            section.finish();
            pattern
        });
        return pattern.map_or(AckMode::None, AckMode::Match);
    }
    let words = [("none", 0), ("any", 1), ("answer", 2), ("delivery", 3), ("all", 4), ("acknowledged", 5)];
    match node.word(&words) {
        Some(1) => AckMode::Any,
        Some(2) => AckMode::Answer,
        Some(3) => AckMode::Delivery,
        Some(4) => AckMode::All,
        Some(5) => AckMode::Acknowledged,
        _ => AckMode::None,
    }
}

pub(super) fn raw(s: &TomlSection<'_>) -> Option<PlanStep> {
    let xml = s.need("xml", "xml = \"<presence/>\"").and_then(|n| n.template());
    let ack = ack(s);
    let mut checks = ResponseChecks::default();
    for node in s.get("check").and_then(|n| n.list()).unwrap_or_default() {
        checks.matches.extend(node.section().and_then(check));
    }
    if let Some(section) = s.get("keep").and_then(|n| n.section()) {
        for (variable, _, node) in section.entries() {
            checks.captures.extend(node.text().map(|regex| ((*variable).to_owned(), regex.to_owned())));
        }
    }
    if ack == AckMode::None && (!checks.matches.is_empty() || !checks.captures.is_empty()) {
        s.error("checks a response but does not wait for one; add wait = \"answer\" or wait = \"any\"");
    }
    Some(PlanStep::Raw { xml: xml?, ack, checks })
}

fn check(s: TomlSection<'_>) -> Option<ResponseMatch> {
    let regex = s.need("regex", "regex = \"type='error'\"").and_then(|n| n.text().map(str::to_owned));
    let when = s.get("when").and_then(|n| n.word(&[("found", true), ("missing", false)])).unwrap_or(true);
    let actions = [
        ("continue", MatchAction::Continue),
        ("log", MatchAction::Log),
        ("loop", MatchAction::Loop),
        ("abort", MatchAction::Abort),
        ("abort_run", MatchAction::AbortRun),
        ("restart", MatchAction::Restart),
    ];
    let action = s.need("then", "then = \"abort\"").and_then(|n| n.word(&actions));
    let max = whole(&s, "max", 20, 1, i64::from(u32::MAX)) as u32;
    let pause_ms = s.get("pause").and_then(|n| n.span_ms()).unwrap_or(0);
    let name = s.get("name").and_then(|n| n.text().map(str::to_owned));
    s.finish();
    Some(ResponseMatch { regex: regex?, when, action: action?, max, pause_ms, name })
}

/// `stanza`, `type` and `namespace`; or `contains`; or `regex`.
fn pattern(s: &TomlSection<'_>) -> Option<StanzaPattern> {
    let contains = s.get("contains");
    let regex = s.get("regex");
    let text = |key| s.get(key).and_then(|n| n.text().map(str::to_owned));
    let (name, kind, namespace) = (text("stanza"), text("type"), text("namespace"));
    let stanza = name.is_some() || kind.is_some() || namespace.is_some();
    match (contains, regex, stanza) {
        (Some(text), None, false) => text.template().map(StanzaPattern::Contains),
        (None, Some(regex), false) => regex.text().map(|r| StanzaPattern::Regex(r.to_owned())),
        (None, None, true) => Some(StanzaPattern::Stanza { name, kind, namespace }),
        _ => {
            s.error(
                "requires a condition: \"stanza\" (with \"type\" and \"namespace\"), \"contains\" or \
                 \"regex\"",
            );
            None
        }
    }
}

pub(super) fn wait_for(s: &TomlSection<'_>) -> Option<PlanStep> {
    let timeout_ms = s.get("timeout").and_then(|n| n.span_ms()).unwrap_or(60_000);
    Some(PlanStep::WaitFor { what: pattern(s)?, timeout_ms })
}
