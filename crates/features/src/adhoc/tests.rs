//! Tests of XEP-0050 with sample commands: without fields, with one stage, with three stages.

use base::lock::{RankedMutex, rank};
use jid::Jid;
use testkit::{NodeClient, TestNode, assert_same};
use throng_commands::{
    CommandCall, CommandField, CommandFieldKind, CommandFuture, CommandOutput, CurrentValues, OutputValue,
    RegisterCommands, Role,
};

use super::*;

const NS: &str = "http://jabber.org/protocol/commands";

static COUNT: CommandField = CommandField::new("count", "count", "Count", CommandFieldKind::Int(0, 9, &[]));
static ROWS: CommandField = CommandField::new(
    "services",
    "services",
    "Services",
    CommandFieldKind::Table(&[
        CommandField::new("service", "service", "Service", CommandFieldKind::Text),
        CommandField::new("level", "runlevel-1", "Single-User mode", CommandFieldKind::Text),
    ]),
);
static LIST: Command = Command {
    name: "list",
    node: "list",
    title: "List Services",
    doc: "Lists services.",
    output: &[COUNT, ROWS],
    ..Command::EMPTY
};
const SERVICE: CommandField = CommandField::new(
    "service",
    "service",
    "Service",
    CommandFieldKind::Choice(&[("httpd", "Web"), ("jabberd", "Chat")]),
)
.required();
const LEVEL: CommandField =
    CommandField::new("level", "runlevel", "Run level", CommandFieldKind::Int(1, 5, &[(1, "One")])).stage(1);
const SECRET: CommandField =
    CommandField::new("key", "key", "Key", CommandFieldKind::Secret).required().stage(2);
static CONFIG: Command = Command {
    name: "config",
    node: "config",
    title: "Configure Service",
    doc: "Configures a service.",
    form_type: "urn:test",
    input: &[SERVICE, LEVEL, SECRET],
    ..Command::EMPTY
};
const WHO: CommandField = CommandField::new("who", "accountjid", "Who", CommandFieldKind::Jid).required();
static GREET: Command = Command {
    name: "greet",
    node: "greet",
    title: "Greet",
    doc: "Greets somebody.",
    role: Role::Anyone,
    input: &[WHO],
    ..Command::EMPTY
};

static TEST: Feature = Feature {
    name: "test",
    declarations: &[&LIST, &CONFIG, &GREET],
    build: |builder| {
        builder.command(&LIST, |_: CommandCall| -> CommandFuture {
            let row =
                |a: &str, b: &str| vec![OutputValue::Text(a.to_owned()), OutputValue::Text(b.to_owned())];
            let rows = vec![row("httpd", "off"), row("jabberd", "on")];
            let output =
                CommandOutput::done().with(&COUNT, OutputValue::Int(2)).with(&ROWS, OutputValue::Rows(rows));
            Box::pin(std::future::ready(Ok(output)))
        });
        let present = |_: &Arc<Node>, _: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
            let present: Result<CurrentValues, CommandError> =
                Ok(vec![("service", vec!["jabberd".to_owned()])]);
            Box::pin(std::future::ready(present))
        };
        builder.command_with(&CONFIG, present, |call: CommandCall| -> CommandFuture {
            let done = match call.input.secret(&SECRET) {
                Some(key) if key.expose() == b"s3cr3t" => Ok(CommandOutput::with_note(format!(
                    "{} at {}",
                    call.input.text(&SERVICE).unwrap_or_default(),
                    call.input.int(&LEVEL)
                ))),
                _ => Err(CommandError::new(CommandErrorKind::Conflict, "wrong key")),
            };
            Box::pin(std::future::ready(done))
        });
        builder.command(&GREET, |call: CommandCall| -> CommandFuture {
            let done = call.input.jid(&WHO).map(|jid| CommandOutput::with_note(format!("hello, {jid}")));
            Box::pin(std::future::ready(done))
        });
    },
    ..Feature::EMPTY
};

