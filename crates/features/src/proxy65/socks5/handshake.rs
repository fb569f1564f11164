//! Messages of SOCKS5 (RFC 1928, sections 3, 4 and 6) as a proxy of bytestreams uses them: XEP-0065, section 10.2.
//!
//! The only method is "no authentication", the only command CONNECT, and the destination is a name of 40 hexadecimal
//! digits. Each reader states how many bytes it needs, so that no byte after the request is read.
//!
//! Not implemented: other methods, BIND, UDP ASSOCIATE, addresses that are not names.

/// Version of the protocol.
const VERSION: u8 = 5;
/// Method "no authentication required".
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const DOMAIN_NAME: u8 = 3;

/// Answer to a greeting that offers the method "no authentication required".
pub(super) const METHOD_ACCEPTED: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// Answer to any other greeting, after which the connection is closed.
pub(super) const NO_ACCEPTABLE_METHOD: [u8; 2] = [VERSION, 0xFF];

/// Size of a SHA-1 digest in bytes.
const DIGEST_BYTES: usize = 20;

/// The destination of a bytestream: the SHA-1 digest of its id and both addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BytestreamDestination([u8; DIGEST_BYTES]);

impl BytestreamDestination {
    /// From the digest.
    pub(crate) const fn new(digest: [u8; DIGEST_BYTES]) -> BytestreamDestination {
        BytestreamDestination(digest)
    }

    /// From exactly 40 hexadecimal digits.
    fn from_hex(text: &[u8]) -> Option<BytestreamDestination> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut digest = [0; DIGEST_BYTES];
        let (pairs, rest) = text.as_chunks::<2>();
        if pairs.len() != DIGEST_BYTES || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(BytestreamDestination(digest))
    }
}

/// Reason for refusing a request: the field REP of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Connection not allowed by ruleset.
    NotAllowed = 2,
    /// Command not supported.
    CommandNotSupported = 7,
    /// Address type not supported.
    AddressTypeNotSupported = 8,
}

/// Result of reading a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<T> {
    /// At least this many bytes are missing.
    Need(usize),
    /// The message is complete.
    Done(T),
    /// Not SOCKS5; there is no answer.
    Invalid,
}

/// Reads a greeting: whether the client offers the method "no authentication required".
pub(super) fn read_greeting(bytes: &[u8]) -> Step<bool> {
    match bytes {
        [] => Step::Need(2),
        [VERSION] => Step::Need(1),
        [VERSION, count, methods @ ..] => {
            let missing = usize::from(*count).saturating_sub(methods.len());
            if missing > 0 { Step::Need(missing) } else { Step::Done(methods.contains(&NO_AUTHENTICATION)) }
        }
        _ => Step::Invalid,
    }
}

/// Reads a request: its destination, or the reason for refusing it.
pub(super) fn read_request(bytes: &[u8]) -> Step<Result<BytestreamDestination, Reply>> {
    let &[version, command, _, address_type, length, ref rest @ ..] = bytes else {
        let valid = bytes.first().is_none_or(|version| *version == VERSION);
        return if valid { Step::Need(5 - bytes.len()) } else { Step::Invalid };
    };
    if version != VERSION {
        return Step::Invalid;
    }
    if command != CONNECT {
        return Step::Done(Err(Reply::CommandNotSupported));
    }
    if address_type != DOMAIN_NAME {
        return Step::Done(Err(Reply::AddressTypeNotSupported));
    }
    let length = usize::from(length);
    match rest.split_at_checked(length) {
        // XEP-0065, section 10.1: the port may be ignored.
        Some((name, [_, _, ..])) => {
            Step::Done(BytestreamDestination::from_hex(name).ok_or(Reply::NotAllowed))
        }
        _ => Step::Need((length + 2).saturating_sub(rest.len())),
    }
}

/// The reply to an accepted request, which repeats its address and port (XEP-0065, section 6.3.2).
pub(super) fn accepted(request: &[u8]) -> Vec<u8> {
    let mut reply = vec![VERSION, 0, 0];
    reply.extend_from_slice(request.get(3..).unwrap_or_default());
    reply
}

