//! HTTP GET of a metrics page over a connection of its own (RFC 9112), blocking, with a deadline for all of it.
//!
//! Not implemented: TLS, redirects, proxies; the lookup of a host name has no deadline.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::clock;
use crate::plan;
use crate::web::http;

/// Time for connecting, sending and receiving, in microseconds.
const TIMEOUT_US: u64 = 900_000;
/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 8 << 20;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Content of a page.
///
/// # Errors
/// One sentence: the URL is not `http`, the server cannot be reached in time, or its response is not a success.
pub(super) fn get(url: &str) -> Result<String> {
    let deadline = Deadline(clock::now_us() + TIMEOUT_US);
    let target = match plan::endpoint(url) {
        Some(target) if url.trim_start().starts_with("http://") => target.map_err(|error| anyhow!(error))?,
        _ => bail!("the URL does not begin with http://"),
    };
    let mut socket = connect(&target.addresses, deadline)?;
    let path = if target.path.is_empty() { "/" } else { &target.path };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n",
        target.host
    );
    socket.set_write_timeout(Some(deadline.left()?))?;
    socket.write_all(request.as_bytes())?;
    let mut input = Vec::new();
    loop {
        let have = input.len();
        input.resize(have + READ_BYTES, 0);
        socket.set_read_timeout(Some(deadline.left()?))?;
        let count = socket.read(&mut input[have..])?;
        input.truncate(have + count);
        if input.len() > MAX_RESPONSE_BYTES {
            bail!("the response is longer than {MAX_RESPONSE_BYTES} bytes");
        }
        if let Some(response) = http::answer(&input, count == 0).map_err(|error| anyhow!(error))? {
            if !(200..300).contains(&response.status) {
                bail!("the server answered with status {}", response.status);
            }
            return String::from_utf8(response.content.into_owned()).context("the page is not UTF-8");
        }
        if count == 0 {
            bail!("the server closed the connection before the end of the response");
        }
    }
}

fn connect(addresses: &[SocketAddr], deadline: Deadline) -> Result<TcpStream> {
    let mut last = anyhow!("the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, deadline.left()?) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// End of the time for one page, on the generator's clock in microseconds.
#[derive(Clone, Copy)]
struct Deadline(u64);

impl Deadline {
    /// Remaining time, never zero, which a socket refuses as a timeout.
    fn left(self) -> Result<Duration> {
        match self.0.saturating_sub(clock::now_us()) {
            0 => Err(anyhow!("the server did not respond in time")),
            left => Ok(Duration::from_micros(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Serves one response; returns the URL of the page and the thread, which yields the request.
    fn serve(response: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics?all", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = vec![0; 1_024];
            let count = socket.read(&mut request).unwrap();
            socket.write_all(response.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        (url, served)
    }

    #[test]
    fn a_page_arrives_with_a_length_in_chunks_or_until_the_end() {
        for response in [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\na 1\n",
        ] {
            let (url, served) = serve(response);
            assert_eq!(get(&url).unwrap(), "a 1\n", "{response}");
            let request = served.join().unwrap();
            assert!(request.starts_with("GET /metrics?all HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        }
    }

    #[test]
    fn an_invalid_metrics_page_is_a_readable_error() {
        for (response, part) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n", "before the end"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.x"),
        ] {
            let (url, served) = serve(response);
            let error = get(&url).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            served.join().unwrap();
        }
        assert!(get("https://127.0.0.1/metrics").unwrap_err().to_string().contains("http://"));
        assert!(get("127.0.0.1:1/metrics").is_err());
    }
}
