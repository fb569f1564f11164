//! Tests of browser clients: strophe.js and xmpp.js over WebSocket and BOSH, in Node and in Chromium, and the page
//! `/chat`.
//!
//! `clients/strophe/scenes.js`, `clients/xmppjs` and `clients/browser` describe the expectations. In Node everything
//! uses TLS with certificate verification; Chromium also uses plain HTTP, since it treats localhost as secure.
//!
//! # Pitfalls
//!
//! The page needs strophe.js inside the server, so `chat/fetch.sh` must run before the build (`make test` does it).

use std::process::Command;

use throng_e2e::clients::{install_clients, scripts_folder};

use crate::{Certificate, ClientsNode};

#[test]
fn strophe_over_websocket() {
    strophe("websocket", "wss", "ws");
}

#[test]
fn strophe_over_bosh() {
    strophe("bosh", "https", "bosh");
}

#[test]
fn xmppjs_over_websocket() {
    xmppjs("scenarios.js", "xmppjs-ws", "ok time_of_the_server\n");
}

#[test]
fn xmppjs_extensions_over_websocket() {
    xmppjs("extensions.js", "xmppjs-more-ws", "ok profile_and_storage\n");
}

#[test]
fn client_libraries_work_in_a_browser() {
    let node = ClientsNode::start("libraries", Certificate::Signed);
    let mut client = node.browser("libraries.js");
    client.env("STROPHE_MODULES", install_clients().join("strophe"));
    client.env("XMPPJS_MODULES", install_clients().join("xmppjs"));
    node.play(&mut client, "all libraries done\n");
    node.stop();
}

#[test]
fn the_chat_page_works_in_a_browser() {
    let node = ClientsNode::start("chat", Certificate::Signed);
    chat(node, |node| format!("http://{}:{}", node.address, node.http));
}

#[test]
fn the_chat_page_works_over_tls_and_http_2() {
    let node = ClientsNode::start("chat-tls", Certificate::OfTheNode);
    chat(node, |node| format!("https://{}:{}", node.address, node.https));
}

fn chat(node: ClientsNode, url: impl Fn(&ClientsNode) -> String) {
    let mut client = node.browser("chat.js");
    // Screenshots of the page, and its state when a scene failed.
    client.env("CHAT_URL", url(&node)).arg(node.folder.join("looks"));
    node.play(&mut client, "ok the_browser_reports_no_errors\n");
    node.stop();
}

fn strophe(transport: &str, scheme: &str, path: &str) {
    let node = ClientsNode::start(&format!("strophe-{transport}"), Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), transport);
    client.arg(scripts_folder().join("strophe/node.js"));
    client.env("XMPP_URL", format!("{scheme}://{}:{}/{path}", node.address, node.https));
    client.env("XMPP_MODULES", install_clients().join("strophe"));
    node.play(&mut client, "ok an_unknown_session_is_not_taken_up\n");
    node.stop();
}

fn xmppjs(script: &str, name: &str, last: &str) {
    let node = ClientsNode::start(name, Certificate::Signed);
    let mut client = node.client(&install_clients().join("bin/node"), "websocket");
    client.arg(scripts_folder().join("xmppjs").join(script));
    client.env("XMPP_URL", format!("wss://{}:{}/ws", node.address, node.https));
    client.env("XMPP_MODULES", install_clients().join("xmppjs"));
    node.play(&mut client, last);
    node.stop();
}

impl ClientsNode {
    /// Runs a script of `clients/browser` with the addresses of this node.
    fn browser(&self, script: &str) -> Command {
        let mut command = self.client(&install_clients().join("bin/node"), "websocket");
        command.arg(scripts_folder().join("browser").join(script));
        command.env("CHAT_URL", format!("http://{}:{}", self.address, self.http));
        command.env("CHAT_URL_TLS", format!("https://{}:{}", self.address, self.https));
        command.env("BROWSER_MODULES", install_clients().join("browser"));
        command
    }
}
