//! Commands for administrators, and the command of section 8.7.

use throng_commands::{
    Caller, CommandError, CommandErrorKind, CommandOutput, FieldNaming, OutputValue, RawArguments,
    commands_of, run_command,
};

use super::*;

fn run(denmark: &Denmark, name: &str, values: &[(&str, &str)]) -> Result<CommandOutput, CommandError> {
    let host = denmark.engine.node.host("example.com").unwrap();
    let entry = commands_of(&host).by_name(name).unwrap().clone();
    let mut given = RawArguments::default();
    values.iter().for_each(|(key, value)| given.add(key, (*value).to_owned()));
    let input = entry.command.parse_input(&given, FieldNaming::Name)?;
    denmark.engine.block_on(run_command(&denmark.engine.node, &host, &entry, Caller::operator(), input))
}

/// The rows of a table, as text.
fn rows(output: &CommandOutput, field: &str) -> Vec<String> {
    let Some(OutputValue::Rows(rows)) = output.get(field) else { panic!("no rows") };
    rows.iter().map(|row| row.iter().flat_map(OutputValue::texts).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn nodes_are_created_listed_shown_and_deleted() {
    let denmark = Denmark::new();
    let (node, owner) = (("node", NODE), ("owner", "hamlet@example.com"));
    run(&denmark, "create-pubsub-node", &[node, owner]).unwrap();
    let reserved =
        run(&denmark, "create-pubsub-node", &[("node", crate::node::ROOT_NODE), owner]).unwrap_err();
    assert_eq!(reserved.kind, CommandErrorKind::NotAcceptable);
    let again = run(&denmark, "create-pubsub-node", &[node, owner]).unwrap_err();
    assert_eq!(again.kind, CommandErrorKind::Conflict);
    let (hamlet, francisco) = (denmark.connect("hamlet"), denmark.connect("francisco"));
    configure(&hamlet, &[("pubsub#title", "Musings"), ("pubsub#access_model", "authorize")]);
    create(&hamlet, "secret", &[("pubsub#access_model", "whitelist")]);
    publish(&hamlet, "1");
    publish(&hamlet, "2");
    subscribe(&francisco);
    subscribe(&hamlet);
    let listed = run(&denmark, "get-pubsub-nodes-list", &[]).unwrap();
    assert_eq!(rows(&listed, "nodes"), [format!("{NODE} Musings"), "secret ".to_owned()]);
    let page = run(&denmark, "get-pubsub-nodes-list", &[("max-items", "1")]).unwrap();
    assert_eq!(page.get("next").unwrap().texts().concat(), NODE);
    let page = run(&denmark, "get-pubsub-nodes-list", &[("after", NODE)]).unwrap();
    assert_eq!(rows(&page, "nodes"), ["secret "]);
    let shown = run(&denmark, "get-pubsub-node", &[node]).unwrap();
    assert_eq!(rows(&shown, "affiliations"), ["hamlet@example.com owner"]);
    assert!(rows(&shown, "config").contains(&"pubsub#title Musings".to_owned()));
    let counts: Vec<String> =
        ["items", "subscribers"].iter().map(|field| shown.get(field).unwrap().texts().concat()).collect();
    assert_eq!(counts, ["2", "2"]);
    let found = rows(&run(&denmark, "get-pubsub-subscribers", &[node]).unwrap(), "subscribers");
    assert_eq!(found, ["francisco@example.com", "hamlet@example.com"]);
    let found = rows(&run(&denmark, "get-pubsub-items", &[node, ("max-items", "1")]).unwrap(), "items");
    assert!(found.len() == 1 && found[0].starts_with("2 hamlet@example.com "), "{found:?}");
    hamlet.recv();
    run(&denmark, "delete-pubsub-node", &[node]).unwrap();
    denmark.engine.run_tasks();
    assert!(hamlet.recv().concat().contains(&format!("<delete node='{NODE}'/>")));
    for name in ["delete-pubsub-node", "get-pubsub-node", "get-pubsub-items", "get-pubsub-subscribers"] {
        assert_eq!(run(&denmark, name, &[node]).unwrap_err().kind, CommandErrorKind::NotFound, "{name}");
    }
    let wrong = run(&denmark, "create-pubsub-node", &[("node", "a\u{7}b"), owner]).unwrap_err();
    assert_eq!(wrong.kind, CommandErrorKind::NotAcceptable);
}

#[test]
fn section_8_7_an_owner_asks_for_pending_requests() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "authorize")]);
    let (horatio, bard) = (denmark.connect("horatio"), denmark.connect("bard"));
    subscribe(&horatio);
    subscribe(&bard);
    hamlet.recv();
    let command = |client: &NodeClient, content: &str| {
        client.request(&format!(
            "<iq type='set' to='{SERVICE}' id='r1'><command xmlns='http://jabber.org/protocol/commands' \
             node='http://jabber.org/protocol/pubsub#get-pending' action='execute'>{content}</command></iq>"
        ))
    };
    let shown = answer_of(command(&hamlet, ""));
    assert!(
        shown.contains("status='executing'")
            && shown.contains(&format!("<option><value>{NODE}</value></option>")),
        "{shown}"
    );
    assert_error(&answer_of(command(&horatio, "")), "cancel", "forbidden", "");
    let choose = |node: &str| form("subscribe_authorization", &[("pubsub#node", node)]);
    let received = command(&hamlet, &choose(NODE));
    assert!(answer_of(received.clone()).contains("status='completed'"));
    let asked = received.iter().filter(|one| one.contains("pubsub#allow")).count();
    assert_eq!(asked + hamlet.recv().len(), 2, "one for each");
    assert_error(&answer_of(command(&horatio, &choose(NODE))), "cancel", "forbidden", "");
    assert_error(&answer_of(command(&hamlet, &choose("elsewhere"))), "cancel", "item-not-found", "");
}

