//! PROXY protocol, versions 1 and 2: a header in which a load balancer sends the address of its client.
//!
//! <https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>, sections 2.1 and 2.2. The header precedes TLS, XMPP
//! and HTTP, so exactly its bytes are read from the socket: a TLS record may follow. Of the TLVs only `PP2_TYPE_SSL` is
//! read: whether the client's connection is encrypted.
//!
//! Own code, because the libraries do not say how many bytes are missing, so that reading and its limit would stay
//! here: proxy-header 0.1 also accepts any byte after `PROXY`, ppp 2.3 brings a second version of thiserror.
//!
//! Not implemented: UNIX sockets and datagrams as clients, checksums (`PP2_TYPE_CRC32C`), names of certificates.
//!
//! # Pitfalls
//!
//! The sender of the header can claim any address. A caller reads it only from trusted addresses and never guesses
//! whether there is one (section 2: a receiver expects it always or never).

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpStream;

use crate::stream::byte_stream::ByteStream;

/// Content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// A connection of the proxy itself (a health check), or of an unknown client.
    Local,
    /// A connection on behalf of a client.
    Proxied {
        /// Address of the client.
        peer: SocketAddr,
        /// The client's connection to the proxy is encrypted.
        secure: bool,
    },
}

/// First twelve bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum size of a version 1 header, with CRLF.
const MAX_V1_BYTES: usize = 107;
/// Maximum size of addresses and TLVs in version 2. The protocol allows 65535 bytes; certificate names take a few
/// hundred.
const MAX_V2_BYTES: usize = 4096;
/// Type of the TLV about the client's encryption, and its bit for "encrypted".
const TLV_SSL: u8 = 0x20;
const CLIENT_SSL: u8 = 0x01;

/// Result of parsing the bytes read so far.
#[derive(Debug, PartialEq, Eq)]
enum ParseStep {
    /// The header has at least this many bytes.
    Need(usize),
    Done(ProxyHeader),
    Bad,
}

/// Reads one header from an accepted socket, and no byte after it.
///
/// # Errors
/// `InvalidData` for an invalid header, and errors of the socket. There is no timeout; the caller sets one.
pub async fn read_header(socket: &mut TcpStream) -> io::Result<ProxyHeader> {
    let mut header = Vec::with_capacity(MAX_V1_BYTES);
    loop {
        let missing = match parse(&header) {
            ParseStep::Done(announced) => return Ok(announced),
            ParseStep::Bad => return Err(io::ErrorKind::InvalidData.into()),
            ParseStep::Need(missing) => missing,
        };
        let have = header.len();
        header.resize(have + missing, 0);
        let room = header.get_mut(have..).unwrap_or_default();
        let count = poll_fn(|cx| ByteStream::poll_read(socket, cx, room)).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        header.truncate(have + count);
    }
}

fn parse(header: &[u8]) -> ParseStep {
    // Both versions have at least 15 bytes.
    let Some((start, rest)) = header.split_first_chunk::<12>() else {
        return ParseStep::Need(12 - header.len());
    };
    if start == SIGNATURE { parse_v2(rest) } else { parse_v1(header) }
}

/// Version 1, section 2.1.
fn parse_v1(header: &[u8]) -> ParseStep {
    let Some(line) = header.strip_suffix(b"\r\n") else {
        let fits = header.starts_with(b"PROXY ") && header.len() < MAX_V1_BYTES;
        return if fits { ParseStep::Need(1) } else { ParseStep::Bad };
    };
    let announced = || {
        let mut words = std::str::from_utf8(line.strip_prefix(b"PROXY ")?).ok()?.split(' ');
        let family = words.next()?;
        if family == "UNKNOWN" {
            return Some(ProxyHeader::Local);
        }
        let [source, target, port, target_port] =
            [words.next()?, words.next()?, words.next()?, words.next()?];
        let _: u16 = target_port.parse().ok()?;
        let (ip, other): (IpAddr, IpAddr) = (source.parse().ok()?, target.parse().ok()?);
        let fits = match family {
            "TCP4" => ip.is_ipv4() && other.is_ipv4(),
            "TCP6" => ip.is_ipv6() && other.is_ipv6(),
            _ => false,
        };
        let peer = SocketAddr::new(ip.to_canonical(), port.parse().ok()?);
        (fits && words.next().is_none()).then_some(ProxyHeader::Proxied { peer, secure: false })
    };
    announced().map_or(ParseStep::Bad, ParseStep::Done)
}

/// Version 2 after its signature, section 2.2.
fn parse_v2(rest: &[u8]) -> ParseStep {
    let Some((&[command, family, high, low], rest)) = rest.split_first_chunk::<4>() else {
        return ParseStep::Need(4 - rest.len());
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2_BYTES || command >> 4 != 2 {
        return ParseStep::Bad;
    }
    let Some(missing) = length.checked_sub(rest.len()) else { return ParseStep::Bad };
    if missing > 0 {
        return ParseStep::Need(missing);
    }
    match (command & 15, family) {
        // LOCAL: the rest is skipped. UNSPEC and UNIX: no usable client address.
        (0, _) | (1, 0x00 | 0x31) => ParseStep::Done(ProxyHeader::Local),
        (1, 0x11) => match rest.split_first_chunk::<12>() {
            Some((&[a, b, c, d, _, _, _, _, high, low, _, _], more)) => {
                proxied_client(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), [high, low], more)
            }
            None => ParseStep::Bad,
        },
        (1, 0x21) => match rest.split_first_chunk::<36>() {
            Some((addresses, more)) => {
                // Two addresses and two ports; the client's come first.
                let (Some(source), Some([high, low, _, _])) =
                    (addresses.first_chunk::<16>(), addresses.last_chunk::<4>())
                else {
                    return ParseStep::Bad;
                };
                let ip = IpAddr::V6(Ipv6Addr::from(*source)).to_canonical();
                proxied_client(ip, [*high, *low], more)
            }
            None => ParseStep::Bad,
        },
        _ => ParseStep::Bad,
    }
}

