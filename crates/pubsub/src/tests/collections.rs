//! XEP-0248 0.5.0: collections, with the sections of that specification.

use super::*;

pub(super) const COLLECTION: (&str, &str) = ("pubsub#node_type", "collection");
const SHIM: &str = "http://jabber.org/protocol/shim";

/// Hamlet, who has created the collection `blogs`, and a leaf in it.
pub(super) fn blogs(denmark: &Denmark) -> NodeClient {
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "blogs", &[COLLECTION]);
    created(&hamlet, NODE, &[("pubsub#collection", "blogs")]);
    hamlet
}

#[track_caller]
pub(super) fn created(client: &NodeClient, node: &str, fields: &[(&str, &str)]) {
    let answer = create(client, node, fields);
    assert!(answer.contains("type='result'"), "{node}: {answer}");
}

pub(super) fn configure_node(client: &NodeClient, node: &str, fields: &[(&str, &str)]) -> String {
    owner_set(client, &format!("<configure node='{node}'>{}</configure>", form("node_config", fields)))
}

/// Subscribes a client's bare address to a collection, with options.
pub(super) fn subscribe_with(client: &NodeClient, node: &str, fields: &[(&str, &str)]) -> String {
    let options = match fields.is_empty() {
        true => String::new(),
        false => format!("<options>{}</options>", form("subscribe_options", fields)),
    };
    let node = if node.is_empty() { String::new() } else { format!(" node='{node}'") };
    set(client, &format!("<subscribe{node} jid='{}'/>{options}", client.bare()))
}

pub(super) const ALL_ITEMS: &[(&str, &str)] =
    &[("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", "all")];

pub(super) fn associate(client: &NodeClient, change: &str, collection: &str, child: &str) -> String {
    owner_set(client, &format!("<collection node='{collection}'><{change} node='{child}'/></collection>"))
}

fn through(collection: &str) -> String {
    format!("<headers xmlns='{SHIM}'><header name='Collection'>{collection}</header></headers>")
}

/// An event that a collection has sent.
fn event_through(to: &NodeClient, collection: &str, content: &str) -> String {
    event(to, content).replace("</message>", &format!("{}</message>", through(collection)))
}

/// The values of a field of a node's configuration.
pub(super) fn values(client: &NodeClient, node: &str, var: &str) -> Vec<String> {
    let shown = owner_get(client, &format!("<configure node='{node}'/>"));
    let field =
        shown.split(&format!("<field var='{var}'")).nth(1).unwrap_or_else(|| panic!("{var}: {shown}"));
    let end = if field.find("/>") < field.find('>') { "/>" } else { "</field>" };
    let field = field.split(end).next().unwrap();
    let field = field.split("<option").next().unwrap();
    field
        .split("<value")
        .skip(1)
        .map(|one| one.trim_start_matches(['/', '>']).split('<').next().unwrap().to_owned())
        .collect()
}

pub(super) fn disco(client: &NodeClient, kind: &str, node: &str) -> String {
    let node = if node.is_empty() { String::new() } else { format!(" node='{node}'") };
    let query = format!("<query xmlns='http://jabber.org/protocol/disco#{kind}'{node}/>");
    answer_of(client.request(&format!("<iq type='get' to='{SERVICE}' id='r1'>{query}</iq>")))
}