/// The reply to a refused request.
pub(super) fn refused(reason: Reply) -> Vec<u8> {
    // With the address 0.0.0.0 and port 0.
    vec![VERSION, reason as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "0123456789abcdef0123456789ABCDEF01234567";

    fn request(command: u8, address_type: u8, name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![5, command, 0, address_type, u8::try_from(name.len()).unwrap()];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&[0, 0]);
        bytes
    }

    /// Feeds a reader with exactly the bytes that it needs; returns its result and the number of bytes.
    fn feed<T>(read: fn(&[u8]) -> Step<T>, bytes: &[u8]) -> (Option<T>, usize) {
        let mut have = 0;
        loop {
            match read(&bytes[..have]) {
                Step::Need(missing) => {
                    assert!(missing > 0);
                    have += missing;
                    if have > bytes.len() {
                        return (None, bytes.len());
                    }
                }
                Step::Done(value) => return (Some(value), have),
                Step::Invalid => return (None, have),
            }
        }
    }

    #[test]
    fn rfc_1928_section_3_the_greeting_is_read_to_its_last_byte_and_no_further() {
        assert_eq!(feed(read_greeting, &[5, 1, 0, 9, 9]), (Some(true), 3));
        assert_eq!(feed(read_greeting, &[5, 3, 2, 1, 0, 9]), (Some(true), 5));
        assert_eq!(feed(read_greeting, &[5, 1, 2, 9]), (Some(false), 3));
        assert_eq!(feed(read_greeting, &[5, 0, 9]), (Some(false), 2));
        assert_eq!(feed(read_greeting, &[4, 1, 0]), (None, 2));
        assert_eq!(feed(read_greeting, b"GET / HTTP/1.1"), (None, 2));
    }

    #[test]
    fn section_6_3_2_the_destination_is_40_hexadecimal_digits_in_full() {
        let whole = request(1, 3, NAME.as_bytes());
        let (found, have) = feed(read_request, &[whole.as_slice(), b"more"].concat());
        let lower = request(1, 3, NAME.to_ascii_lowercase().as_bytes());
        assert_eq!(found, feed(read_request, &lower).0, "either case");
        assert!(matches!(found, Some(Ok(_))));
        assert_eq!(have, whole.len());
        for name in [&NAME[1..], &format!("{NAME}0"), "", &NAME.replace('0', "g"), &"é".repeat(20)] {
            let bytes = request(1, 3, name.as_bytes());
            assert_eq!(feed(read_request, &bytes).0, Some(Err(Reply::NotAllowed)), "{name:?}");
        }
    }

    #[test]
    fn other_commands_and_addresses_are_refused() {
        assert_eq!(feed(read_request, &request(3, 3, b"x")).0, Some(Err(Reply::CommandNotSupported)));
        let ip = [5, 1, 0, 1, 127, 0, 0, 1, 0, 80];
        assert_eq!(feed(read_request, &ip).0, Some(Err(Reply::AddressTypeNotSupported)));
        assert_eq!(feed(read_request, &[4, 1, 0, 3, 1]).0, None);
    }

    #[test]
    fn section_6_3_2_the_reply_repeats_address_and_port() {
        let bytes = request(1, 3, NAME.as_bytes());
        let reply = accepted(&bytes);
        assert_eq!(&reply[..3], &[5, 0, 0]);
        assert_eq!(&reply[3..], &bytes[3..]);
    }

    #[test]
    fn no_input_panics() {
        for length in 0..12 {
            for byte in 0..=255 {
                let bytes = vec![byte; length];
                let _ = (read_greeting(&bytes), read_request(&bytes));
                let mut bytes = [vec![5], bytes].concat();
                let _ = (read_greeting(&bytes), read_request(&bytes));
                bytes.truncate(5);
                let _ = read_request(&bytes);
            }
        }
    }
}
