//! Responses that are requested and not read.
//!
//! Done: large files are requested over HTTP/1.1, and the connections are left without reading. Over HTTP/2, with windows of
//! zero, one connection requests 64 files.
//!
//! Rule: RFC 9113, sections 6.9.2 and 10.5 (CVE-2019-9511 and 9517: data that the peer does not take); "slow read" attacks of
//! HTTP/1.1.
//!
//! Right: such a connection ends after `write_stall_timeout_seconds`, such a stream is reset and its connection continues. No
//! file is open meanwhile, and memory is bounded.

use std::io::Read as _;

use throng_e2e::wait;

use crate::support::{ProgramUnderAttack, RawSocket};

const TOP: &str = "[modules]\nupload = true\n[http]\nwrite_stall_timeout_seconds = 1\n";
/// More than the buffers of two sockets.
const LARGE: usize = 48_000_000;

/// Uploads a file and returns its path.
fn upload(program: &ProgramUnderAttack, size: usize) -> String {
    let mut romeo = program.login("romeo", "orchard");
    romeo.send(format!(
        "<iq type='get' id='slot' to='upload.localhost'><request xmlns='urn:xmpp:http:upload:0' filename='a' \
         size='{size}'/></iq>"
    ));
    let reply = romeo.until("</iq>");
    let url = reply.split_once("<put url='").unwrap_or_else(|| panic!("{reply}")).1;
    let url = url.split_once('\'').unwrap().0.replace("&amp;", "&");
    let path = format!("/{}", url.splitn(4, '/').nth(3).unwrap());
    let mut connection = program.connect(program.http);
    connection.send(format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    ));
    connection.send("x".repeat(size));
    let answer = connection.rest();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    path.split_once('?').unwrap().0.to_owned()
}

/// Descriptors of the program that are uploaded files.
fn open_files(program: &ProgramUnderAttack) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap();
    let targets = descriptors.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("/data/upload/")).count()
}

#[test]
fn a_connection_that_does_not_read_ends() {
    let program = ProgramUnderAttack::start("unread", TOP, "");
    let path = upload(&program, LARGE);
    let requests = program.metric("throng_http_route_requests_total");
    let mut connections: Vec<RawSocket> = (0..4).map(|_| program.connect(program.http)).collect();
    for connection in &mut connections {
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    wait::wait("the connections have been closed", || {
        let answered = program.metric("throng_http_route_requests_total") - requests;
        // One is that of the request for the metrics.
        let open = program.metric("throng_http_api_connections");
        (answered >= 4.0 && open <= 1.0).then_some(())
    });
    assert_eq!(open_files(&program), 0);
    for connection in &mut connections {
        let received = connection.rest().len();
        assert!(received < LARGE, "{received} bytes of a response that was not read in time");
    }
    assert_eq!(program.get("/healthz").0, 200);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A text as a literal of RFC 7541, section 5.2.
fn literal(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut left = text.len();
    if left < 127 {
        bytes.push(u8::try_from(left).unwrap());
    } else {
        bytes.push(127);
        left -= 127;
        while left >= 128 {
            bytes.push(u8::try_from(left % 128).unwrap() | 128);
            left /= 128;
        }
        bytes.push(u8::try_from(left).unwrap());
    }
    bytes.extend(text.as_bytes());
    bytes
}

fn head_of_get(path: &str) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    fields.iter().flat_map(|(name, value)| [vec![0], literal(name), literal(value)].concat()).collect()
}

/// Kind, flags and stream of the next frame.
fn next_frame(connection: &mut RawSocket) -> (u8, u8, u32) {
    let mut head = [0; 9];
    connection.0.read_exact(&mut head).expect("a frame");
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    connection.0.read_exact(&mut payload).expect("its payload");
    (kind, flags, u32::from_be_bytes(stream))
}

#[test]
fn a_stream_that_is_not_read_is_reset_and_its_connection_continues() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const PING: u8 = 6;
    let program = ProgramUnderAttack::start("unread-h2", TOP, "");
    let path = upload(&program, 200_000);
    let mut connection = program.connect(program.http);
    // SETTINGS_INITIAL_WINDOW_SIZE = 0.
    connection
        .send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat());
    for n in 0..64 {
        connection.send(frame(HEADERS, 5, 2 * n + 1, &head_of_get(&path)));
    }
    let (mut answered, mut reset) = (0, 0);
    while answered < 64 {
        match next_frame(&mut connection) {
            (HEADERS, ..) => answered += 1,
            (RESET, ..) => reset += 1,
            _ => {}
        }
    }
    // The chunk that each stream waits to send has been read.
    wait::wait("no file is open", || (open_files(&program) == 0).then_some(()));
    while reset < 64 {
        if next_frame(&mut connection).0 == RESET {
            reset += 1;
        }
    }
    connection.send(frame(PING, 0, 0, &[7; 8]));
    while next_frame(&mut connection) != (PING, 1, 0) {}
}
