//! Tests of user search: the examples of XEP-0055, pages of XEP-0059, wildcards, and access.

use store::SearchableProfile;
use testkit::{NodeClient, TestNode, assert_same};

use super::*;

fn with(options: &[(&str, OptionValue)]) -> TestNode {
    let engine = TestNode::with_options(&FEATURE, options);
    for (user, first, last, nick) in [
        ("juliet", "Juliet", "Capulet", "JuliC"),
        ("tybalt", "Tybalt", "Capulet", "ty"),
        ("romeo", "Romeo", "Montague", ""),
        ("percent", "100%", "_Capulet*", ""),
        ("plain", "", "", ""),
    ] {
        engine.create_user(user);
        let searchable = SearchableProfile {
            name: format!("{first} {last}").trim().to_owned(),
            first: first.into(),
            last: last.into(),
            nick: nick.into(),
            email: format!("{user}@shakespeare.lit"),
        };
        let card = (!first.is_empty()).then(|| b"<vCard xmlns='vcard-temp'/>".to_vec());
        let jid = jid::Jid::parse(&format!("{user}@example.com")).unwrap();
        assert!(engine.block_on(engine.stores.vcards.put(jid.as_ref(), card, searchable, None)).unwrap());
    }
    engine.create_user("elsewhere@example.net");
    engine
}

fn client(engine: &TestNode) -> NodeClient {
    engine.connect("romeo", "home")
}

fn ask(client: &NodeClient, inner: &str) -> String {
    client
        .request(&format!(
            "<iq type='set' to='example.com' id='s'><query xmlns='jabber:iq:search'>{inner}</query></iq>"
        ))
        .remove(0)
}

fn result(inner: &str) -> String {
    format!(
        "<iq type='result' from='example.com' to='romeo@example.com/home' id='s'>\
         <query xmlns='jabber:iq:search'>{inner}</query></iq>"
    )
}

fn item(user: &str, first: &str, last: &str, nick: &str) -> String {
    format!(
        "<item jid='{user}@example.com'><first>{first}</first><last>{last}</last><nick>{nick}</nick>\
         <email>{user}@shakespeare.lit</email></item>"
    )
}

fn users(answer: &str) -> Vec<&str> {
    answer.split("<item jid='").skip(1).map(|rest| rest.split('@').next().unwrap()).collect()
}

fn set(inner: &str) -> String {
    format!("<set xmlns='http://jabber.org/protocol/rsm'>{inner}</set>")
}

#[test]
fn section_2_a_search_by_fields_returns_items() {
    let engine = with(&[]);
    let romeo = client(&engine);
    let form = romeo
        .request("<iq type='get' to='example.com' id='s'><query xmlns='jabber:iq:search'/></iq>")
        .remove(0);
    assert!(
        form.contains("</instructions><first/><last/><nick/><email/><x xmlns='jabber:x:data' type='form'>"),
        "{form}"
    );
    assert!(
        form.contains("<field var='FORM_TYPE' type='hidden'><value>jabber:iq:search</value></field>"),
        "{form}"
    );
    assert!(form.contains("<field var='nick' type='text-single' label='Nickname'/>"), "{form}");
    assert_same(
        &[ask(&romeo, "<last>capulet</last>")],
        &[result(
            &(item("juliet", "Juliet", "Capulet", "JuliC") + &item("tybalt", "Tybalt", "Capulet", "ty")),
        )],
    );
    assert_same(
        &[ask(&romeo, "<last>Capulet</last><first>Tyb</first>")],
        &[result(&item("tybalt", "Tybalt", "Capulet", "ty"))],
    );
    assert_same(&[ask(&romeo, "<last>Nobody</last>")], &[result("")]);
}

#[test]
fn section_3_a_search_by_form_returns_a_form() {
    let engine = with(&[]);
    let romeo = client(&engine);
    let submit = |fields: &str| format!("<x xmlns='jabber:x:data' type='submit'>{fields}</x>");
    let answer = ask(
        &romeo,
        &submit(
            "<field var='fn'><value>juliet c</value></field><field var='x-gender'><value>f</value></field>",
        ),
    );
    assert!(
        answer.contains(
            "<x xmlns='jabber:x:data' type='result'><field var='FORM_TYPE' type='hidden'>\
             <value>jabber:iq:search</value></field><reported><field var='jid' type='jid-single' label='Address'/>"
        ),
        "{answer}"
    );
    assert!(
        answer.contains(
            "<item><field var='jid'><value>juliet@example.com</value></field>\
             <field var='user'><value>juliet</value></field><field var='fn'><value>Juliet Capulet</value></field>"
        ),
        "{answer}"
    );
    assert_same(&[ask(&romeo, &submit("<field var='user'><value>zz</value></field>"))], &[result("")]);
    for bad in [
        submit("<field var='user'><value>a</value><value>b</value></field>"),
        submit("<field/>"),
        "<x xmlns='jabber:x:data' type='result'><field var='user'><value>a</value></field></x>".to_owned(),
    ] {
        assert!(ask(&romeo, &bad).contains("<not-acceptable "), "{bad}");
    }
}

