//! XEP-0363 over real HTTP: files are sent and read over HTTP/1.1 and TLS, and survive a restart.

use std::io::Write as _;
use std::path::Path;

use throng_e2e::wait;

use super::http_client::{HttpClient, WebSocketClient};
use super::node::WebNode;

const MODULE: &str = "[modules]\nupload = true\n";

/// A slot for a file: the paths for PUT and GET.
fn slot(node: &WebNode, name: &str, size: usize, content_type: &str) -> (String, String) {
    let mut romeo = WebSocketClient::open(node.plain(), "/ws");
    romeo.login("romeo");
    romeo.send(&format!(
        "<iq xmlns='jabber:client' type='get' id='slot' to='upload.localhost'><request xmlns='urn:xmpp:http:upload:0' \
         filename='{name}' size='{size}' content-type='{content_type}'/></iq>"
    ));
    let reply = romeo.until("</iq>");
    let path = |element: &str| {
        let url = reply.split_once(&format!("<{element} url='")).unwrap_or_else(|| panic!("{reply}")).1;
        let url = url.split_once('\'').expect("an attribute").0.replace("&amp;", "&");
        let path = url.splitn(4, '/').nth(3).expect("a path").to_owned();
        assert!(url.starts_with("https://localhost:"), "{url}");
        format!("/{path}")
    };
    (path("put"), path("get"))
}

fn put(web: &mut HttpClient, path: &str, headers: &str, body: &str) -> String {
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    web.ask(&head, body).0
}

fn get(web: &mut HttpClient, path: &str, headers: &str) -> (String, String) {
    web.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"), "")
}

/// Files below a folder.
fn files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}

#[test]
fn a_file_is_sent_and_read_over_http_and_tls_and_after_a_restart() {
    let mut node = WebNode::start("upload", MODULE);
    let content = "0123456789".repeat(20_000);
    let (to, from) = slot(&node, "a.txt", content.len(), "text/plain");
    let mut web = node.tls_with(&[b"http/1.1"]);
    let stored = put(&mut web, &to, "Origin: https://chat.example\r\n", &content);
    assert!(stored.starts_with("HTTP/1.1 201 "), "{stored}");
    assert!(stored.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{stored}");
    for mut web in [node.plain(), node.tls_with(&[b"http/1.1"])] {
        let (head, body) = get(&mut web, &from, "");
        assert!(head.starts_with("HTTP/1.1 200 ") && body == content, "{head}");
        let (head, body) = get(&mut web, &from, "Range: bytes=199995-\r\n");
        assert!(head.starts_with("HTTP/1.1 206 ") && body == "56789", "{head}{body}");
    }
    node.stop_in_order();
    node.start_again();
    let (head, body) = get(&mut node.plain(), &from, "");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == content, "{head}");
    let again = put(&mut node.plain(), &to, "", &content);
    assert!(again.starts_with("HTTP/1.1 403 "), "a slot of the earlier process: {again}");
    assert_eq!(files(&node.folder.join("data/upload")), 1);
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let node = WebNode::start("upload-head", MODULE);
    let (to, from) = slot(&node, "a.txt", 10, "text/plain");
    let mut web = node.plain();
    put(&mut web, &to, "", "0123456789");
    web.write_all(format!("HEAD {from} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .expect("a connection");
    let head = web.head();
    let fields = head.to_ascii_lowercase();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        fields.contains("content-length: 10\r\n") && fields.contains("content-type: text/plain\r\n"),
        "{head}"
    );
    // The connection has no body left on it.
    let (head, body) = get(&mut web, &from, "");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "0123456789", "{head}");
}

#[test]
fn a_browser_may_ask_first_and_other_methods_do_not_exist() {
    let node = WebNode::start("upload-cors", MODULE);
    let (to, _) = slot(&node, "a.txt", 10, "text/plain");
    let mut web = node.plain();
    let preflight = "Origin: https://chat.example\r\nAccess-Control-Request-Method: PUT\r\n";
    let (head, _) = web.ask(&format!("OPTIONS {to} HTTP/1.1\r\nHost: localhost\r\n{preflight}\r\n"), "");
    let fields = head.to_ascii_lowercase();
    assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
    assert!(fields.contains("access-control-allow-methods: get, head, put, options\r\n"), "{head}");
    assert!(fields.contains("access-control-allow-headers: authorization, content-type"), "{head}");
    let (head, _) = web.ask(&format!("DELETE {to} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.to_ascii_lowercase().contains("allow: get"), "{head}");
}

#[test]
fn only_the_listed_origins_may_send() {
    let node = WebNode::start(
        "upload-origins",
        &format!("{MODULE}[http]\nallowed_origins = ['https://chat.example']\n"),
    );
    let (to, from) = slot(&node, "a.txt", 1, "text/plain");
    let both = "Origin: https://chat.example\r\nOrigin: https://evil.example\r\n";
    for origins in ["Origin: https://evil.example\r\n", both] {
        let refused = put(&mut node.plain(), &to, origins, "1");
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    }
    let stored = put(&mut node.plain(), &to, "Origin: https://chat.example\r\n", "1");
    assert!(stored.starts_with("HTTP/1.1 201 "), "{stored}");
    let (head, _) = get(&mut node.plain(), &from, "");
    assert!(head.to_ascii_lowercase().contains("\r\nvary: origin\r\n"), "{head}");
}

#[test]
fn a_listener_that_requires_tls_serves_no_file_without() {
    let node = WebNode::start_with("upload-tls", MODULE, "tls = 'required'\n");
    let path = "/upload/localhost/x/y";
    assert!(get(&mut node.plain(), path, "").0.starts_with("HTTP/1.1 403 "));
    assert!(get(&mut node.tls_with(&[b"http/1.1"]), path, "").0.starts_with("HTTP/1.1 404 "));
}

#[test]
fn nothing_is_left_of_a_file_that_is_wrong_slow_or_incomplete() {
    let more = format!("{MODULE}[http]\nbody_timeout_seconds = 1\n");
    let node = WebNode::start("upload-wrong", &more);
    let (to, from) = slot(&node, "a.txt", 10, "text/plain");
    let large = put(&mut node.plain(), &to, "", "0123456789a");
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
    let mut chunked = node.plain();
    let head = format!(
        "PUT {to} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let (head, _) = chunked.ask(&head, "a\r\n0123456789\r\n0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 411 "), "{head}");
    // The client stops in the middle.
    let head = format!(
        "PUT {to} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n01234"
    );
    let mut slow = node.plain();
    let (answer, _) = slow.ask(&head, "");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let mut lost = node.plain();
    lost.write_all(head.as_bytes()).expect("a connection");
    drop(lost);
    let folder = node.folder.join("data/upload");
    wait::wait("no file is left", || (files(&folder) == 0).then_some(()));
    assert!(get(&mut node.plain(), &from, "").0.starts_with("HTTP/1.1 404 "));
    // The slot has not been used.
    let sent = || put(&mut node.plain(), &to, "", "0123456789").starts_with("HTTP/1.1 201 ");
    wait::wait("the slot is valid", || sent().then_some(()));
}
