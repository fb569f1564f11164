//! HTTP responses: status line, fields, body; CORS and gzip where they apply (RFC 9110; RFC 9112, section 4; RFC 1952).
//!
//! Not implemented: chunks, ranges, entity tags: every BOSH response is complete and for one reader.
//!
//! # Pitfalls
//!
//! Compressing secrets together with attacker-chosen text reveals their length (BREACH). BOSH responses carry stanzas
//! of one session to its own client; operators can switch gzip off.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use base::clock::Clock;
use flate2::{Compress, Compression, FlushCompress, Status};
use httpdate::HttpDate;

use super::head::ResponseOptions;
use super::origins::Cors;

/// Bodies below this are not worth compressing, in bytes.
pub const MIN_GZIP_BYTES: usize = 1024;
pub(crate) const TEXT_PLAIN: &str = "text/plain; charset=utf-8";

/// Appends a whole response.
pub(crate) fn write_response(
    out: &mut Vec<u8>,
    clock: &dyn Clock,
    status: u16,
    content: &str,
    body: &[u8],
    options: &ResponseOptions,
    more: &[(&str, &str)],
) {
    let compressed = (options.gzip && body.len() > MIN_GZIP_BYTES).then(|| gzip(body));
    let body = compressed.as_deref().unwrap_or(body);
    write_head(out, clock, status, options);
    if !content.is_empty() {
        // The value is a constant or was validated when it was received.
        let _ = write!(out, "Content-Type: {content}\r\n");
    }
    for (name, value) in more.iter().chain(&SECURITY_HEADERS) {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    if options.gzip {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    if compressed.is_some() {
        out.extend_from_slice(b"Content-Encoding: gzip\r\n");
    }
    // RFC 9110, section 8.6: never with 204.
    if status != 204 {
        let _ = write!(out, "Content-Length: {}\r\n", body.len());
    }
    out.extend_from_slice(b"\r\n");
    if !options.head_only && status != 204 {
        out.extend_from_slice(body);
    }
}

/// Appends the response to a preflight request (Fetch, section 3.2.2).
pub(crate) fn write_preflight(out: &mut Vec<u8>, clock: &dyn Clock, options: &ResponseOptions) {
    write_head(out, clock, 204, options);
    out.extend_from_slice(b"Allow: POST, GET, HEAD, OPTIONS\r\n");
    for (name, value) in PREFLIGHT_HEADERS {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Responses echo text from unauthenticated clients: no browser may run it as a page of this origin.
pub const SECURITY_HEADERS: [(&str, &str); 2] =
    [("X-Content-Type-Options", "nosniff"), ("Content-Security-Policy", "sandbox")];

/// Fields of a preflight response, besides the origin.
pub const PREFLIGHT_HEADERS: [(&str, &str); 3] = [
    ("Access-Control-Allow-Methods", "POST, GET, HEAD, OPTIONS"),
    ("Access-Control-Allow-Headers", "Content-Type, Authorization, X-Requested-With"),
    ("Access-Control-Max-Age", "86400"),
];

fn write_head(out: &mut Vec<u8>, clock: &dyn Clock, status: u16, options: &ResponseOptions) {
    let _ = write!(out, "HTTP/1.1 {status} {}\r\nDate: ", reason_phrase(status));
    write_date(out, clock.unix_millis() / 1000);
    out.extend_from_slice(b"\r\nCache-Control: no-store\r\n");
    match (options.keep_alive, options.http_1_0) {
        (true, false) => {}
        (true, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
    }
    match &options.cors {
        Cors::NoHeader => {}
        Cors::Any => out.extend_from_slice(b"Access-Control-Allow-Origin: *\r\n"),
        Cors::Only(origin) => {
            let _ = write!(out, "Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n");
        }
    }
}

/// Reason phrase of a status (RFC 9110, section 15).
fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "",
    }
}

/// Appends a time as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
fn write_date(out: &mut Vec<u8>, unix: u64) {
    thread_local! {
        static LAST: RefCell<(u64, [u8; 29])> = const { RefCell::new((u64::MAX, [0; 29])) };
    }
    LAST.with_borrow_mut(|(second, text)| {
        if *second != unix {
            let mut room = text.as_mut_slice();
            let _ = write!(room, "{}", http_date(unix));
            *second = unix;
        }
        out.extend_from_slice(text);
    });
}

/// Times after the year 9999 become its last second.
fn http_date(unix: u64) -> HttpDate {
    HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix.min(253_402_300_799)))
}

/// Compresses a body as gzip, at the fastest level. The compressor is per thread: creating one costs more than most
/// responses.
pub fn gzip(body: &[u8]) -> Vec<u8> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<Compress>> = const { RefCell::new(None) };
    }
    let mut out = Vec::with_capacity(body.len() / 3 + 64);
    // RFC 1952, section 2.3: magic, deflate, no flags, no time, fastest, unknown system.
    out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255]);
    COMPRESSOR.with_borrow_mut(|compressor| {
        let compressor = compressor.get_or_insert_with(|| Compress::new(Compression::fast(), false));
        compressor.reset();
        loop {
            let done = usize::try_from(compressor.total_in()).unwrap_or(usize::MAX);
            let rest = body.get(done..).unwrap_or_default();
            match compressor.compress_vec(rest, &mut out, FlushCompress::Finish) {
                Ok(Status::Ok | Status::BufError) => out.reserve(out.capacity().max(64)),
                // An error can only be a bug of the library; the output is truncated and fails to decompress.
                Ok(Status::StreamEnd) | Err(_) => break,
            }
        }
    });
    let mut sum = flate2::Crc::new();
    sum.update(body);
    out.extend_from_slice(&sum.sum().to_le_bytes());
    out.extend_from_slice(&sum.amount().to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::ManualClock;
    use std::io::Read;

    const XML: &str = crate::bosh::BoshResponse::DEFAULT_CONTENT_TYPE;

    const PLAIN: ResponseOptions =
        ResponseOptions { cors: Cors::Any, gzip: false, keep_alive: true, http_1_0: false, head_only: false };

    fn answer(status: u16, body: &[u8], options: &ResponseOptions) -> String {
        let mut out = Vec::new();
        write_response(&mut out, &ManualClock::new(), status, XML, body, options, &[]);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_response_is_complete() {
        assert_eq!(
            answer(200, b"<body/>", &PLAIN),
            "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nCache-Control: no-store\r\n\
             Access-Control-Allow-Origin: *\r\nContent-Type: text/xml; charset=utf-8\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Security-Policy: sandbox\r\nContent-Length: 7\r\n\r\n<body/>"
        );
        let last = ResponseOptions { keep_alive: false, cors: Cors::Only("https://a.org".into()), ..PLAIN };
        let text = answer(404, b"", &last);
        assert!(text.contains("\r\nConnection: close\r\n") && text.contains("\r\nVary: Origin\r\n"));
        assert!(text.contains("\r\nAccess-Control-Allow-Origin: https://a.org\r\n"));
        let old = ResponseOptions { http_1_0: true, head_only: true, ..PLAIN };
        let text = answer(200, b"<body/>", &old);
        assert!(text.contains("\r\nConnection: keep-alive\r\n"));
        assert!(text.contains("Content-Length: 7\r\n") && text.ends_with("\r\n\r\n"), "HEAD");
    }

    #[test]
    fn large_answers_are_compressed_and_small_ones_are_not() {
        let options = ResponseOptions { gzip: true, ..PLAIN };
        assert!(!answer(200, &[b'x'; MIN_GZIP_BYTES], &options).contains("gzip"));
        for length in [MIN_GZIP_BYTES + 1, 100_000, 3_000_000] {
            let body: Vec<u8> = (0..length as u64).map(|n| (n * n % 251) as u8).collect();
            let mut out = Vec::new();
            write_response(&mut out, &ManualClock::new(), 200, XML, &body, &options, &[]);
            let end = out.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            let head = String::from_utf8_lossy(&out[..end]).into_owned();
            assert!(
                head.contains("Content-Encoding: gzip\r\n") && head.contains("Vary: Accept-Encoding\r\n")
            );
            assert!(head.contains(&format!("Content-Length: {}\r\n", out.len() - end)));
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(&out[end..]).read_to_end(&mut back).unwrap();
            assert_eq!(back, body);
        }
    }

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        let of = |unix| http_date(unix).to_string();
        assert_eq!(of(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT", "the example of RFC 9110");
        assert_eq!(of(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(of(1_709_210_096), "Thu, 29 Feb 2024 12:34:56 GMT");
        assert_eq!(of(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
        assert_eq!(of(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(of(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