#[test]
fn wildcards_are_matched_literally() {
    let engine = with(&[]);
    let romeo = client(&engine);
    for (term, found) in [
        ("<last>*</last>", vec![]),
        ("<last>%</last>", vec![]),
        ("<last>_</last>", vec!["percent"]),
        ("<last>Cap*</last>", vec![]),
        ("<last>C_pulet</last>", vec![]),
        ("<first>100%</first>", vec!["percent"]),
        ("<first>%</first>", vec![]),
        ("<first>10_</first>", vec![]),
        ("<first>\\</first>", vec![]),
        ("<first>'</first>", vec![]),
    ] {
        assert_eq!(users(&ask(&romeo, term)), found, "{term}");
    }
}

#[test]
fn a_search_for_nothing_is_refused_unless_it_may_list_all() {
    let romeo_of = |engine: &TestNode| client(engine);
    let engine = with(&[]);
    let romeo = romeo_of(&engine);
    for empty in
        ["", "<last/>", "<last>  </last>", "<x xmlns='jabber:x:data' type='submit'/>", "<other>x</other>"]
    {
        assert!(ask(&romeo, empty).contains("<not-acceptable "), "{empty}");
    }
    let engine = with(&[("list_all", OptionValue::Bool(true))]);
    let romeo = romeo_of(&engine);
    assert_eq!(users(&ask(&romeo, "")), ["juliet", "percent", "plain", "romeo", "tybalt"]);
}

#[test]
fn xep_0059_results_are_paged() {
    let engine = with(&[("list_all", OptionValue::Bool(true)), ("max_results", OptionValue::Int(2))]);
    let romeo = client(&engine);
    let page = |inner: &str| {
        let answer = ask(&romeo, &set(inner));
        let text = |name: &str| {
            let at = answer.find(&format!("<{name}>")).or_else(|| answer.find(&format!("<{name} index")));
            let rest = at.map(|at| &answer[at..]).unwrap_or_default();
            rest.split(['>', '<']).nth(2).unwrap_or_default().to_owned()
        };
        let tail = answer.split("rsm'>").nth(1).unwrap_or_default().to_owned();
        let found: Vec<String> = users(&answer).into_iter().map(str::to_owned).collect();
        (found, tail, text("last"))
    };
    let ends = |tail: &str| {
        let between = |a: &str, b: &str| {
            tail.split(a).nth(1).and_then(|r| r.split(b).next()).unwrap_or_default().to_owned()
        };
        (
            between("index='", "'"),
            between("'>", "</first>"),
            between("<last>", "</last>"),
            between("<count>", "<"),
        )
    };
    let (first, tail, _) = page("<max>2</max>");
    assert_eq!(first, ["juliet", "percent"]);
    let (index, one, two, count) = ends(&tail);
    assert_eq!((index.as_str(), count.as_str()), ("0", "5"));
    let (second, tail, _) = page(&format!("<max>2</max><after>{two}</after>"));
    assert_eq!((second, ends(&tail).0.as_str()), (vec!["plain".to_owned(), "romeo".to_owned()], "2"));
    let three = ends(&tail).1;
    assert_eq!(page(&format!("<max>2</max><before>{three}</before>")).0, ["juliet", "percent"]);
    assert_eq!(page(&format!("<max>2</max><before>{one}</before>")).0, Vec::<String>::new());
    let (last, tail, _) = page("<max>2</max><before/>");
    assert_eq!((last, ends(&tail).0.as_str()), (vec!["romeo".to_owned(), "tybalt".to_owned()], "3"));
    let (jump, tail, _) = page("<max>1</max><index>4</index>");
    assert_eq!((jump, ends(&tail).0.as_str()), (vec!["tybalt".to_owned()], "4"));
    assert_eq!(page("<max>0</max>").1, "<count>5</count></set></query></iq>");
    assert_eq!(page("<max>9</max><index>5</index>").1, "<count>5</count></set></query></iq>");
    assert_eq!(page("<max>1000</max>").0.len(), 2, "no more than the server gives");
    assert_same(&[ask(&romeo, &format!("<last>nobody</last>{}", set("<max>1</max>")))], &[result("")]);
    for (inner, condition) in [("<after>nowhere</after>", "item-not-found"), ("<max>x</max>", "bad-request")]
    {
        let answer = ask(&romeo, &set(inner));
        assert!(answer.contains(&format!("<{condition} ")), "{answer}");
    }
}

#[test]
fn results_are_limited_without_pages_as_well() {
    let engine = with(&[("max_results", OptionValue::Int(1))]);
    assert_eq!(users(&ask(&client(&engine), "<last>Capulet</last>")).len(), 1);
}

