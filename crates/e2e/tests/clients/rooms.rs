//! Tests of clients in rooms (XEP-0045): create, configure, join, talk, invite, kick, ban, moderate, and enter again after a cut.

use throng_e2e::clients::{install_clients, scripts_folder};

use crate::{Certificate, ClientsNode, USERS, python};

#[test]
fn slixmpp_in_rooms() {
    let node = ClientsNode::start("slixmpp-rooms", Certificate::Signed);
    let script = scripts_folder().join("slixmpp/rooms.py");
    node.play(node.client(&python(), "starttls").arg(script), "ok destroyed_room\n");
    node.stop();
}

#[test]
fn xmppjs_in_rooms() {
    let node = ClientsNode::start("xmppjs-rooms", Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), "starttls");
    client
        .arg(scripts_folder().join("xmppjs/rooms.js"))
        .env("XMPP_MODULES", install_clients().join("xmppjs"));
    node.play(&mut client, "ok destroyed_room\n");
    node.stop();
}

#[test]
fn nbxmpp_in_rooms() {
    let node = ClientsNode::start("nbxmpp-rooms", Certificate::Signed);
    let python = install_clients().join("gvenv/bin/python");
    let script = scripts_folder().join("nbxmpp/rooms.py");
    node.play(node.client(&python, "starttls").arg(script), "ok destroyed_room\n");
    node.stop();
}

#[test]
fn profanity_in_a_room() {
    let node = ClientsNode::start("profanity-room", Certificate::OfTheNode);
    let mut client = node.client(&python(), "starttls");
    client.arg(scripts_folder().join("terminal/muc.py")).env("PYTHONPATH", scripts_folder().join("slixmpp"));
    // An administrator of the node is an owner of every room, and cannot be kicked.
    client.env("XMPP_USER_A", USERS[2]);
    node.play(&mut client, "ok leave_and_come_back\n");
    node.stop();
}

#[test]
fn converse_in_rooms() {
    let node = ClientsNode::start("converse-rooms", Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), "websocket");
    client
        .arg(scripts_folder().join("converse/rooms.js"))
        .env("CHAT_URL", format!("http://{}:{}", node.address, node.http))
        .env("BROWSER_MODULES", install_clients().join("browser"))
        .env("CONVERSE_MODULES", install_clients().join("converse"));
    node.play(&mut client, "all scenes done\n");
    node.stop();
}
