//! XEP-0433: the examples of the specification.

use super::*;

const SERVICE: &str = "conference.example.com";
const BY_USERS: &str = "{urn:xmpp:channel-search:0:order}nusers";
const BY_ADDRESS: &str = "{urn:xmpp:channel-search:0:order}address";

fn search(client: &NodeClient, set: &str, fields: &str) -> String {
    let form_type = field("FORM_TYPE", "urn:xmpp:channel-search:0:search-params");
    let form = format!("<x xmlns='jabber:x:data' type='submit'>{form_type}{fields}</x>");
    let set = format!("<set xmlns='http://jabber.org/protocol/rsm'>{set}</set>");
    let search = format!("<search xmlns='urn:xmpp:channel-search:0:search'>{set}{form}</search>");
    request(client, "get", SERVICE, &search).concat()
}

/// Names of the rooms that were found, in order.
fn found(result: &str) -> Vec<String> {
    assert!(result.contains("<result xmlns='urn:xmpp:channel-search:0:search'>"), "{result}");
    let address = |item: &str| item.split('@').next().unwrap().to_owned();
    result.split("<item address='").skip(1).map(address).collect()
}

fn create(client: &NodeClient, room: &str, fields: &str) {
    let to = format!("{room}@{SERVICE}");
    client.request(&format!("<presence to='{to}/witch'>{MUC}</presence>"));
    let form = format!(
        "<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'>{fields}</x></query>"
    );
    assert!(request(client, "set", &to, &form).concat().contains("type='result'"));
    client.recv();
}

fn named(name: &str, description: &str) -> String {
    field("muc#roomconfig_roomname", name) + &field("muc#roomconfig_roomdesc", description)
}

/// Three public rooms, one of them stored and not in use, and a hidden one.
fn rooms() -> (Shakespeare, NodeClient, NodeClient) {
    let play = Shakespeare::new();
    let (crone, hag) = (play.crone(), play.hag());
    create(&crone, "commteam", &named("Communications", "XMPP for everybody"));
    let description = "Discussion venue for operators of federated XMPP services";
    create(&crone, "operators", &named("XMPP Service Operators", description));
    hag.request(&format!("<presence to='operators@{SERVICE}/hag'>{MUC}</presence>"));
    create(&crone, "archive", &(named("Old Papers", "") + &field("muc#roomconfig_persistentroom", "1")));
    crone.request(&format!("<presence to='archive@{SERVICE}/witch' type='unavailable'/>"));
    create(&crone, "cabal", &(named("XMPP Cabal", "") + &field("muc#roomconfig_publicroom", "0")));
    forget(&[&crone, &hag]);
    (play, crone, hag)
}

#[test]
fn section_4_2_1_the_form_has_all_fields_and_their_defaults() {
    let play = Shakespeare::new();
    let crone = play.crone();
    let form = request(&crone, "get", SERVICE, "<search xmlns='urn:xmpp:channel-search:0:search'/>").concat();
    for part in [
        "<search xmlns='urn:xmpp:channel-search:0:search'><x xmlns='jabber:x:data' type='form'>",
        "<value>urn:xmpp:channel-search:0:search-params</value>",
        "<field var='q' type='text-single' label='Search for'/>",
        "<field var='all' type='boolean'",
        "<field var='sinname' type='boolean' label='Search in name'><value>1</value></field>",
        "<field var='sindescription' type='boolean'",
        "<field var='sinaddress' type='boolean'",
        "<field var='min_users' type='text-single'",
        "<field var='types' type='list-multi' label='Service types'><value>xep-0045</value>",
        "<value>{urn:xmpp:channel-search:0:order}nusers</value>",
        "<value>{urn:xmpp:channel-search:0:order}address</value>",
    ] {
        assert!(form.contains(part), "{form} does not contain {part}");
    }
}