#[test]
fn a_page_is_cut_to_the_bytes_of_a_stanza() {
    let user = |name: &str| FoundUser {
        jid: jid::Jid::parse(&format!("{name}@example.com")).unwrap(),
        shown: SearchableProfile { nick: "'".repeat(100), ..SearchableProfile::default() },
        cursor: name.to_owned(),
    };
    let cut = |max_bytes: u32, is_backward: bool| {
        let mut users = ["a", "b", "c"].map(user).to_vec();
        cut_page(&mut users, max_bytes, is_backward);
        users.into_iter().map(|user| user.cursor).collect::<String>()
    };
    let one = u32::try_from(written_bytes(&user("a"))).unwrap();
    for (max_bytes, forward, backward) in
        [(3 * one, "abc", "abc"), (3 * one - 1, "ab", "bc"), (one, "a", "c"), (0, "a", "c")]
    {
        assert_eq!((&*cut(max_bytes, false), &*cut(max_bytes, true)), (forward, backward), "{max_bytes}");
    }
    cut_page(&mut Vec::new(), 0, true);
    let reply = SearchReply { users: vec![user("a")], result_set: None };
    for as_form in [false, true] {
        let empty = SearchReply { users: vec![], result_set: None };
        assert!(reply.write(as_form).len() - empty.write(as_form).len() <= one as usize + 1024);
    }
}

#[test]
fn search_access_is_an_option() {
    let allowed = |who: &'static str| {
        let engine = with(&[("access", OptionValue::Text(who.into()))]);
        engine.node.set_admins([jid::Jid::parse("tybalt@example.com").unwrap()]);
        let clients = [
            engine.connect("romeo", "home"),
            engine.connect("tybalt", "home"),
            engine.connect("elsewhere@example.net", "home"),
            engine.connect_anonymous("guest", "home"),
        ];
        clients.map(|client| {
            let answers = [
                ask(&client, "<last>Capulet</last>"),
                client
                    .request("<iq type='get' to='example.com' id='s'><query xmlns='jabber:iq:search'/></iq>")
                    .remove(0),
            ];
            let allowed = answers.each_ref().map(|answer| !answer.contains("<forbidden "));
            assert_eq!(allowed[0], allowed[1], "{answers:?}");
            allowed[0]
        })
    };
    assert_eq!(allowed("users"), [true, true, false, false]);
    assert_eq!(allowed("admins"), [false, true, false, false]);
    assert_eq!(allowed("all"), [true, true, true, true]);
}

#[test]
fn a_failing_store_is_reported_as_an_error() {
    let engine = with(&[]);
    let romeo = client(&engine);
    engine.set_store_failing(true);
    assert!(ask(&romeo, "<last>Capulet</last>").contains("<resource-constraint "));
}

fn ask_service(client: &NodeClient, kind: &str) -> String {
    let search = "<query xmlns='jabber:iq:search'><last>Montague</last></query>";
    client.request(&format!("<iq type='{kind}' to='vjud.example.com' id='s'>{search}</iq>")).concat()
}

#[test]
fn the_service_of_the_domain_answers_as_the_domain_does() {
    let engine = with(&[]);
    let romeo = client(&engine);
    let expected = result(&item("romeo", "Romeo", "Montague", "")).replace("from='", "from='vjud.");
    assert_same(&[ask_service(&romeo, "set")], &[expected]);
    let form = ask_service(&romeo, "get");
    assert!(form.contains("type='result'") && form.contains("<instructions>"), "{form}");
}

#[test]
fn the_service_has_the_same_users_as_the_domain() {
    let engine = with(&[]);
    let others = [engine.connect("elsewhere@example.net", "home"), engine.connect_anonymous("guest", "home")];
    for kind in ["get", "set"] {
        for client in &others {
            assert!(ask_service(client, kind).contains("<forbidden"), "{}", client.full());
        }
    }
    let engine = with(&[("access", OptionValue::Text("all".into()))]);
    assert!(
        ask_service(&engine.connect("elsewhere@example.net", "home"), "set").contains("<item jid='romeo@")
    );
}

/// Otherwise a client that wants more than the rate of the service would ask the domain.
#[test]
fn a_search_at_the_domain_counts_for_the_rate_of_the_service() {
    let engine = with(&[("stanzas_per_second_per_sender", OptionValue::Int(1))]);
    let romeo = client(&engine);
    for at in 0..5 {
        assert!(ask(&romeo, "<last>Montague</last>").contains("type='result'"), "{at}");
        assert!(ask_service(&romeo, "set").contains("type='result'"), "{at}");
    }
    let refused = ask(&romeo, "<last>Montague</last>");
    assert!(refused.contains("<resource-constraint"), "{refused}");
    let other = engine.connect("juliet", "home");
    assert!(ask(&other, "<last>Montague</last>").contains("type='result'"));
    engine.advance(1);
    assert!(ask(&romeo, "<last>Montague</last>").contains("type='result'"));
}
