//! Steps that send something or wait for something: logins, rosters, presence, messages, raw stanzas.

use super::super::super::{
    Ack, Body, Checks, Match, MatchAction, MessageKind, Pattern, PresenceKind, RosterChange, Step, Text,
};
use super::super::reader::Section;
use super::{LARGEST_BODY, whole};

/// IQs wait for their answers unless `wait = "none"` says otherwise.
pub(super) fn unless_waiting(s: &Section<'_>, step: Step) -> Step {
    match s.get("wait").and_then(|n| n.word(&[("answer", true), ("none", false)])) {
        Some(false) => Step::NoWait(Box::new(step)),
        _ => step,
    }
}

pub(super) fn authenticate(s: &Section<'_>) -> Step {
    Step::Authenticate { mechanisms: mechanisms(s), credentials: credentials(s) }
}

pub(super) fn legacy_authenticate(s: &Section<'_>) -> Option<Step> {
    let credentials = credentials(s);
    let resource = s.need("resource", "resource = \"load\"").and_then(|n| n.template());
    Some(Step::LegacyAuthenticate { resource: resource?, credentials })
}

/// `user` and `password`, if they are not those of the account.
fn credentials(s: &Section<'_>) -> Option<(Text, Text)> {
    let user = s.get("user").and_then(|n| n.template());
    let password = s.get("password").and_then(|n| n.template());
    match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        _ => {
            s.wrong("needs both \"user\" and \"password\", or neither for those of the account");
            None
        }
    }
}

pub(super) fn mechanisms(s: &Section<'_>) -> Vec<String> {
    s.get("mechanisms").and_then(|n| n.texts()).unwrap_or_default()
}

pub(super) fn roster_change(s: &Section<'_>, change: RosterChange) -> Option<Step> {
    let to = s.need("to", "to = \"ring+1\"").and_then(|n| n.destination());
    let text = |key| s.get(key).and_then(|n| n.template());
    let (name, group) = match change {
        RosterChange::Set => (text("name"), text("group")),
        RosterChange::Remove => (None, None),
    };
    Some(unless_waiting(s, Step::RosterSet { change, to: to?, name, group }))
}

pub(super) fn presence(s: &Section<'_>) -> Step {
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
        s.wrong("of this kind needs \"to\", such as to = \"ring+1\"");
    }
    let show = s.get("show").and_then(|n| n.template());
    Step::Presence { kind, to, show, status: s.get("status").and_then(|n| n.template()) }
}

pub(super) fn message(s: &Section<'_>) -> Option<Step> {
    let to = s.need("to", "to = \"online\"").and_then(|n| n.destination());
    let kinds =
        [("chat", MessageKind::Chat), ("normal", MessageKind::Normal), ("headline", MessageKind::Headline)];
    let kind = s.get("kind").and_then(|n| n.word(&kinds)).unwrap_or_default();
    let ack = ack(s);
    let size = s.get("size");
    let text = s.get("text");
    if let (Some(_), Some(text)) = (&size, &text) {
        text.wrong("cannot stand beside \"size\"; keep one of the two");
    }
    let body = match text {
        Some(text) => Body::Text(text.template()?),
        None => Body::Size(size.and_then(|n| n.whole(0, LARGEST_BODY)).unwrap_or(100) as u32),
    };
    Some(Step::Message { to: to?, body, kind, ack })
}

fn ack(s: &Section<'_>) -> Ack {
    let Some(node) = s.get("wait") else { return Ack::None };
    if node.is_table() {
        let pattern = node.section().and_then(|section| {
            let pattern = pattern(&section);
            section.finish();
            pattern
        });
        return pattern.map_or(Ack::None, Ack::Match);
    }
    let words = [("none", 0), ("any", 1), ("answer", 2), ("delivery", 3), ("all", 4)];
    match node.word(&words) {
        Some(1) => Ack::Any,
        Some(2) => Ack::Answer,
        Some(3) => Ack::Delivery,
        Some(4) => Ack::All,
        _ => Ack::None,
    }
}

pub(super) fn raw(s: &Section<'_>) -> Option<Step> {
    let xml = s.need("xml", "xml = \"<presence/>\"").and_then(|n| n.template());
    let ack = ack(s);
    let mut checks = Checks::default();
    for node in s.get("check").and_then(|n| n.list()).unwrap_or_default() {
        checks.matches.extend(node.section().and_then(check));
    }
    if let Some(section) = s.get("keep").and_then(|n| n.section()) {
        for (variable, _, node) in section.entries() {
            checks.captures.extend(node.text().map(|regex| ((*variable).to_owned(), regex.to_owned())));
        }
    }
    if ack == Ack::None && (!checks.matches.is_empty() || !checks.captures.is_empty()) {
        s.wrong("checks an answer and does not wait for one; add wait = \"answer\" or wait = \"any\"");
    }
    Some(Step::Raw { xml: xml?, ack, checks })
}

fn check(s: Section<'_>) -> Option<Match> {
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
    Some(Match { regex: regex?, when, action: action?, max, pause_ms, name })
}

/// `stanza`, `type` and `namespace`; or `contains`; or `regex`.
fn pattern(s: &Section<'_>) -> Option<Pattern> {
    let contains = s.get("contains");
    let regex = s.get("regex");
    let text = |key| s.get(key).and_then(|n| n.text().map(str::to_owned));
    let (name, kind, namespace) = (text("stanza"), text("type"), text("namespace"));
    let stanza = name.is_some() || kind.is_some() || namespace.is_some();
    match (contains, regex, stanza) {
        (Some(text), None, false) => text.template().map(Pattern::Contains),
        (None, Some(regex), false) => regex.text().map(|r| Pattern::Regex(r.to_owned())),
        (None, None, true) => Some(Pattern::Stanza { name, kind, namespace }),
        _ => {
            s.wrong(
                "needs what to look for: \"stanza\" (with \"type\" and \"namespace\"), or \"contains\", or \"regex\"",
            );
            None
        }
    }
}

pub(super) fn wait_for(s: &Section<'_>) -> Option<Step> {
    let timeout_ms = s.get("timeout").and_then(|n| n.span_ms()).unwrap_or(60_000);
    Some(Step::WaitFor { what: pattern(s)?, timeout_ms })
}
