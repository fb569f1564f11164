//! Tests of every command on its interfaces: XEP-0050 and HTTP here, on nodes in the same state; the admin socket and
//! HTTP in `node.rs`, on a running node. The same values must result in the same condition or note on each interface,
//! and a caller without permission for a command must be refused on all of them.
//!
//! # Pitfalls
//!
//! A new command fails this test until it has a line in [`VALID_VALUES`].

use serde_json::{Map, Value, json};
use testkit::NodeClient;
use throng_api::auth::TokenScope;
use throng_commands::{Command, CommandField};

use crate::common::{ADMIN, ApiFixture, api_request};
use crate::fixture;

type Values = &'static [(&'static str, &'static [&'static str])];

/// Valid values for each command by name, in an order in which all commands can be executed.
pub(crate) const VALID_VALUES: &[(&str, Values)] = &[
    (
        "add-user",
        &[("user", &["mercutio@example.com"]), ("password", &["Queen Mab"]), ("email", &["m@example.com"])],
    ),
    ("change-user-password", &[("user", &["mercutio@example.com"]), ("password", &["a plague"])]),
    ("disable-user", &[("user", &["mercutio@example.com", "juliet@example.com"])]),
    ("get-disabled-users-num", &[]),
    ("get-disabled-users-list", &[]),
    ("reenable-user", &[("user", &["mercutio@example.com", "juliet@example.com"])]),
    ("get-user-roster", &[("user", &["mercutio@example.com"])]),
    ("get-user-lastlogin", &[("user", &["mercutio@example.com", "romeo@example.com"])]),
    ("user-stats", &[("user", &["romeo@example.com"])]),
    ("get-registered-users-num", &[]),
    ("get-registered-users-list", &[("max-items", &["25"])]),
    ("get-online-users-num", &[]),
    ("get-online-users-list", &[]),
    ("get-active-users-num", &[]),
    ("get-active-users", &[]),
    ("get-idle-users-num", &[]),
    ("get-idle-users", &[]),
    // One who is offline: a connection without a task does not describe its session.
    ("get-sessions-list", &[("user", &["juliet@example.com"])]),
    ("get-nodes-list", &[]),
    ("create-room", &[("room", &["heath@conference.example.com"]), ("owner", &["juliet@example.com"])]),
    ("get-rooms-list", &[("search", &["heath"])]),
    ("get-room-occupants", &[("room", &["heath@conference.example.com"])]),
    (
        "set-room-affiliation",
        &[
            ("room", &["heath@conference.example.com"]),
            ("user", &["romeo@example.com"]),
            ("affiliation", &["member"]),
        ],
    ),
    ("get-room-affiliations", &[("room", &["heath@conference.example.com"])]),
    (
        "destroy-room",
        &[("room", &["heath@conference.example.com"]), ("alternate", &["moor@conference.example.com"])],
    ),
    ("create-pubsub-node", &[("node", &["princely_musings"]), ("owner", &["juliet@example.com"])]),
    ("get-pubsub-nodes-list", &[]),
    ("get-pubsub-node", &[("node", &["princely_musings"])]),
    ("get-pubsub-subscribers", &[("node", &["princely_musings"])]),
    ("get-pubsub-items", &[("node", &["princely_musings"])]),
    ("get-pubsub-statistics", &[]),
    (
        "set-pubsub-affiliation",
        &[("node", &["princely_musings"]), ("user", &["romeo@example.com"]), ("affiliation", &["publisher"])],
    ),
    ("purge-pubsub-node", &[("node", &["princely_musings"])]),
    ("delete-pubsub-node", &[("node", &["princely_musings"])]),
    ("announce", &[("text", &["Rebellious subjects,", "enemies to peace"])]),
    ("set-motd", &[("text", &["Good morrow"])]),
    ("edit-motd", &[("text", &["Good night"])]),
    ("delete-motd", &[]),
    ("set-welcome", &[("text", &["Welcome"])]),
    ("delete-welcome", &[]),
    ("end-user-session", &[("user", &["romeo@example.com"])]),
    ("get-password-policy", &[]),
    ("change-password-policy", &[("length", &["9"]), ("different", &["3"]), ("no-name", &["0"])]),
    ("delete-user", &[("user", &["mercutio@example.com"])]),
    ("edit-admin", &[("admin", &["admin@example.com", "juliet@example.com"])]),
    ("restart", &[("delay", &["60"])]),
    ("drain", &[("rate", &["50"]), ("other-host", &["xmpp2.example.com:5222"])]),
    ("shutdown", &[("delay", &["90"]), ("text", &["Adieu"])]),
];