#[test]
fn section_5_1_collections_are_discovered() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    created(&hamlet, "news", &[]);
    created(&hamlet, "kingly_ravings", &[("pubsub#collection", "blogs")]);
    let info = disco(&hamlet, "info", "");
    for feature in ["collections", "multi-collections"] {
        assert!(
            info.contains(&format!("<feature var='http://jabber.org/protocol/pubsub#{feature}'/>")),
            "{info}"
        );
    }
    let first = disco(&hamlet, "items", "");
    assert!(first.contains("node='blogs'") && first.contains("node='news'"), "{first}");
    assert!(!first.contains(NODE), "it is on the second level: {first}");
    assert_result(
        &hamlet,
        &disco(&hamlet, "items", "blogs"),
        &format!(
            "<query xmlns='http://jabber.org/protocol/disco#items' node='blogs'>\
             <item jid='{SERVICE}' node='kingly_ravings'/><item jid='{SERVICE}' node='{NODE}'/></query>"
        ),
    );
    assert!(disco(&hamlet, "info", "blogs").contains("<identity category='pubsub' type='collection'/>"));
    let page = "<set xmlns='http://jabber.org/protocol/rsm'><max>1</max></set>";
    let query = format!("<query xmlns='http://jabber.org/protocol/disco#items' node='blogs'>{page}</query>");
    let page = answer_of(hamlet.request(&format!("<iq type='get' to='{SERVICE}' id='r1'>{query}</iq>")));
    assert!(page.contains("<last>kingly_ravings</last><count>2</count>") && !page.contains(NODE), "{page}");
}

#[test]
fn section_5_2_1_1_items_arrive_through_the_collection() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let francisco = denmark.connect("francisco");
    let answer = subscribe_with(&francisco, "blogs", ALL_ITEMS);
    assert!(answer.contains("<subscription node='blogs' jid='francisco@example.com' subid='"), "{answer}");
    assert!(answer.contains("subscription='subscribed'"), "{answer}");
    publish(&hamlet, "1");
    let item = format!("<items node='{NODE}'><item id='1'>{ENTRY}</item></items>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &item)]);
    configure(&hamlet, &[("pubsub#notify_retract", "1")]);
    set(&hamlet, &format!("<retract node='{NODE}'><item id='1'/></retract>"));
    let retract = format!("<items node='{NODE}'><retract id='1'/></items>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &retract)]);
    owner_set(&hamlet, &format!("<purge node='{NODE}'/>"));
    let purge = format!("<purge node='{NODE}'/>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &purge)]);
    // The leaf decides about payloads.
    configure(&hamlet, &[("pubsub#deliver_payloads", "0")]);
    assert!(francisco.recv().is_empty(), "what it is about are nodes");
    publish(&hamlet, "2");
    let item = format!("<items node='{NODE}'><item id='2'/></items>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &item)]);
}

#[test]
fn section_5_2_1_2_new_nodes_are_announced() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "blogs", &[COLLECTION]);
    let francisco = denmark.connect("francisco");
    // The default is nodes, one level deep.
    let answer = subscribe_with(&francisco, "blogs", &[]);
    assert_result(
        &francisco,
        &answer,
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><subscription node='blogs' jid='francisco@example.com' \
         subscription='subscribed'/></pubsub>",
    );
    created(&hamlet, NODE, &[("pubsub#collection", "blogs")]);
    let create = format!("<create node='{NODE}'/>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &create)]);
    publish(&hamlet, "1");
    assert!(francisco.recv().is_empty());
    configure(&hamlet, &[("pubsub#notify_config", "1"), ("pubsub#deliver_payloads", "0")]);
    let configuration = format!("<configuration node='{NODE}'/>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &configuration)]);
    owner_set(&hamlet, &format!("<delete node='{NODE}'/>"));
    let delete = format!("<delete node='{NODE}'/>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "blogs", &delete)]);
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), Vec::<String>::new());
}

#[test]
fn section_5_2_2_association_and_dissociation_are_announced() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    created(&hamlet, "blogs", &[COLLECTION]);
    let francisco = denmark.connect("francisco");
    subscribe_with(&francisco, "blogs", &[]);
    assert_result(&hamlet, &associate(&hamlet, "associate", "blogs", NODE), "");
    let is = |change: &str| format!("<collection node='blogs'><{change} node='{NODE}'/></collection>");
    testkit::assert_same(&events(&francisco), &[event(&francisco, &is("associate"))]);
    assert_eq!(values(&hamlet, NODE, "pubsub#collection"), ["blogs"]);
    assert_result(&hamlet, &associate(&hamlet, "associate", "blogs", NODE), "");
    assert!(francisco.recv().is_empty(), "it was one before");
    assert_result(&hamlet, &associate(&hamlet, "dissociate", "blogs", NODE), "");
    testkit::assert_same(&events(&francisco), &[event(&francisco, &is("dissociate"))]);
    // By the configuration of either node; an empty value is the root.
    assert_eq!(values(&hamlet, NODE, "pubsub#collection"), [""]);
    configure(&hamlet, &[("pubsub#collection", "blogs")]);
    testkit::assert_same(&events(&francisco), &[event(&francisco, &is("associate"))]);
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), [NODE]);
    configure_node(&hamlet, "blogs", &[("pubsub#children", "")]);
    testkit::assert_same(&events(&francisco), &[event(&francisco, &is("dissociate"))]);
    assert_eq!(values(&hamlet, NODE, "pubsub#collection"), [""]);
    configure_node(&hamlet, "blogs", &[("pubsub#children", NODE)]);
    testkit::assert_same(&events(&francisco), &[event(&francisco, &is("associate"))]);
    configure(&hamlet, &[("pubsub#collection", "")]);
    testkit::assert_same(&events(&francisco), &[event(&francisco, &is("dissociate"))]);
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), Vec::<String>::new());
}