fn proxied_client(ip: IpAddr, port: [u8; 2], mut more: &[u8]) -> ParseStep {
    let mut secure = false;
    while !more.is_empty() {
        let Some((&[kind, high, low], rest)) = more.split_first_chunk::<3>() else { return ParseStep::Bad };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, rest)) = rest.split_at_checked(length) else { return ParseStep::Bad };
        if kind == TLV_SSL {
            secure = value.first().is_some_and(|bits| bits & CLIENT_SSL != 0);
        }
        more = rest;
    }
    ParseStep::Done(ProxyHeader::Proxied { peer: SocketAddr::new(ip, u16::from_be_bytes(port)), secure })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a header as `read_header` would; returns the outcome and the number of bytes consumed.
    fn feed(bytes: &[u8]) -> (ParseStep, usize) {
        let mut have = 0;
        loop {
            match parse(&bytes[..have]) {
                ParseStep::Need(more) if have + more <= bytes.len() => have += more,
                done => return (done, have),
            }
        }
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    const IPV4: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0xDC, 0x04, 0x01, 0xBB];

    fn client_of(text: &str, secure: bool) -> ParseStep {
        ParseStep::Done(ProxyHeader::Proxied { peer: text.parse().unwrap(), secure })
    }

    #[test]
    fn version_one_is_read_to_its_last_byte() {
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec();
        let mut more = line.clone();
        more.extend(b"\x16\x03\x01 a TLS record");
        assert_eq!(feed(&more), (client_of("192.0.2.1:56324", false), line.len()));
        let six = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
        assert_eq!(feed(six).0, client_of("[2001:db8::1]:1", false));
        assert_eq!(feed(b"PROXY UNKNOWN\r\n").0, ParseStep::Done(ProxyHeader::Local));
        assert_eq!(
            feed(b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\nx"),
            (ParseStep::Done(ProxyHeader::Local), 43)
        );
    }

    #[test]
    fn version_one_is_parsed_unambiguously() {
        for line in [
            "GET / HTTP/1.1\r\n\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n",
            "PROXY TCP4 192.0.2.1  198.51.100.1 56324 443\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.1 1 443\r\n",
            "proxy TCP4 192.0.2.1 198.51.100.1 1 443\r\n",
            "PROXY  TCP4\r\n         ",
        ] {
            assert_eq!(feed(line.as_bytes()).0, ParseStep::Bad, "{line:?}");
        }
        let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(feed(&endless), (ParseStep::Bad, MAX_V1_BYTES));
    }

    #[test]
    fn version_two_is_read_to_its_last_byte() {
        let mut bytes = v2(0x21, 0x11, IPV4);
        let length = bytes.len();
        bytes.extend(b"\x16\x03\x01");
        assert_eq!(feed(&bytes), (client_of("192.0.2.1:56324", false), length));
        let mut six = [0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7].repeat(2);
        six.extend([0, 80, 1, 187]);
        assert_eq!(feed(&v2(0x21, 0x21, &six)).0, client_of("[2001:db8::7]:80", false));
        assert_eq!(feed(&v2(0x20, 0x00, b"")).0, ParseStep::Done(ProxyHeader::Local));
        assert_eq!(feed(&v2(0x20, 0x11, IPV4)).0, ParseStep::Done(ProxyHeader::Local), "LOCAL");
        assert_eq!(feed(&v2(0x21, 0x00, b"whatever")).0, ParseStep::Done(ProxyHeader::Local));
    }

    #[test]
    fn the_client_side_may_be_encrypted() {
        let with = |value: &[u8]| {
            let mut rest = IPV4.to_vec();
            rest.extend([0x05, 0, 2, 1, 2, TLV_SSL, 0, value.len() as u8]);
            rest.extend(value);
            feed(&v2(0x21, 0x11, &rest)).0
        };
        assert_eq!(with(&[1, 0, 0, 0, 0]), client_of("192.0.2.1:56324", true));
        assert_eq!(with(&[0, 0, 0, 0, 0]), client_of("192.0.2.1:56324", false));
        assert_eq!(with(&[]), client_of("192.0.2.1:56324", false));
    }

    #[test]
    fn version_two_with_a_fault_is_refused() {
        assert_eq!(feed(&v2(0x11, 0x11, IPV4)).0, ParseStep::Bad, "another version");
        assert_eq!(feed(&v2(0x22, 0x11, IPV4)).0, ParseStep::Bad, "another command");
        assert_eq!(feed(&v2(0x21, 0x12, IPV4)).0, ParseStep::Bad, "datagrams");
        assert_eq!(feed(&v2(0x21, 0x11, &IPV4[..11])).0, ParseStep::Bad, "a short address");
        assert_eq!(
            feed(&v2(0x21, 0x11, &[IPV4, &[TLV_SSL, 0, 9, 1]].concat())).0,
            ParseStep::Bad,
            "a long TLV"
        );
        assert_eq!(feed(&v2(0x21, 0x11, &[IPV4, &[TLV_SSL, 0]].concat())).0, ParseStep::Bad, "half a TLV");
        assert_eq!(feed(&v2(0x21, 0x00, &vec![0; MAX_V2_BYTES + 1])).0, ParseStep::Bad, "a long header");
    }
}
