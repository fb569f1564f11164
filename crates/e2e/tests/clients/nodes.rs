//! Tests of clients with PubSub (XEP-0060, 0248) and personal eventing (XEP-0163): publish, subscribe, avatars, moods, bookmarks on
//! two devices.

use throng_e2e::clients::{install_clients, scripts_folder};

use crate::{Certificate, ClientsNode, python};

#[test]
fn slixmpp_with_nodes() {
    let node = ClientsNode::start("slixmpp-nodes", Certificate::Signed);
    let script = scripts_folder().join("slixmpp/nodes.py");
    node.play(node.client(&python(), "starttls").arg(script), "ok bookmarks_on_two_devices\n");
    node.stop();
}

#[test]
fn xmppjs_with_nodes() {
    let node = ClientsNode::start("xmppjs-nodes", Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), "starttls");
    client
        .arg(scripts_folder().join("xmppjs/nodes.js"))
        .env("XMPP_MODULES", install_clients().join("xmppjs"));
    node.play(&mut client, "ok bookmarks_on_two_devices\n");
    node.stop();
}

#[test]
fn nbxmpp_with_nodes() {
    let node = ClientsNode::start("nbxmpp-nodes", Certificate::Signed);
    let python = install_clients().join("gvenv/bin/python");
    let script = scripts_folder().join("nbxmpp/nodes.py");
    node.play(node.client(&python, "starttls").arg(script), "ok bookmarks_on_two_devices\n");
    node.stop();
}

#[test]
fn converse_with_nodes() {
    let node = ClientsNode::start("converse-nodes", Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), "websocket");
    client
        .arg(scripts_folder().join("converse/nodes.js"))
        .env("CHAT_URL", format!("http://{}:{}", node.address, node.http))
        .env("BROWSER_MODULES", install_clients().join("browser"))
        .env("CONVERSE_MODULES", install_clients().join("converse"));
    node.play(&mut client, "all scenes done\n");
    node.stop();
}