#[test]
fn section_6_1_depth_and_type_decide_what_a_subscriber_receives() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "literature", &[COLLECTION]);
    created(&hamlet, "blogs", &[COLLECTION, ("pubsub#collection", "literature")]);
    created(&hamlet, NODE, &[("pubsub#collection", "blogs")]);
    let users = ["francisco", "bernardo", "horatio", "bard"].map(|user| denmark.connect(user));
    let [francisco, bernardo, horatio, bard] = &users;
    subscribe_with(francisco, "literature", ALL_ITEMS);
    subscribe_with(bernardo, "literature", &[("pubsub#subscription_type", "items")]);
    let both = [("pubsub#subscription_type", "all"), ("pubsub#subscription_depth", "2")];
    subscribe_with(horatio, "literature", &both);
    subscribe_with(
        bard,
        "literature",
        &[("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", "0")],
    );
    publish(&hamlet, "1");
    let item = format!("<items node='{NODE}'><item id='1'>{ENTRY}</item></items>");
    testkit::assert_same(&events(francisco), &[event_through(francisco, "literature", &item)]);
    testkit::assert_same(&events(horatio), &[event_through(horatio, "literature", &item)]);
    assert!(bernardo.recv().is_empty() && bard.recv().is_empty());
    created(&hamlet, "other", &[("pubsub#collection", "blogs")]);
    testkit::assert_same(&events(horatio), &[event_through(horatio, "literature", "<create node='other'/>")]);
    assert!(users.iter().all(|one| one.recv().is_empty()));
    // Options are shown and changed.
    let own = get(bernardo, &format!("<options node='literature' jid='{}'/>", bernardo.bare()));
    assert!(
        own.contains("<field var='pubsub#subscription_depth'") && own.contains("<value>items</value>"),
        "{own}"
    );
    let content = format!(
        "<options node='literature' jid='{}'>{}</options>",
        bernardo.bare(),
        form("subscribe_options", &[("pubsub#subscription_depth", "all")])
    );
    assert_result(bernardo, &set(bernardo, &content), "");
    publish(&hamlet, "2");
    assert_eq!(bernardo.recv().len(), 1);
    let wrong = content.replace("<value>all</value>", "<value>deep</value>");
    assert_error(&set(bernardo, &wrong), "modify", "bad-request", "invalid-options");
    let leaf = get(bernardo, &format!("<default node='{NODE}'/>"));
    assert!(!leaf.contains("subscription_depth"), "{leaf}");
    assert!(get(bernardo, "<default node='blogs'/>").contains("subscription_depth"));
}