/// Values that are always refused.
pub(crate) const INVALID_VALUES: &[(&str, Values)] = &[
    ("add-user", &[]),
    ("add-user", &[("user", &["juliet@example.com"]), ("password", &["x"])]),
    ("add-user", &[("user", &["a@elsewhere.example"]), ("password", &["x"])]),
    ("add-user", &[("user", &["b@example.com/x"]), ("password", &["x"])]),
    ("add-user", &[("user", &["b@example.com"]), ("password", &["x"]), ("password-verify", &["y"])]),
    ("change-user-password", &[("user", &["nobody@example.com"]), ("password", &["x"])]),
    ("delete-user", &[("user", &["nobody@example.com"])]),
    ("disable-user", &[("user", &["juliet@example.com", "nobody@example.com"])]),
    ("reenable-user", &[("user", &["not an address"])]),
    ("end-user-session", &[("user", &["nobody@example.com"])]),
    ("get-user-roster", &[]),
    ("get-user-lastlogin", &[("user", &["nobody@example.com"])]),
    ("user-stats", &[("user", &["a@example.com", "b@example.com"])]),
    ("change-password-policy", &[("length", &["0"]), ("different", &["3"]), ("no-name", &["0"])]),
    ("change-password-policy", &[("length", &["8"]), ("different", &["3"]), ("no-name", &["perhaps"])]),
    ("edit-admin", &[("admin", &["nobody@example.com"])]),
    ("restart", &[("delay", &["0"])]),
    ("drain", &[("rate", &["0"])]),
    ("drain", &[("other-host", &["romeo@example.com"])]),
    ("shutdown", &[("delay", &["soon"])]),
    ("get-registered-users-list", &[("max-items", &["-1"])]),
    ("get-sessions-list", &[("node", &["elsewhere"])]),
    ("create-room", &[("room", &["juliet@example.com"]), ("owner", &["juliet@example.com"])]),
    ("get-room-occupants", &[("room", &["nowhere@conference.example.com"])]),
    ("get-room-affiliations", &[("room", &["nowhere@conference.example.com"])]),
    ("set-room-affiliation", &[("room", &["heath@conference.example.com"]), ("affiliation", &["friend"])]),
    ("destroy-room", &[("room", &["nowhere@conference.example.com"])]),
    ("get-pubsub-node", &[("node", &["nowhere"])]),
    ("delete-pubsub-node", &[("node", &["nowhere"])]),
    ("purge-pubsub-node", &[("node", &["nowhere"])]),
    ("set-pubsub-affiliation", &[("node", &["princely_musings"]), ("affiliation", &["friend"])]),
    ("get-sessions-list", &[("after", &["nobody"])]),
];

/// Result of a command: the condition of its error, a refused value (a note in XMPP, XEP-0050, section 3.3, and
/// interfaces name fields differently), or its note and the texts of its values.
#[derive(Debug, PartialEq, Eq)]
enum CommandResult {
    Condition(String),
    Value,
    Done { note: String, texts: Vec<String> },
}

impl CommandResult {
    fn of(condition: &str) -> CommandResult {
        match condition {
            "bad-request" | "not-acceptable" | "item-not-found" => CommandResult::Value,
            other => CommandResult::Condition(other.to_owned()),
        }
    }
}

/// JSON for the fields of a command.
pub(crate) fn body(values: Values) -> Value {
    let members = values.iter().map(|(name, list)| {
        let value = if list.len() == 1 { json!(list[0]) } else { json!(list) };
        ((*name).to_owned(), value)
    });
    Value::Object(members.collect::<Map<_, _>>())
}

async fn http(fixture: &ApiFixture, secret: &str, name: &str, values: Values) -> CommandResult {
    let line = format!("POST /api/v1/commands/{name}");
    let answer = api_request(&line).bearer(secret).json(body(values)).send_to(fixture).await;
    fixture.engine.run_tasks();
    if answer.status != 200 {
        return CommandResult::of(&answer.problem().1);
    }
    let mut json = answer.json();
    let members = json.as_object_mut().unwrap();
    let note = members.remove("note").and_then(|n| n.as_str().map(str::to_owned)).unwrap_or_default();
    let mut texts = Vec::new();
    members.values().for_each(|value| gather(value, &mut texts));
    texts.sort();
    CommandResult::Done { note, texts }
}

fn gather(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Number(number) => out.push(number.to_string()),
        Value::Bool(on) => out.push(u8::from(*on).to_string()),
        Value::Array(list) => list.iter().for_each(|value| gather(value, out)),
        Value::Object(map) => map.values().for_each(|value| gather(value, out)),
        Value::Null => {}
    }
}

fn var(command: &Command, name: &str) -> &'static str {
    let field: Option<&CommandField> = command.input.iter().find(|field| field.name == name);
    field.unwrap_or_else(|| panic!("{} has no field {name}", command.name)).var
}

