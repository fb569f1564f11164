//! HTTP/1.1 client for BOSH and the WebSocket upgrade (RFC 9110, RFC 9112): writes requests, finds responses in bytes.
//!
//! Not implemented: trailers (skipped), folded header lines (RFC 9112, section 5.2 forbids sending them), content
//! codings (none is requested), responses to HEAD.
//!
//! # Pitfalls
//!
//! A response without a length ends with its connection; the caller passes the end of the connection to [`answer`].

use std::borrow::Cow;
use std::io::Write as _;

/// Longest response head, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// Longest content in bytes; a roster of thousands comes in one response.
const CONTENT_BYTES: usize = 16 << 20;
/// Longest chunk-size line, in bytes.
const CHUNK_LINE: usize = 256;

/// A complete response.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpResponse<'a> {
    /// Status code.
    pub status: u16,
    /// Length of the head with its empty line, in bytes.
    pub head: usize,
    /// Content. Owned if it was chunked.
    pub content: Cow<'a, [u8]>,
    /// Length of the whole response, in bytes.
    pub length: usize,
    /// The server will close the connection.
    pub close: bool,
}

/// Length of the content.
enum ContentLength {
    None,
    Bytes(usize),
    Chunked,
    UntilEnd,
}

/// Appends the head of a POST with `content` bytes of content (RFC 9112, section 3).
pub fn post(path: &str, host: &str, content: usize, out: &mut Vec<u8>) {
    // Writing into a vector does not fail.
    let _ = write!(
        out,
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {content}\r\n\r\n"
    );
}

/// Finds a response at the start of `input`; `None` if it is incomplete. `ended` means that nothing more will come.
///
/// Interim responses (1xx except 101) are skipped.
///
/// # Errors
/// One sentence: the input is not HTTP/1.x, or exceeds the limits.
pub fn answer(input: &[u8], ended: bool) -> Result<Option<HttpResponse<'_>>, &'static str> {
    let mut skipped = 0;
    loop {
        let rest = input.get(skipped..).unwrap_or_default();
        let Some(mut answer) = one(rest, ended)? else { return Ok(None) };
        if !(100..200).contains(&answer.status) || answer.status == 101 {
            answer.length += skipped;
            answer.head += skipped;
            return Ok(Some(answer));
        }
        skipped += answer.length;
    }
}

fn one(input: &[u8], ended: bool) -> Result<Option<HttpResponse<'_>>, &'static str> {
    let window = input.get(..HEAD_BYTES).unwrap_or(input);
    let Some(head) = memchr::memmem::find(window, b"\r\n\r\n").map(|at| at + 4) else {
        return match input.len() {
            HEAD_BYTES.. => Err("the headers of an HTTP response are too long"),
            _ if !b"HTTP/1.".starts_with(&input[..input.len().min(7)]) => {
                Err("the server does not speak HTTP/1.x")
            }
            _ => Ok(None),
        };
    };
    let text =
        std::str::from_utf8(&input[..head]).map_err(|_| "the headers of an HTTP response are not ASCII")?;
    let mut lines = text.split("\r\n");
    let (status, old) = status(lines.next().unwrap_or_default())?;
    let mut length = None;
    let (mut chunked, mut close) = (false, old);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let bytes = value
                .parse::<usize>()
                .map_err(|_| "the Content-Length of an HTTP response is not a number")?;
            if length.is_some_and(|other| other != bytes) {
                return Err("an HTTP response has two lengths");
            }
            length = Some(bytes);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
            if !chunked {
                return Err("an HTTP response has a transfer coding that was not requested");
            }
        } else if name.eq_ignore_ascii_case("connection") {
            let has = |wanted: &str| value.split(',').any(|word| word.trim().eq_ignore_ascii_case(wanted));
            close = has("close") || (old && !has("keep-alive"));
        }
    }
    let length = match (status, chunked, length) {
        (100..=199 | 204 | 304, ..) => ContentLength::None,
        (_, true, _) => ContentLength::Chunked,
        (_, false, Some(bytes)) if bytes > CONTENT_BYTES => {
            return Err("the body of an HTTP response is too long");
        }
        (_, false, Some(bytes)) => ContentLength::Bytes(bytes),
        (_, false, None) => ContentLength::UntilEnd,
    };
    let rest = &input[head..];
    let (content, taken) = match length {
        ContentLength::None => (Cow::Borrowed(&rest[..0]), 0),
        ContentLength::Bytes(bytes) => match rest.get(..bytes) {
            Some(content) => (Cow::Borrowed(content), bytes),
            None => return Ok(None),
        },
        ContentLength::UntilEnd if rest.len() > CONTENT_BYTES => {
            return Err("the body of an HTTP response is too long");
        }
        ContentLength::UntilEnd if ended => {
            close = true;
            (Cow::Borrowed(rest), rest.len())
        }
        ContentLength::UntilEnd => return Ok(None),
        ContentLength::Chunked => match chunks(rest)? {
            Some((content, taken)) => (Cow::Owned(content), taken),
            None => return Ok(None),
        },
    };
    Ok(Some(HttpResponse { status, head, content, length: head + taken, close }))
}