#[test]
fn section_6_1_3_two_subscriptions_of_a_type_are_a_conflict() {
    let denmark = Denmark::new();
    blogs(&denmark);
    let francisco = denmark.connect("francisco");
    subscribe_with(&francisco, "blogs", ALL_ITEMS);
    let shallow = [("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", "1")];
    assert_error(&subscribe_with(&francisco, "blogs", &shallow), "cancel", "conflict", "");
    let all = [("pubsub#subscription_type", "all")];
    assert_error(&subscribe_with(&francisco, "blogs", &all), "cancel", "conflict", "");
    // Another type is another subscription; both are in the headers.
    let nodes = subscribe_with(&francisco, "blogs", &[("pubsub#subscription_type", "nodes")]);
    let subid = attribute(&nodes, "subid");
    let content = format!(
        "<options node='blogs' jid='{}' subid='{subid}'>{}</options>",
        francisco.bare(),
        form("subscribe_options", &[("pubsub#subscription_type", "all")])
    );
    assert_error(&set(&francisco, &content), "cancel", "conflict", "");
}

#[test]
fn a_subscriber_of_both_types_receives_the_name_of_the_collection_and_the_id() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let francisco = denmark.connect("francisco");
    let items = attribute(&subscribe_with(&francisco, "blogs", ALL_ITEMS), "subid");
    let nodes = attribute(&subscribe_with(&francisco, "blogs", &[("pubsub#deliver", "1")]), "subid");
    assert_ne!(items, nodes);
    publish(&hamlet, "1");
    let received = francisco.recv().concat();
    assert_eq!(received.matches("<headers ").count(), 1, "{received}");
    assert!(received.contains("<header name='Collection'>blogs</header>"), "{received}");
    owner_set(&hamlet, "<delete node='blogs'/>");
    let received = francisco.recv().concat();
    assert!(received.contains(&items) && received.contains(&nodes), "{received}");
}

#[test]
fn section_6_2_items_of_leaves_are_retrieved() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    created(&hamlet, "ravings", &[("pubsub#collection", "blogs")]);
    created(&hamlet, "empty", &[("pubsub#collection", "blogs")]);
    publish(&hamlet, "1");
    set(&hamlet, &format!("<publish node='ravings'><item id='2'>{ENTRY}</item></publish>"));
    let francisco = denmark.connect("francisco");
    assert_result(
        &francisco,
        &get(&francisco, "<items node='blogs'/>"),
        &format!(
            "<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{NODE}'><item id='1'>{ENTRY}</item></items>\
             <items node='ravings'><item id='2'>{ENTRY}</item></items></pubsub>"
        ),
    );
    configure_node(&hamlet, "blogs", &[("pubsub#access_model", "whitelist")]);
    assert_error(&get(&francisco, "<items node='blogs'/>"), "cancel", "not-allowed", "closed-node");
    assert_error(&disco(&francisco, "items", "blogs"), "cancel", "not-allowed", "closed-node");
    for number in 0..20 {
        created(&hamlet, &format!("n{number}"), &[("pubsub#collection", "blogs")]);
    }
    assert_error(&get(&hamlet, "<items node='blogs'/>"), "cancel", "feature-not-implemented", "");
}

#[test]
fn a_collection_has_no_items() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let publish = format!("<publish node='blogs'><item id='1'>{ENTRY}</item></publish>");
    assert_error(&set(&hamlet, &publish), "cancel", "feature-not-implemented", "unsupported");
    let retract = set(&hamlet, "<retract node='blogs'><item id='1'/></retract>");
    assert_error(&retract, "cancel", "feature-not-implemented", "unsupported");
    assert_error(
        &owner_set(&hamlet, "<purge node='blogs'/>"),
        "cancel",
        "feature-not-implemented",
        "unsupported",
    );
    let shown = owner_get(&hamlet, "<configure node='blogs'/>");
    assert!(!shown.contains("pubsub#persist_items") && shown.contains("pubsub#children_max"), "{shown}");
}