#[test]
fn section_4_2_2_results_are_sorted_described_and_on_pages() {
    let (_play, _crone, hag) = rooms();
    let all = field("all", "true");
    let by_address = field("key", "{urn:xmpp:channel-search:0:order}address");
    let result = search(&hag, "", &all);
    assert_eq!(found(&result), ["operators", "commteam", "archive"], "by users: {result}");
    for part in [
        "<name>XMPP Service Operators</name>\
         <description>Discussion venue for operators of federated XMPP services</description>",
        "<nusers>2</nusers><service-type>xep-0045</service-type><is-open>true</is-open>\
         <anonymity-mode>muc_semianonymous</anonymity-mode>",
        "<count>3</count>",
    ] {
        assert!(result.contains(part), "{result} does not contain {part}");
    }
    let fields = all.clone() + &by_address;
    let first = search(&hag, "<max>2</max>", &fields);
    assert_eq!(found(&first), ["archive", "commteam"]);
    let last = |page: &str| page.split("<last>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let after = |page: &str| format!("<max>2</max><after>{}</after>", last(page));
    assert_eq!(found(&search(&hag, &after(&first), &fields)), ["operators"]);
    assert_eq!(found(&search(&hag, "<max>2</max><before/>", &fields)), ["commteam", "operators"]);
    let by_users = search(&hag, "<max>1</max>", &all);
    assert_eq!(found(&search(&hag, &after(&by_users), &all)), ["commteam", "archive"]);
    assert_eq!(found(&search(&hag, "", &(all.clone() + &field("min_users", "2")))), ["operators"]);
    // Nobody uses it, and there is no other node.
    assert!(result.contains("<name>Old Papers</name><nusers>0</nusers>"), "{result}");
    assert!(found(&search(&hag, "", &(all + &field("types", "xep-0369")))).is_empty());
}

#[test]
fn section_4_2_keywords_are_found_in_the_chosen_texts() {
    let (play, crone, hag) = rooms();
    let find = |fields: &[String]| found(&search(&hag, "", &fields.concat()));
    let q = |text: &str| field("q", text);
    assert_eq!(find(&[q("xmpp")]), ["operators", "commteam"]);
    assert_eq!(find(&[q("xmpp"), field("sindescription", "0")]), ["operators"]);
    assert_eq!(find(&[q("XMPP operators")]), ["operators"], "all terms");
    assert_eq!(find(&[q("papers")]), ["archive"]);
    assert_eq!(find(&[q("archive")]), ["archive"]);
    assert!(find(&[q("archive"), field("sinaddress", "0")]).is_empty());
    assert!(find(&[q("nothing")]).is_empty(), "no error");
    // A room that has become hidden, at once, and a new one a moment later.
    let hidden = field("muc#roomconfig_publicroom", "0");
    let form = format!(
        "<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'>{hidden}</x></query>"
    );
    request(&crone, "set", &format!("commteam@{SERVICE}"), &form);
    // Also not as the end of a page.
    let result = search(&hag, "<max>1</max>", &(q("xmpp") + &field("key", BY_ADDRESS)));
    assert_eq!(found(&result), ["operators"], "{result}");
    assert!(!result.contains("commteam") && result.contains("<count>1</count>"), "{result}");
    create(&crone, "heath", &named("XMPP on the heath", ""));
    assert_eq!(find(&[q("xmpp")]), ["operators"]);
    play.engine.advance(10);
    assert_eq!(find(&[q("xmpp")]), ["operators", "heath"]);
}

#[test]
fn section_4_2_2_errors() {
    let play = Shakespeare::new();
    let crone = play.crone();
    let all = field("all", "1");
    for (fields, kind, condition, application) in [
        (all.clone() + &field("key", "size"), "modify", "feature-not-implemented", "<invalid-sort-key "),
        (field("q", "  "), "modify", "bad-request", "<invalid-search-terms "),
        (field("q", &"x".repeat(300)), "modify", "bad-request", "<invalid-search-terms "),
        (
            all + &field("q", "xmpp"),
            "modify",
            "bad-request",
            "<conflicting-fields xmlns='urn:xmpp:channel-search:0:error'><var>all</var><var>q</var>",
        ),
        (String::new(), "cancel", "bad-request", "<no-search-conditions "),
    ] {
        let answer = search(&crone, "", &fields);
        assert!(answer.contains(&error(kind, condition)), "{answer}");
        assert!(answer.contains(application), "{answer} does not contain {application}");
    }
}

#[test]
fn section_4_2_2_one_user_does_not_take_the_searches_of_all() {
    let play = Shakespeare::new();
    let (crone, hag) = (play.crone(), play.hag());
    let mut answers = (0..60).map(|_| search(&crone, "", &field("all", "1")));
    let refused = answers.find(|one| one.contains("type='error'")).expect("a limit");
    let seconds = refused.split("<rate-limit xmlns='urn:xmpp:channel-search:0:error' retry-after='").nth(1);
    let seconds: u32 = seconds.expect(&refused).split('\'').next().unwrap().parse().unwrap();
    assert!(
        (1..=10).contains(&seconds) && refused.contains(&error("wait", "resource-constraint")),
        "{refused}"
    );
    assert!(search(&hag, "", &field("all", "1")).contains("type='result'"), "another user");
    play.engine.advance(seconds);
    assert!(search(&crone, "", &field("all", "1")).contains("type='result'"));
}

#[test]
fn pages_end_with_ids_that_are_accepted_however_long_the_addresses_are() {
    let play = Shakespeare::new();
    let (crone, hag) = (play.crone(), play.hag());
    let long = |number: usize| format!("{}{number}", "l".repeat(1_020));
    (0..3).for_each(|number| create(&crone, &long(number), ""));
    for key in [BY_USERS, BY_ADDRESS] {
        let fields = field("all", "1") + &field("key", key);
        let mut set = "<max>1</max>".to_owned();
        for number in 0..3 {
            let page = search(&hag, &set, &fields);
            assert_eq!(found(&page), [long(number)], "{key}");
            let last = page.split("<last>").nth(1).unwrap().split('<').next().unwrap();
            set = format!("<max>1</max><after>{last}</after>");
        }
    }
}