fn engine() -> (TestNode, NodeClient) {
    let engine = TestNode::new(&[&crate::disco::FEATURE, &FEATURE, &TEST]);
    for user in ["admin", "romeo", "juliet@example.net"] {
        engine.create_user(user);
    }
    engine.node.set_admins([Jid::parse("admin@example.com").unwrap()]);
    let admin = engine.connect("admin", "globe");
    (engine, admin)
}

fn ask(client: &NodeClient, to: &str, attrs: &str, content: &str) -> String {
    let to = if to.is_empty() { String::new() } else { format!("to='{to}'") };
    let mut answer = client.request(&format!(
        "<iq type='set' {to} id='1'><command xmlns='{NS}' {attrs}>{content}</command></iq>"
    ));
    assert_eq!(answer.len(), 1, "{answer:?}");
    answer.pop().unwrap()
}

/// The session id of a reply.
fn id(answer: &str) -> String {
    answer.split("sessionid='").nth(1).expect(answer).split('\'').next().unwrap().to_owned()
}

fn submit(fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(v, t)| format!("<field var='{v}'><value>{t}</value></field>"));
    format!("<x xmlns='jabber:x:data' type='submit'>{}</x>", fields.collect::<String>())
}

/// Condition and specific condition of an error.
fn condition(answer: &str) -> String {
    let (_, error) = answer.split_once("<error ").expect(answer);
    let names = error.split('<').skip(1).map(|t| t.split([' ', '/', '>']).next().unwrap());
    names
        .filter(|n| !n.is_empty() && *n != "text" && *n != "error" && *n != "iq")
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn section_2_4_1_a_command_without_fields_completes_immediately() {
    let (_, admin) = engine();
    for to in ["example.com", "admin@example.com", ""] {
        let answer = ask(&admin, to, "node='list' action='execute'", "");
        let from = if to.is_empty() { String::new() } else { format!("from='{to}'") };
        assert_same(
            &[answer.replace(&id(&answer), "ID")],
            &[format!(
                "<iq type='result' {from} to='admin@example.com/globe' id='1'><command xmlns='{NS}' node='list' \
                 sessionid='ID' status='completed' xml:lang='en'><x xmlns='jabber:x:data' type='result'>\
                 <field var='count' label='Count'><value>2</value></field>\
                 <reported><field var='service' type='text-single' label='Service'/>\
                 <field var='runlevel-1' type='text-single' label='Single-User mode'/></reported>\
                 <item><field var='service'><value>httpd</value></field>\
                 <field var='runlevel-1'><value>off</value></field></item>\
                 <item><field var='service'><value>jabberd</value></field>\
                 <field var='runlevel-1'><value>on</value></field></item></x></command></iq>"
            )],
        );
        let again = ask(&admin, to, &format!("node='list' sessionid='{}'", id(&answer)), "");
        assert_eq!(condition(&again), "not-allowed session-expired", "{again}");
    }
}

#[test]
fn section_2_4_2_next_and_prev_move_between_stages() {
    let (_, admin) = engine();
    let first = ask(&admin, "example.com", "node='config'", "");
    let session = format!("node='config' sessionid='{}'", id(&first));
    assert_same(
        &[first.replace(&id(&first), "ID")],
        &[format!(
            "<iq type='result' from='example.com' to='admin@example.com/globe' id='1'><command xmlns='{NS}' \
             node='config' sessionid='ID' status='executing' xml:lang='en'><actions execute='next'><next/></actions>\
             <x xmlns='jabber:x:data' type='form'><title>Configure Service</title>\
             <instructions>Configures a service.</instructions>\
             <field var='FORM_TYPE' type='hidden'><value>urn:test</value></field>\
             <field var='service' type='list-single' label='Service'><required/><value>jabberd</value>\
             <option label='Web'><value>httpd</value></option><option label='Chat'><value>jabberd</value></option>\
             </field></x></command></iq>"
        )],
    );
    let say =
        |action: &str, content: &str| ask(&admin, "example.com", &format!("{session} {action}"), content);
    // There is no stage before the first, and a missing required field cannot be skipped.
    assert_eq!(condition(&say("action='prev'", "")), "bad-request bad-action");
    let httpd = submit(&[("service", "httpd")]);
    assert_eq!(condition(&say("action='complete'", &httpd)), "bad-request bad-action");
    assert_eq!(condition(&say("action='dance'", &httpd)), "bad-request malformed-action");
    assert_eq!(condition(&say("", "")), "bad-request bad-payload");
    assert_eq!(condition(&say("", &submit(&[("service", "smtpd")]))), "bad-request bad-payload");
    let second = say("", &httpd);
    assert!(second.contains("<actions execute='next'><prev/><next/></actions>"), "{second}");
    let back = say("action='prev'", "");
    assert!(back.contains("<required/><value>httpd</value>"), "remembered: {back}");
    say("action='next'", &httpd);
    let third = say("action='next'", &submit(&[("runlevel", "3")]));
    assert!(third.contains("<actions execute='complete'><prev/><complete/></actions>"), "{third}");
    assert!(third.contains("type='text-private'") && !third.contains("s3cr3t"));
    assert_eq!(condition(&say("action='next'", &submit(&[("key", "s3cr3t")]))), "bad-request bad-action");
    // The command refuses: the error does not repeat the values, and the client may retry.
    let refused = say("", &submit(&[("key", "t0psecret")]));
    assert_eq!(condition(&refused), "conflict");
    assert!(!refused.contains("t0psecret"), "{refused}");
    let done = say("action='complete'", &submit(&[("key", "s3cr3t")]));
    assert!(done.contains("status='completed'") && done.contains(">httpd at 3</note>"), "{done}");
    assert_eq!(condition(&say("", "")), "not-allowed session-expired");
}

#[test]
fn section_2_4_3_cancelling_ends_the_session() {
    let (engine, admin) = engine();
    let first = ask(&admin, "example.com", "node='config'", "");
    let session = format!("node='config' sessionid='{}' action='cancel'", id(&first));
    let answer = ask(&admin, "example.com", &session, "");
    assert!(answer.contains("status='canceled'"), "{answer}");
    assert_eq!(condition(&ask(&admin, "example.com", &session, "")), "not-allowed session-expired");
    // A session also expires.
    let late = ask(&admin, "example.com", "node='config'", "");
    engine.advance(600);
    let session = format!("node='config' sessionid='{}'", id(&late));
    let answer = ask(&admin, "example.com", &session, &submit(&[("service", "httpd")]));
    assert_eq!(condition(&answer), "not-allowed session-expired");
}

#[test]
fn a_session_is_valid_only_for_its_owner() {
    let (engine, admin) = engine();
    let attrs = format!("node='config' sessionid='{}'", id(&ask(&admin, "example.com", "node='config'", "")));
    let form = submit(&[("service", "httpd")]);
    let other = engine.connect("admin", "phone");
    for (client, to, attrs) in [
        (&other, "example.com", attrs.clone()),
        (&admin, "example.net", attrs.clone()),
        (&admin, "admin@example.com", attrs.clone()),
        (&admin, "example.com", attrs.replace("'config'", "'greet'")),
        (&admin, "example.com", "node='config' sessionid=''".to_owned()),
        (&admin, "example.com", format!("node='config' sessionid='{}'", "0".repeat(5_000))),
    ] {
        let answer = ask(client, to, &attrs, &form);
        assert_eq!(condition(&answer), "bad-request bad-sessionid", "{to} {attrs}");
    }
    assert!(ask(&admin, "example.com", &attrs, &form).contains("status='executing'"), "untouched");
}

#[test]
fn commands_to_other_addresses_are_refused() {
    let (_, admin) = engine();
    let romeo = "romeo@example.com";
    for to in ["example.com/globe", romeo, "nobody@example.com", "romeo@example.com/globe"] {
        let answer = ask(&admin, to, "node='list'", "");
        assert_eq!(condition(&answer), "service-unavailable", "{to}: {answer}");
    }
    assert_eq!(condition(&ask(&admin, "example.com", "node='lisp'", "")), "item-not-found");
    assert_eq!(condition(&ask(&admin, "example.com", "", "")), "bad-request");
    let node = "node='http://jabber.org/protocol/admin#get-user-password'";
    assert_eq!(condition(&ask(&admin, "example.com", node, "")), "feature-not-implemented");
}

#[test]
fn commands_require_permission() {
    let (engine, _) = engine();
    let romeo = engine.connect("romeo", "orchard");
    assert_eq!(condition(&ask(&romeo, "example.com", "node='list'", "")), "forbidden");
    assert_eq!(condition(&ask(&romeo, "", "node='config'", "")), "forbidden");
    // A command open to everybody, in one request, since its first form is complete.
    let who = submit(&[("accountjid", "juliet@example.net")]);
    assert!(ask(&romeo, "example.com", "node='greet'", &who).contains(">hello, juliet@example.net</note>"));
    let juliet = engine.connect("juliet@example.net", "balcony");
    assert_eq!(condition(&ask(&juliet, "example.com", "node='greet'", "")), "forbidden", "not from here");
    // A guest with an administrator's name is not an administrator.
    engine.node.set_admins([Jid::parse("guest@example.com").unwrap()]);
    let guest = engine.connect_anonymous("guest", "x");
    assert_eq!(condition(&ask(&guest, "example.com", "node='list'", "")), "forbidden");
    // Rights are checked on each request.
    engine.node.set_admins([Jid::parse("romeo@example.com").unwrap()]);
    let first = ask(&romeo, "example.com", "node='config'", "");
    engine.node.set_admins([]);
    let attrs = format!("node='config' sessionid='{}'", id(&first));
    assert_eq!(condition(&ask(&romeo, "example.com", &attrs, "")), "forbidden");
}

#[test]
fn section_2_2_commands_are_found_by_discovery() {
    let (engine, admin) = engine();
    let romeo = engine.connect("romeo", "orchard");
    let disco = |client: &NodeClient, to: &str, what: &str, node: &str| {
        client
            .request(&format!(
                "<iq type='get' to='{to}' id='1'>\
                 <query xmlns='http://jabber.org/protocol/disco#{what}' node='{node}'/></iq>"
            ))
            .pop()
            .unwrap()
    };
    for to in ["example.com", "admin@example.com"] {
        let items = disco(&admin, to, "items", NS);
        for (node, title) in [("list", "List Services"), ("config", "Configure Service"), ("greet", "Greet")]
        {
            assert!(items.contains(&format!("<item jid='{to}' node='{node}' name='{title}'/>")), "{items}");
        }
        assert!(disco(&admin, to, "info", NS).contains("category='automation' type='command-list'"));
    }
    let items = disco(&romeo, "example.com", "items", NS);
    assert!(items.contains("'greet'") && !items.contains("'config'"), "{items}");
    let info = disco(&admin, "example.com", "info", "config");
    assert!(info.contains("<identity category='automation' type='command-node' name='Configure Service'/>"));
    assert!(
        info.contains(&format!("<feature var='{NS}'/>")) && info.contains("<feature var='jabber:x:data'/>")
    );
    assert_eq!(condition(&disco(&romeo, "example.com", "info", "config")), "forbidden");
    assert_eq!(condition(&disco(&romeo, "example.com", "items", "config")), "forbidden");
    // Other users' accounts list no commands, and neither do resources of the domain.
    assert!(!disco(&romeo, "admin@example.com", "items", NS).contains("<item "));
    assert_eq!(condition(&disco(&admin, "example.com/x", "items", NS)), "item-not-found");
    let features = admin.request(
        "<iq type='get' to='example.com' id='1'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>",
    );
    assert!(features[0].contains(&format!("<feature var='{NS}'/>")));
}

#[test]
fn huge_and_broken_forms_are_refused() {
    let (_, admin) = engine();
    let many: Vec<(String, &str)> = (0..2_000).map(|n| (format!("f{n}"), "x")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(v, t)| (v.as_str(), *t)).collect();
    let twice = submit(&[("accountjid", "a@b"), ("accountjid", "c@d")]);
    let nameless = "<x xmlns='jabber:x:data' type='submit'><field><value>a@b</value></field></x>".to_owned();
    let odd = "<x xmlns='jabber:x:data' type='wild'/>".to_owned();
    let answer = ask(&admin, "example.com", "node='greet'", &submit(&[("accountjid", "a b@c")]));
    assert!(answer.contains("status='completed'") && answer.contains("<note type='error'>"), "{answer}");
    let empty = submit(&[("accountjid", "")]);
    for form in [submit(&many), twice, nameless, odd, empty, submit(&[])] {
        let answer = ask(&admin, "example.com", "node='greet'", &form);
        assert_eq!(condition(&answer), "bad-request bad-payload", "{}", &form[..200.min(form.len())]);
        assert!(answer.len() < 1_000, "nothing is sent back");
    }
}

/// Section 3.3: "If a command completes but fails, the responder MUST include at least one <note type='error'/>".
#[test]
fn a_command_that_fails_on_a_value_is_completed_with_a_note_and_its_session_ends() {
    let (_, admin) = engine();
    let attrs = format!("node='config' sessionid='{}'", id(&ask(&admin, "example.com", "node='config'", "")));
    // An intermediate stage: the session is unchanged.
    let answer = ask(&admin, "example.com", &attrs, &submit(&[("service", "ftpd")]));
    assert_eq!(condition(&answer), "bad-request bad-payload");
    ask(&admin, "example.com", &attrs, &submit(&[("service", "httpd")]));
    ask(&admin, "example.com", &attrs, &submit(&[("runlevel", "1")]));
    // A required field is missing (section 4.4): the client may submit the form again.
    let answer = ask(&admin, "example.com", &attrs, &submit(&[]));
    assert_eq!(condition(&answer), "bad-request bad-payload");
    // XEP-0133, section 5: a conflict is an error, and the client may submit another value.
    let answer = ask(&admin, "example.com", &attrs, &submit(&[("key", "wrong")]));
    assert_eq!(condition(&answer), "conflict");
    let long = "x".repeat(4_000);
    let answer = ask(&admin, "example.com", &attrs, &submit(&[("key", &long)]));
    assert!(answer.contains("type='result'") && answer.contains("status='completed'"), "{answer}");
    assert!(answer.contains("<note type='error'>") && !answer.contains("xxxx"), "{answer}");
    let answer = ask(&admin, "example.com", &attrs, &submit(&[("key", "s3cr3t")]));
    assert!(condition(&answer).ends_with("session-expired"), "{answer}");
}

#[test]
fn each_execution_is_logged_without_secrets() {
    use tracing::field::{Field as Name, Visit};
    #[derive(Default)]
    struct LogCapture(RankedMutex<Vec<String>, { rank::LOG }>);
    struct MessageVisitor(String);
    impl Visit for MessageVisitor {
        fn record_debug(&mut self, field: &Name, value: &dyn std::fmt::Debug) {
            self.0.push_str(&format!("{}={value:?} ", field.name()));
        }
    }
    impl tracing::Subscriber for LogCapture {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == "throng::audit"
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = MessageVisitor(String::new());
            event.record(&mut line);
            self.0.lock().push(line.0);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }
    let lines = Arc::new(LogCapture::default());
    let (engine, admin) = engine();
    let romeo = engine.connect("romeo", "orchard");
    tracing::subscriber::with_default(lines.clone(), || {
        ask(&admin, "example.com", "node='greet'", &submit(&[("accountjid", "juliet@example.net")]));
        let attrs =
            format!("node='config' sessionid='{}'", id(&ask(&admin, "example.com", "node='config'", "")));
        ask(&admin, "example.com", &attrs, &submit(&[("service", "httpd")]));
        ask(&admin, "example.com", &attrs, &submit(&[("runlevel", "1")]));
        ask(&admin, "example.com", &attrs, &submit(&[("key", "s3cr3t")]));
        ask(&romeo, "example.com", "node='list'", "");
    });
    let lines = lines.0.lock().clone();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, words) in lines.iter().zip([
        ["admin@example.com/globe", "greet", "juliet@example.net", "done"],
        ["admin@example.com/globe", "config", "xmpp", "done"],
        ["romeo@example.com/orchard", "list", "xmpp", "forbidden"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
        assert!(!line.contains("s3cr3t"), "{line}");
    }
}
