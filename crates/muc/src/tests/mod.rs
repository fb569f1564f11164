//! Tests from the examples of XEP-0045, and of the specifications around it, on a node without sockets.

mod administration;
mod bad_input;
mod channel_search;
mod commands;
mod delivery;
mod discovery;
mod entering;
mod hats;
mod invitations;
mod large_lists;
mod large_rooms;
mod limits;
mod messages;
mod moderation;
mod ownership;
mod persistence;
mod removed_accounts;
mod requests;
mod room_list;
mod several_nodes;
mod slow_mode;
mod ten_thousand;
mod weight;

use feature_api::feature::{FeatureOptions, OptionValue};
use feature_api::{EnabledFeature, feature::Feature};
use testkit::{NodeClient, TestNode};
use throng_core::NodeLimits;

use crate::FEATURE;

const ROOM: &str = "coven@conference.example.com";
const MUC: &str = "<x xmlns='http://jabber.org/protocol/muc'/>";

/// A node with rooms and the users of the examples.
struct Shakespeare {
    engine: TestNode,
}

/// An error of the tables of XEP-0045.
fn error(kind: &str, condition: &str) -> String {
    format!("<error type='{kind}'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>")
}

/// The same, which the room has detected.
fn refusal(kind: &str, condition: &str) -> String {
    error(kind, condition).replacen("<error", &format!("<error by='{ROOM}'"), 1)
}

impl Shakespeare {
    fn new() -> Shakespeare {
        Shakespeare::with(&[])
    }

    fn with(options: &[(&str, OptionValue)]) -> Shakespeare {
        Shakespeare::with_limits(options, NodeLimits::default())
    }

    fn with_limits(options: &[(&str, OptionValue)], limits: NodeLimits) -> Shakespeare {
        // In place of the directed presence that the feature of presence records.
        static VISIBLE: Feature =
            Feature { name: "visible", build: |builder| builder.iq_without_subscription(), ..Feature::EMPTY };
        let mut enabled: Vec<EnabledFeature> = [&FEATURE, &VISIBLE]
            .into_iter()
            .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
            .collect();
        for (key, value) in options {
            enabled[0].options.set(FEATURE.options, key, value.clone()).unwrap();
        }
        let engine = TestNode::start(&enabled, limits);
        for user in ["crone1", "wiccarocks", "hag66", "hecate"] {
            engine.create_user(user);
        }
        Shakespeare { engine }
    }

    fn crone(&self) -> NodeClient {
        self.engine.connect("crone1", "desktop")
    }

    fn wicca(&self) -> NodeClient {
        self.engine.connect("wiccarocks", "laptop")
    }

    fn hecate(&self) -> NodeClient {
        self.engine.connect("hecate", "broom")
    }

    fn hag(&self) -> NodeClient {
        self.engine.connect("hag66", "pda")
    }

    /// A room of crone1, who is in it as firstwitch, with these fields of the configuration.
    fn room(&self, fields: &str) -> NodeClient {
        let crone = self.crone();
        enter(&crone, "firstwitch");
        configure(&crone, fields);
        crone
    }
}

/// Enters the room, and returns what arrives.
fn enter(client: &NodeClient, nick: &str) -> Vec<String> {
    enter_with(client, nick, MUC)
}

fn enter_with(client: &NodeClient, nick: &str, x: &str) -> Vec<String> {
    masked(client.request(&format!("<presence to='{ROOM}/{nick}'>{x}</presence>")))
}

/// A field of a form.
fn field(var: &str, value: &str) -> String {
    format!("<field var='{var}'><value>{value}</value></field>")
}

/// Submits the configuration; the answer.
fn configure(client: &NodeClient, fields: &str) -> String {
    let form = format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
         <value>http://jabber.org/protocol/muc#roomconfig</value></field>{fields}</x>"
    );
    owner(client, "set", &form).pop().unwrap()
}

fn owner(client: &NodeClient, kind: &str, payload: &str) -> Vec<String> {
    request(
        client,
        kind,
        ROOM,
        &format!("<query xmlns='http://jabber.org/protocol/muc#owner'>{payload}</query>"),
    )
}

fn admin(client: &NodeClient, kind: &str, items: &str) -> Vec<String> {
    request(
        client,
        kind,
        ROOM,
        &format!("<query xmlns='http://jabber.org/protocol/muc#admin'>{items}</query>"),
    )
}

fn request(client: &NodeClient, kind: &str, to: &str, payload: &str) -> Vec<String> {
    masked(client.request(&format!("<iq type='{kind}' to='{to}' id='r1'>{payload}</iq>")))
}

/// Everything that arrived, discarded.
fn forget(clients: &[&NodeClient]) {
    for client in clients {
        client.recv();
    }
}

/// Stanzas without generated ids.
fn masked(stanzas: Vec<String>) -> Vec<String> {
    stanzas.into_iter().map(|stanza| mask(&stanza)).collect()
}

fn mask(stanza: &str) -> String {
    let mut out = stanza.to_owned();
    for element in ["<occupant-id ", "<stanza-id "] {
        while let Some(start) = out.find(element) {
            let end = start + out[start..].find("/>").unwrap() + 2;
            out.replace_range(start..end, "");
        }
    }
    if let Some(start) = out.find(" stamp='") {
        let end = start + 8 + out[start + 8..].find('\'').unwrap() + 1;
        out.replace_range(start..end, "");
    }
    out
}

/// An available presence of an occupant.
fn presence(to: &NodeClient, nick: &str, item: &str, codes: &[u16]) -> String {
    occupant(to, nick, "", item, codes)
}

/// An unavailable presence of an occupant.
fn gone(to: &NodeClient, nick: &str, item: &str, codes: &[u16]) -> String {
    occupant(to, nick, " type='unavailable'", item, codes)
}

fn occupant(to: &NodeClient, nick: &str, kind: &str, item: &str, codes: &[u16]) -> String {
    let codes: String = codes.iter().map(|code| format!("<status code='{code}'/>")).collect();
    format!(
        "<presence from='{ROOM}/{nick}' to='{}'{kind}><x xmlns='http://jabber.org/protocol/muc#user'>{item}{codes}</x>\
         </presence>",
        to.full()
    )
}

fn item(affiliation: &str, role: &str) -> String {
    format!("<item affiliation='{affiliation}' role='{role}'/>")
}

fn item_of(affiliation: &str, role: &str, client: &NodeClient) -> String {
    format!("<item affiliation='{affiliation}' jid='{}' role='{role}'/>", client.full())
}

/// The empty subject, which ends the history.
fn no_subject(to: &NodeClient) -> String {
    format!("<message from='{ROOM}' to='{}' type='groupchat'><subject/></message>", to.full())
}

fn result(to: &NodeClient) -> String {
    format!("<iq from='{ROOM}' to='{}' type='result' id='r1'/>", to.full())
}

/// Asserts that the only stanza is an error with this type and condition.
#[track_caller]
fn assert_error(stanzas: &[String], kind: &str, condition: &str) {
    let want = error(kind, condition).split_off("<error".len());
    assert!(
        stanzas.len() == 1 && stanzas[0].contains(&want) && stanzas[0].contains("type='error'"),
        "{stanzas:?} is not {want}"
    );
}