#[test]
fn publications_are_counted() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let read = || {
        let shown = run(&denmark, "get-pubsub-statistics", &[]).unwrap();
        ["nodes", "published", "per-minute"].map(|field| shown.get(field).unwrap().texts().concat())
    };
    assert_eq!(read(), ["1", "0", "0"]);
    publish(&hamlet, "1");
    set(
        &hamlet,
        &format!("<publish node='{NODE}'><item id='2'>{ENTRY}</item><item id='3'>{ENTRY}</item></publish>"),
    );
    let guest = denmark.connect("francisco");
    publish(&guest, "refused");
    assert_eq!(read(), ["1", "3", "3"]);
    denmark.engine.advance(61);
    assert_eq!(read(), ["1", "3", "0"]);
    // The root node of XEP-0248 is none of users.
    set(&guest, &format!("<subscribe jid='{}'/>", guest.bare()));
    let listed = run(&denmark, "get-pubsub-nodes-list", &[]).unwrap();
    assert_eq!(rows(&listed, "nodes").len(), 1);
}

#[test]
fn affiliations_are_set_and_items_are_removed() {
    let denmark = Denmark::new();
    let (hamlet, francisco) = (denmark.node(&[]), denmark.connect("francisco"));
    let node = ("node", NODE);
    let set = |user: &str, affiliation: &str| {
        let user = format!("{user}@example.com");
        run(&denmark, "set-pubsub-affiliation", &[node, ("user", &user), ("affiliation", affiliation)])
    };
    assert_error(&publish(&francisco, "1"), "auth", "forbidden", "");
    set("francisco", "publisher").unwrap();
    assert!(publish(&francisco, "1").contains("type='result'"));
    let refused = set("hamlet", "none").unwrap_err();
    assert!(
        refused.kind == CommandErrorKind::Conflict && refused.text.contains("the last owner"),
        "{refused:?}"
    );
    let refused = set("francisco", "member").unwrap_err();
    assert!(
        refused.kind == CommandErrorKind::Conflict && refused.text.contains("to none first"),
        "{refused:?}"
    );
    subscribe(&hamlet);
    hamlet.recv();
    run(&denmark, "purge-pubsub-node", &[node]).unwrap();
    denmark.engine.run_tasks();
    assert!(hamlet.recv().concat().contains(&format!("<purge node='{NODE}'/>")));
    configure(&hamlet, &[("pubsub#persist_items", "0")]);
    assert_eq!(run(&denmark, "purge-pubsub-node", &[node]).unwrap_err().kind, CommandErrorKind::Conflict);
    let elsewhere = ("node", "elsewhere");
    let missing = run(&denmark, "purge-pubsub-node", &[elsewhere]).unwrap_err();
    assert_eq!(missing.kind, CommandErrorKind::NotFound);
    let fields = [elsewhere, ("user", "a@b"), ("affiliation", "owner")];
    assert_eq!(
        run(&denmark, "set-pubsub-affiliation", &fields).unwrap_err().kind,
        CommandErrorKind::NotFound
    );
}
