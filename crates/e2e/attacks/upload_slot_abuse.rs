//! Abuse of upload slots and of the names of files.
//!
//! Done: a slot for 10 bytes is used with more and with fewer bytes, with a part of the file, with another type, with the
//! signature of another slot, with a body that stops in the middle, and twice. Names of files contain path components, line
//! breaks and quotes. Files are requested by paths that lead out of the folder.
//!
//! Rule: XEP-0363, sections 4, 8 and 10; RFC 9110, sections 5.5 and 14.5; CWE-22 and CWE-113. Servers that forwarded the name of
//! a file to the disk or to a header had both.
//!
//! Right: a slot accepts one file of exactly its size and type, once. What is refused leaves nothing on the disk. No name reaches
//! the disk or adds a header, and no path leads to another file.

use std::path::{Path, PathBuf};

use throng_e2e::wait;

use crate::support::{ProgramUnderAttack, RawSocket};

const TOP: &str = "[modules]\nupload = true\n[http]\nbody_timeout_seconds = 1\n";

/// A slot for a file: the paths for PUT and GET. `name` is written into the attribute as it is.
fn slot(client: &mut RawSocket, name: &str, size: usize) -> (String, String) {
    client.send(format!(
        "<iq type='get' id='slot' to='upload.localhost'><request xmlns='urn:xmpp:http:upload:0' filename='{name}' \
         size='{size}' content-type='text/plain'/></iq>"
    ));
    let reply = client.until("</iq>");
    let path = |element: &str| {
        let url = reply.split_once(&format!("<{element} url='")).unwrap_or_else(|| panic!("{reply}")).1;
        let url = url.split_once('\'').unwrap().0.replace("&amp;", "&");
        format!("/{}", url.splitn(4, '/').nth(3).unwrap())
    };
    (path("put"), path("get"))
}

/// Sends a PUT; `length` is the announced one. Returns the status.
fn put(program: &ProgramUnderAttack, path: &str, headers: &str, length: usize, body: &str) -> u16 {
    let answer = program.http(&format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    ));
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.unwrap_or_else(|| panic!("{answer:?}"))
}

/// Files below a folder, relative to it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_slot_accepts_one_file_of_its_size_and_type_once() {
    let program = ProgramUnderAttack::start("upload-slots", TOP, "");
    let mut romeo = program.login("romeo", "orchard");
    let (to, from) = slot(&mut romeo, "a.txt", 10);
    let (other, _) = slot(&mut romeo, "b.txt", 10);
    let (plain, ten) = ("Content-Type: text/plain\r\n", "0123456789");
    assert_eq!(put(&program, &to, plain, 11, "0123456789a"), 413, "more than announced");
    assert_eq!(put(&program, &to, plain, 9, "012345678"), 400, "less than announced");
    assert_eq!(put(&program, &to, "Content-Type: text/html\r\n", 10, ten), 415, "another type");
    assert_eq!(
        put(&program, &to, &format!("{plain}Content-Range: bytes 0-9/20\r\n"), 10, ten),
        400,
        "a part"
    );
    let forged = format!("{from}?{}", other.split_once('?').unwrap().1);
    assert_eq!(put(&program, &forged, plain, 10, ten), 403, "the signature of another slot");
    assert_eq!(put(&program, &from, plain, 10, ten), 403, "no signature");
    assert_eq!(put(&program, &to, plain, 10, "01234"), 408, "a body that stops");
    let folder = program.folder.join("data/upload");
    wait::wait("nothing is left on the disk", || files(&folder).is_empty().then_some(()));
    assert_eq!(program.get(&from).0, 404);
    assert_eq!(put(&program, &to, plain, 10, ten), 201);
    assert_eq!(put(&program, &to, plain, 10, "9876543210"), 409, "twice");
    assert!(program.get(&from).1.ends_with(ten));
    assert_eq!(files(&folder).len(), 1);
}

#[test]
fn a_name_neither_reaches_the_disk_nor_adds_a_header() {
    let program = ProgramUnderAttack::start("upload-names", TOP, "");
    let mut romeo = program.login("romeo", "orchard");
    let names = [
        "../../../../etc/passwd",
        "..\\..\\throng.toml",
        "..%2f..%2fthrong.toml",
        "a&#13;&#10;Set-Cookie: x=y&#13;&#10;",
        "a&quot;; filename=&quot;b.html",
        ".",
        "..",
        "\u{202e}gpj.exe",
        "-rf",
    ];
    for name in names {
        let (to, from) = slot(&mut romeo, name, 1);
        assert_eq!(put(&program, &to, "Content-Type: text/plain\r\n", 1, "x"), 201, "{name}");
        let (status, answer) = program.get(&from);
        assert!(status == 200 && answer.ends_with("\r\n\r\nx"), "{name}: {answer}");
        let head = answer.to_ascii_lowercase();
        assert!(!head.contains("\r\nset-cookie") && !head.contains("filename=\""), "{answer}");
    }
    let folder = program.folder.join("data/upload/localhost");
    let stored = files(&folder);
    assert_eq!(stored.len(), names.len());
    for file in stored {
        let below: Vec<&str> =
            file.strip_prefix(&folder).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
        let is_plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        assert!(below.len() == 2 && below.iter().all(is_plain), "{below:?}");
    }
}

#[test]
fn a_path_of_an_upload_leads_to_no_other_file() {
    let program = ProgramUnderAttack::start("upload-paths", TOP, "");
    let mut romeo = program.login("romeo", "orchard");
    let (to, from) = slot(&mut romeo, "a.txt", 1);
    assert_eq!(put(&program, &to, "Content-Type: text/plain\r\n", 1, "x"), 201);
    let token = from.rsplit_once('/').unwrap().0;
    for path in [
        format!("{token}/../../../throng.toml"),
        format!("{token}/..%2f..%2f..%2fthrong.toml"),
        format!("{token}/"),
        format!("{token}/b.txt"),
        token.to_owned(),
        format!("{from}/../x"),
        "/upload/localhost/../../throng.toml".to_owned(),
        "/upload/..%2f..%2f/throng.toml/x".to_owned(),
        "/upload/%2e%2e/%2e%2e/throng.toml".to_owned(),
        "/upload/other.test/x/y".to_owned(),
        format!("/upload/other.test/{}", from.splitn(4, '/').nth(3).unwrap()),
        "/upload/localhost/%00/%00".to_owned(),
        "/upload/localhost/AAAA/a.txt".to_owned(),
    ] {
        let (status, answer) = program.get(&path);
        assert!((300..500).contains(&status), "{path}: {answer}");
        assert!(!answer.contains("data_dir") && !answer.ends_with("\r\n\r\nx"), "{path}: {answer}");
    }
}