#[test]
fn section_7_1_a_collection_is_created() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    let answer = create(&hamlet, "announcements", &[COLLECTION]);
    assert!(answer.contains("type='result'"), "{answer}");
    assert_eq!(values(&hamlet, "announcements", "pubsub#node_type"), ["collection"]);
    let guest = denmark.engine.connect_anonymous("guest", "web");
    assert_error(&create(&guest, "guests", &[COLLECTION]), "auth", "forbidden", "");
    // Section 7.3.
    let default = owner_get(&hamlet, "<default type='collection'/>");
    for var in
        ["node_type", "collection", "children", "children_association_policy", "children_max", "access_model"]
    {
        assert!(default.contains(&format!("var='pubsub#{var}'")), "{var}: {default}");
    }
}

#[test]
fn section_7_2_a_collection_is_configured() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "blogs", &[COLLECTION]);
    for child in ["Romeoance", "Julliennui"] {
        created(&hamlet, child, &[]);
    }
    let children = [COLLECTION, ("pubsub#children", "Romeoance|Julliennui"), ("pubsub#collection", "")];
    assert_result(&hamlet, &configure_node(&hamlet, "blogs", &children), "");
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), ["Julliennui", "Romeoance"]);
    assert_eq!(values(&hamlet, "Romeoance", "pubsub#collection"), ["blogs"]);
    // The whole form again changes nothing.
    assert_result(&hamlet, &configure_node(&hamlet, "blogs", &children), "");
}

#[test]
fn section_7_2_3_impossible_changes_are_refused() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    created(&hamlet, "leaf", &[]);
    let francisco = denmark.connect("francisco");
    created(&francisco, "guard", &[]);
    created(&francisco, "watch", &[COLLECTION]);
    let refused =
        |answer: String, condition: &str, own: &str| assert_error(&answer, "cancel", condition, own);
    // A leaf with children.
    let child = configure_node(&hamlet, "leaf", &[("pubsub#children", NODE)]);
    refused(child, "not-allowed", "invalid-options");
    let child = configure_node(&hamlet, NODE, &[("pubsub#collection", "leaf")]);
    refused(child, "not-allowed", "invalid-options");
    refused(create(&hamlet, "new", &[("pubsub#children", NODE)]), "not-allowed", "invalid-options");
    // Without the right to.
    refused(configure_node(&francisco, "guard", &[("pubsub#collection", "blogs")]), "forbidden", "");
    refused(configure_node(&francisco, "watch", &[("pubsub#children", NODE)]), "forbidden", "");
    refused(create(&francisco, "new", &[("pubsub#collection", "blogs")]), "forbidden", "");
    refused(get(&francisco, "<items node='new'/>"), "item-not-found", "");
    // Nodes that do not exist.
    refused(configure_node(&hamlet, NODE, &[("pubsub#collection", "nowhere")]), "item-not-found", "");
    refused(configure_node(&hamlet, "blogs", &[("pubsub#children", "nowhere")]), "item-not-found", "");
    // Too many.
    configure_node(&hamlet, "blogs", &[("pubsub#children_max", "1")]);
    refused(
        configure_node(&hamlet, "leaf", &[("pubsub#collection", "blogs")]),
        "not-allowed",
        "max-nodes-exceeded",
    );
    let two = configure_node(&hamlet, "blogs", &[("pubsub#children", &format!("{NODE}|leaf"))]);
    refused(two, "not-allowed", "max-nodes-exceeded");
    // A type that changes back.
    let leaf = configure_node(&hamlet, "blogs", &[("pubsub#node_type", "leaf")]);
    refused(leaf, "not-allowed", "invalid-options");
    assert_eq!(values(&hamlet, NODE, "pubsub#collection"), ["blogs"], "nothing was changed");
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), [NODE]);
}