/// Status code, and whether the version is 1.0.
fn status(line: &str) -> Result<(u16, bool), &'static str> {
    let wrong = "the server does not speak HTTP/1.x";
    let (version, rest) = line.split_once(' ').ok_or(wrong)?;
    let old = match version {
        "HTTP/1.0" => true,
        "HTTP/1.1" => false,
        _ => return Err(wrong),
    };
    let code = rest.split(' ').next().unwrap_or_default();
    let code = code.parse().ok().filter(|code| (100..1_000).contains(code)).ok_or(wrong)?;
    Ok((code, old))
}

/// Chunked content (RFC 9112, section 7.1), and the number of bytes consumed.
fn chunks(input: &[u8]) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    let wrong = "a chunk of an HTTP response is malformed";
    let mut content = Vec::new();
    let mut at = 0;
    loop {
        let rest = &input[at..];
        let window = rest.get(..CHUNK_LINE).unwrap_or(rest);
        let Some(end) = memchr::memmem::find(window, b"\r\n") else {
            return if rest.len() >= CHUNK_LINE { Err(wrong) } else { Ok(None) };
        };
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| wrong)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| wrong)?;
        if size > CONTENT_BYTES || content.len() + size > CONTENT_BYTES {
            return Err("the body of an HTTP response is too long");
        }
        at += end + 2;
        if size == 0 {
            break;
        }
        let Some(chunk) = input.get(at..at + size) else { return Ok(None) };
        content.extend_from_slice(chunk);
        at += size;
        match input.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(_) => return Err(wrong),
            None => return Ok(None),
        }
    }
    // Trailers, up to the empty line.
    loop {
        let rest = &input[at..];
        let Some(end) = memchr::memmem::find(rest, b"\r\n") else {
            return if rest.len() > HEAD_BYTES { Err(wrong) } else { Ok(None) };
        };
        at += end + 2;
        if end == 0 {
            return Ok(Some((content, at)));
        }
    }
}

/// Value of a header in a head that [`answer`] has found.
pub fn header<'a>(head: &'a [u8], wanted: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> HttpResponse<'_> {
        answer(text.as_bytes(), false).unwrap().unwrap()
    }

    #[test]
    fn a_response_with_a_length_is_read_at_every_split() {
        let text = "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\ncontent-length: 7\r\n\r\n<body/>HTTP";
        let end = text.len() - 4;
        for cut in 0..end {
            assert_eq!(answer(&text.as_bytes()[..cut], false), Ok(None), "{cut}");
        }
        let found = whole(text);
        assert_eq!(
            (found.status, &*found.content, found.length, found.close),
            (200, &b"<body/>"[..], end, false)
        );
        assert_eq!(header(&text.as_bytes()[..found.head], "Content-type"), Some("text/xml"));
    }

    #[test]
    fn chunked_responses_are_read_at_every_split() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<body\r\n2;x=y\r\n/>\r\n0\r\nT: v\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(answer(&text.as_bytes()[..cut], false), Ok(None), "{cut}");
        }
        let found = whole(text);
        assert_eq!((&*found.content, found.length), (&b"<body/>"[..], text.len()));
    }

    #[test]
    fn connection_close_is_recognised() {
        for (head, close) in [
            ("HTTP/1.1 200 OK\r\n", false),
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n", true),
            ("HTTP/1.0 200 OK\r\n", true),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", false),
        ] {
            assert_eq!(whole(&format!("{head}Content-Length: 0\r\n\r\n")).close, close, "{head}");
        }
    }

    #[test]
    fn without_a_length_the_end_of_the_connection_is_the_end() {
        let text = "HTTP/1.0 404 Not Found\r\n\r\ngone";
        assert_eq!(answer(text.as_bytes(), false), Ok(None));
        let found = answer(text.as_bytes(), true).unwrap().unwrap();
        assert_eq!((found.status, &*found.content, found.close), (404, &b"gone"[..], true));
    }

    #[test]
    fn interim_responses_are_skipped_except_101() {
        let found = whole("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!((found.status, found.content.len()), (204, 0));
        assert_eq!(whole("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n").status, 101);
    }

    #[test]
    fn invalid_http_is_an_immediate_error() {
        for text in [
            "<?xml version='1.0'?>",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(answer(text.as_bytes(), false).is_err(), "{text}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES));
        assert!(answer(long.as_bytes(), false).is_err());
    }
}