fn xmpp(client: &NodeClient, command: &Command, values: Values) -> CommandResult {
    let fields: String = values
        .iter()
        .map(|(name, list)| {
            let list: String = list.iter().map(|value| format!("<value>{value}</value>")).collect();
            format!("<field var='{}'>{list}</field>", var(command, name))
        })
        .collect();
    // A form is submitted even without values: no further form is requested.
    let form = match command.input.is_empty() {
        true => String::new(),
        false => format!("<x xmlns='jabber:x:data' type='submit'>{fields}</x>"),
    };
    let request = format!(
        "<iq type='set' to='example.com' id='1'><command xmlns='http://jabber.org/protocol/commands' node='{}' \
         action='execute'>{form}</command></iq>",
        command.node
    );
    let answers = client.request(&request);
    let answer = answers.iter().find(|a| a.starts_with("<iq")).unwrap_or_else(|| panic!("{answers:?}"));
    // An empty value is one, too.
    let answer = answer.replace("<value/>", "<value></value>");
    if let Some((_, error)) = answer.split_once("<error ") {
        let name = error.split('<').nth(1).unwrap();
        return CommandResult::of(name.split([' ', '/', '>']).next().unwrap());
    }
    assert!(answer.contains("status='completed'"), "{} is not done: {answer}", command.name);
    if answer.contains("<note type='error'>") {
        return CommandResult::Value;
    }
    let between = |open: &str, close: &str| -> Vec<String> {
        answer.split(open).skip(1).filter_map(|rest| rest.split(close).next()).map(unescape).collect()
    };
    let note = between("<note type='info'>", "</note>").pop().unwrap_or_default();
    let mut texts: Vec<String> = answer
        .split("<field ")
        .skip(1)
        .filter(|f| !f.starts_with("var='FORM_TYPE'"))
        .flat_map(|f| {
            f.split("</field>")
                .next()
                .unwrap()
                .split("<value>")
                .skip(1)
                .map(|v| unescape(v.split("</value>").next().unwrap()))
                .collect::<Vec<_>>()
        })
        .collect();
    texts.sort();
    CommandResult::Done { note, texts }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// A node with a session of an administrator and one of a user.
async fn begin() -> (ApiFixture, NodeClient, NodeClient) {
    let fixture = fixture().await;
    for user in ["romeo", "juliet"] {
        fixture.account(&format!("{user}@example.com"), "x").await;
    }
    let admin = fixture.engine.connect("admin", "console");
    let romeo = fixture.engine.connect("romeo", "orchard");
    (fixture, admin, romeo)
}

fn commands(fixture: &ApiFixture) -> Vec<&'static Command> {
    let host = fixture.engine.node.host("example.com").unwrap();
    throng_commands::commands_of(&host).iter().map(|entry| entry.command).collect()
}

#[tokio::test]
async fn every_command_has_the_same_result_over_xmpp_and_http() {
    let (by_xmpp, admin, _romeo) = begin().await;
    let (by_http, _admin, _juliet) = begin().await;
    let password_or_prompt = by_http.token("admin", &[TokenScope::Admin]).await;
    let all = commands(&by_xmpp);
    let mut names: Vec<&str> = all.iter().map(|command| command.name).collect();
    let mut listed: Vec<&str> = VALID_VALUES.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    listed.sort_unstable();
    assert_eq!(names, listed, "each command has one line in GOOD");
    let find = |name: &str| *all.iter().find(|command| command.name == name).unwrap();
    for (name, values) in INVALID_VALUES.iter().chain(VALID_VALUES).chain(INVALID_VALUES) {
        let one = xmpp(&admin, find(name), values);
        let other = http(&by_http, &password_or_prompt, name, values).await;
        match (&one, &other) {
            // A roster table has a form of its own in XMPP.
            (CommandResult::Done { note: a, .. }, CommandResult::Done { note: b, .. })
                if *name == "get-user-roster" =>
            {
                assert_eq!(a, b)
            }
            _ => assert_eq!(one, other, "{name} {values:?}"),
        }
        let good = VALID_VALUES
            .iter()
            .any(|g| std::ptr::eq(g, &(*name, *values)) || (g.0 == *name && g.1 == *values));
        assert_eq!(matches!(one, CommandResult::Done { .. }), good, "{name} {values:?} {one:?}");
    }
}

#[tokio::test]
async fn unauthorised_callers_are_refused_on_every_interface() {
    let (fixture, _admin, romeo) = begin().await;
    let reader = fixture.token("nothing", &[TokenScope::Messages]).await;
    for command in commands(&fixture) {
        let values = VALID_VALUES.iter().find(|(name, _)| *name == command.name).unwrap().1;
        let by_xmpp = xmpp(&romeo, command, values);
        assert_eq!(by_xmpp, CommandResult::Condition("forbidden".to_owned()), "{}", command.name);
        if command.needs() != TokenScope::Messages {
            let by_http = http(&fixture, &reader, command.name, values).await;
            assert_eq!(by_http, CommandResult::Condition("forbidden".to_owned()), "{}", command.name);
        }
    }
    assert!(romeo.session.is_available() || !romeo.session.is_ended());
    // The password of an ordinary user opens neither the console nor administrative functions.
    assert_eq!(fixture.try_sign_in("romeo@example.com", "x").await.problem(), (403, "forbidden".to_owned()));
    assert_eq!(
        fixture.engine.node.admins().iter().map(|a| a.as_str().to_owned()).collect::<Vec<_>>(),
        [ADMIN]
    );
    let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(500);
    for interface in ["xmpp", "http"] {
        let denied = log.iter().filter(|e| e.interface == interface && e.outcome == "forbidden").count();
        assert!(denied >= 20, "{denied} through {interface}");
    }
}