#[test]
fn section_7_2_3_5_cycles_are_refused() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "a", &[COLLECTION]);
    created(&hamlet, "b", &[COLLECTION, ("pubsub#collection", "a")]);
    created(&hamlet, "c", &[COLLECTION, ("pubsub#collection", "b")]);
    for (node, var, value) in [
        ("a", "pubsub#collection", "c"),
        ("a", "pubsub#collection", "a"),
        ("c", "pubsub#children", "a"),
        ("c", "pubsub#children", "c"),
        ("b", "pubsub#children", "a"),
    ] {
        let answer = configure_node(&hamlet, node, &[(var, value)]);
        assert_error(&answer, "cancel", "not-allowed", "invalid-options");
        if var == "pubsub#children" {
            let answer = associate(&hamlet, "associate", node, value);
            assert_error(&answer, "cancel", "not-allowed", "invalid-options");
        }
    }
    let itself = create(&hamlet, "d", &[COLLECTION, ("pubsub#collection", "d")]);
    assert_error(&itself, "cancel", "item-not-found", "");
    assert_eq!(values(&hamlet, "a", "pubsub#collection"), [""]);
}

#[test]
fn section_7_2_4_a_leaf_becomes_a_collection_without_items() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    publish(&hamlet, "1");
    assert_result(&hamlet, &configure(&hamlet, &[COLLECTION]), "");
    created(&hamlet, "child", &[("pubsub#collection", NODE)]);
    assert!(!get(&hamlet, &format!("<items node='{NODE}'/>")).contains("<item "));
    assert_error(&publish(&hamlet, "2"), "cancel", "feature-not-implemented", "unsupported");
}

#[test]
fn section_7_4_children_of_a_deleted_collection_stay() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    created(&hamlet, "news", &[COLLECTION]);
    created(&hamlet, "both", &[("pubsub#collection", "blogs|news")]);
    assert_result(&hamlet, &owner_set(&hamlet, "<delete node='blogs'/>"), "");
    assert_eq!(values(&hamlet, "both", "pubsub#collection"), ["news"]);
    assert_eq!(values(&hamlet, NODE, "pubsub#collection"), [""]);
    assert!(disco(&hamlet, "items", "").contains(NODE), "it is on the first level");
    assert_error(&owner_set(&hamlet, "<delete/>"), "cancel", "not-allowed", "");
}

#[test]
fn sections_7_5_and_7_6_requests_that_are_refused() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let francisco = denmark.connect("francisco");
    created(&francisco, "guard", &[]);
    created(&francisco, "watch", &[COLLECTION]);
    let refused =
        |answer: String, kind: &str, condition: &str, own: &str| assert_error(&answer, kind, condition, own);
    refused(associate(&francisco, "associate", "blogs", "guard"), "cancel", "forbidden", "");
    refused(associate(&francisco, "associate", "watch", NODE), "cancel", "forbidden", "");
    refused(associate(&francisco, "dissociate", "blogs", NODE), "cancel", "forbidden", "");
    refused(associate(&hamlet, "dissociate", "blogs", "guard"), "modify", "bad-request", "");
    refused(associate(&hamlet, "associate", "blogs", "nowhere"), "cancel", "item-not-found", "");
    refused(associate(&hamlet, "associate", "nowhere", NODE), "cancel", "item-not-found", "");
    refused(associate(&hamlet, "associate", NODE, "blogs"), "cancel", "not-allowed", "invalid-options");
    refused(owner_set(&hamlet, "<collection node='blogs'/>"), "modify", "bad-request", "");
    configure_node(
        &hamlet,
        "blogs",
        &[("pubsub#children_max", "1"), ("pubsub#children_association_policy", "all")],
    );
    refused(
        associate(&francisco, "associate", "blogs", "guard"),
        "cancel",
        "not-allowed",
        "max-nodes-exceeded",
    );
}

#[test]
fn section_7_2_1_the_policy_decides_who_associates() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    created(&francisco, "guard", &[]);
    created(&bernardo, "post", &[]);
    let whitelist = [
        ("pubsub#children_association_policy", "whitelist"),
        ("pubsub#children_association_whitelist", "francisco@example.com"),
    ];
    assert_result(&hamlet, &configure_node(&hamlet, "blogs", &whitelist), "");
    assert_result(&francisco, &associate(&francisco, "associate", "blogs", "guard"), "");
    assert_error(&associate(&bernardo, "associate", "blogs", "post"), "cancel", "forbidden", "");
    configure_node(&hamlet, "blogs", &[("pubsub#children_association_policy", "all")]);
    let own = configure_node(&bernardo, "post", &[("pubsub#collection", "blogs")]);
    assert_result(&bernardo, &own, "");
    // The owner of the child may take it away, as the owner of the collection may.
    assert_result(&bernardo, &associate(&bernardo, "dissociate", "blogs", "post"), "");
    assert_result(&hamlet, &associate(&hamlet, "dissociate", "blogs", "guard"), "");
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), [NODE]);
    configure_node(&hamlet, "blogs", &[("pubsub#children_association_policy", "owner")]);
    assert_eq!(values(&hamlet, "blogs", "pubsub#children_association_policy"), ["owners"]);
}

#[test]
fn section_8_1_the_root_node_tells_of_public_nodes() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "before", &[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    let answer = subscribe_with(&francisco, "", &[]);
    assert_result(
        &francisco,
        &answer,
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><subscription jid='francisco@example.com' \
         subscription='subscribed'/></pubsub>",
    );
    assert_error(&subscribe_with(&bernardo, "", ALL_ITEMS), "cancel", "not-allowed", "");
    let near = [("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", "1")];
    assert!(subscribe_with(&bernardo, "", &near).contains("subscription='subscribed'"));
    created(&hamlet, NODE, &[]);
    created(&hamlet, "secret", &[("pubsub#access_model", "whitelist")]);
    let create = format!("<create node='{NODE}'/>");
    testkit::assert_same(&events(&francisco), &[event_through(&francisco, "", &create)]);
    publish(&hamlet, "1");
    set(&hamlet, &format!("<publish node='secret'><item id='2'>{ENTRY}</item></publish>"));
    let item = format!("<items node='{NODE}'><item id='1'>{ENTRY}</item></items>");
    testkit::assert_same(&events(&bernardo), &[event_through(&bernardo, "", &item)]);
    assert!(francisco.recv().is_empty());
    let own = get(&francisco, "<subscriptions/>");
    assert!(own.contains("<subscription jid='francisco@example.com' subscription='subscribed'/>"), "{own}");
    assert!(!disco(&francisco, "items", "").contains("root"), "it has no name");
    let gone = set(&francisco, "<unsubscribe jid='francisco@example.com'/>");
    assert!(gone.contains("type='result'"), "{gone}");
    created(&hamlet, "after", &[]);
    assert!(francisco.recv().is_empty());
    // Nobody reaches it by its name in the store.
    for content in ["<configure node='throng#root'/>", "<subscriptions node='throng#root'/>"] {
        assert_error(&owner_get(&hamlet, content), "modify", "not-acceptable", "");
    }
    let by_name = create_named(&hamlet, "throng#root");
    assert_error(&by_name, "modify", "not-acceptable", "");
}

fn create_named(client: &NodeClient, name: &str) -> String {
    create(client, name, &[])
}

#[test]
fn a_notification_arrives_once_by_several_paths() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "top", &[COLLECTION]);
    for side in ["left", "right"] {
        created(&hamlet, side, &[COLLECTION, ("pubsub#collection", "top")]);
    }
    created(&hamlet, NODE, &[("pubsub#collection", "left|right")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    subscribe_with(&francisco, "top", ALL_ITEMS);
    publish(&hamlet, "1");
    assert_eq!(francisco.recv().len(), 1);
    // The shorter path decides about the depth.
    configure(&hamlet, &[("pubsub#collection", "left|right|top")]);
    subscribe_with(&bernardo, "top", &[("pubsub#subscription_type", "items")]);
    publish(&hamlet, "2");
    assert_eq!((francisco.recv().len(), bernardo.recv().len()), (1, 1));
}

#[test]
fn depth_and_lists_are_bounded() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "c0", &[COLLECTION]);
    let mut depth = 0;
    let refused = loop {
        depth += 1;
        let parent = format!("c{}", depth - 1);
        let answer = create(&hamlet, &format!("c{depth}"), &[COLLECTION, ("pubsub#collection", &parent)]);
        if !answer.contains("type='result'") {
            break answer;
        }
        assert!(depth < 40, "no bound");
    };
    assert_error(&refused, "cancel", "not-allowed", "invalid-options");
    let many: Vec<String> = (0..17).map(|number| format!("p{number}")).collect();
    let answer = create(&hamlet, "many", &[("pubsub#collection", &many.join("|"))]);
    assert_error(&answer, "cancel", "not-allowed", "max-nodes-exceeded");
    let many: Vec<String> = (0..1001).map(|number| format!("p{number}")).collect();
    let answer = create(&hamlet, "many", &[COLLECTION, ("pubsub#children", &many.join("|"))]);
    assert_error(&answer, "cancel", "not-allowed", "max-nodes-exceeded");
}

#[test]
fn a_member_of_a_whitelist_reads_a_closed_leaf_through_the_collection_only_if_its_owner_agrees() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "secret", &[("pubsub#access_model", "whitelist")]);
    let francisco = denmark.connect("francisco");
    created(&francisco, "open", &[COLLECTION, ("pubsub#children_association_policy", "all")]);
    subscribe_with(&francisco, "open", ALL_ITEMS);
    assert_error(&associate(&francisco, "associate", "open", "secret"), "cancel", "forbidden", "");
    assert_error(
        &configure_node(&francisco, "open", &[("pubsub#children", "secret")]),
        "cancel",
        "forbidden",
        "",
    );
    let publish = format!("<publish node='secret'><item id='1'>{ENTRY}</item></publish>");
    set(&hamlet, &publish);
    assert!(francisco.recv().is_empty());
    assert_result(&hamlet, &associate(&hamlet, "associate", "open", "secret"), "");
    set(&hamlet, &publish);
    assert_eq!(events(&francisco).len(), 1);
}

#[test]
fn collections_survive_a_restart_of_their_tasks() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let francisco = denmark.connect("francisco");
    subscribe_with(&francisco, "blogs", ALL_ITEMS);
    denmark.engine.advance(400);
    denmark.engine.advance(10);
    publish(&hamlet, "1");
    assert_eq!(francisco.recv().len(), 1);
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), [NODE]);
}

#[test]
fn associations_are_limited_and_the_same_form_again_is_none() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let many: Vec<String> = (0..990).map(|number| format!("n{number}")).collect();
    let missing = configure_node(&hamlet, "blogs", &[("pubsub#children", &many.join("|"))]);
    assert_error(&missing, "cancel", "item-not-found", "");
    let mut count = 0;
    let refused = loop {
        let answer = associate(&hamlet, "associate", "blogs", "nobody");
        count += 1;
        if answer.contains("resource-constraint") {
            break answer;
        }
        assert!(count < 20, "{answer}");
    };
    assert_result(&hamlet, &configure_node(&hamlet, "blogs", &[("pubsub#children", NODE)]), "");
    assert_error(&refused, "wait", "resource-constraint", "");
    let removed = configure_node(&hamlet, "blogs", &[("pubsub#children", "")]);
    assert_error(&removed, "wait", "resource-constraint", "");
    denmark.engine.advance(2);
    assert_result(&hamlet, &associate(&hamlet, "dissociate", "blogs", NODE), "");
}
