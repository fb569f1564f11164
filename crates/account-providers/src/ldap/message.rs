//! Messages of LDAP (RFC 4511, section 4): bind, search, modify of a password (RFC 3062) and StartTLS, and their responses.
//!
//! Not implemented: controls, which are ignored in responses as section 4.1.11 permits.

use base::Secret;

use super::filter::Filter;
use crate::ber::{self, BerReader, Malformed};

/// Largest message in bytes: an entry with the few attributes that are requested.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// Most characters of a text for operators: each failed login writes one into the log.
const MAX_DIAGNOSTIC_CHARS: usize = 200;

/// OID of StartTLS (RFC 4511, section 4.14.1).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
/// OID of the operation that changes a password (RFC 3062, section 2).
const PASSWORD_MODIFY: &[u8] = b"1.3.6.1.4.1.4203.1.11.1";

const BIND_REQUEST: u8 = 0x60;
const BIND_RESPONSE: u8 = 0x61;
const UNBIND_REQUEST: u8 = 0x42;
const SEARCH_REQUEST: u8 = 0x63;
const SEARCH_ENTRY: u8 = 0x64;
const SEARCH_DONE: u8 = 0x65;
const SEARCH_REFERENCE: u8 = 0x73;
const EXTENDED_REQUEST: u8 = 0x77;
const EXTENDED_RESPONSE: u8 = 0x78;

/// A request.
#[derive(Debug)]
pub enum LdapRequest<'a> {
    /// Simple bind; an empty name and password are the anonymous user.
    Bind {
        /// Distinguished name.
        name: &'a str,
        /// Must not be empty unless the name is.
        password: &'a Secret,
    },
    /// Search of a whole subtree.
    Search {
        /// Distinguished name of the subtree.
        base: &'a str,
        /// The filter.
        filter: &'a Filter,
        /// Requested attributes.
        attributes: &'a [&'a str],
        /// Most entries to return.
        size_limit: u32,
        /// Most seconds to search.
        time_limit: u32,
    },
    /// StartTLS.
    StartTls,
    /// Change of a password.
    SetPassword {
        /// Distinguished name of the user.
        name: &'a str,
        /// The password.
        password: &'a Secret,
    },
    /// The end of the connection; without a response.
    Unbind,
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LdapResponse {
    /// The end of an operation.
    Done(LdapResult),
    /// An entry of a search.
    Entry(LdapEntry),
    /// A place to search as well, which is ignored.
    Reference,
}

/// Result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LdapResult {
    /// The code of section 4.1.9, appendix A.
    pub code: u32,
    /// Text for operators.
    pub diagnostic: String,
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LdapEntry {
    /// Distinguished name.
    pub name: String,
    /// Attributes with their values, in the order of the response.
    pub attributes: Vec<(String, Vec<Vec<u8>>)>,
}

impl LdapEntry {
    /// Values of an attribute, whose name has no case (RFC 4512, section 2.5). They have no order.
    pub fn values(&self, attribute: &str) -> &[Vec<u8>] {
        let found = self.attributes.iter().find(|(name, _)| name.eq_ignore_ascii_case(attribute));
        found.map_or(&[], |(_, values)| values.as_slice())
    }
}

impl LdapRequest<'_> {
    /// The encoded message.
    pub fn encode(&self, id: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        ber::write_constructed(&mut out, ber::SEQUENCE, |out| {
            ber::write_number(out, ber::INTEGER, id);
            match self {
                LdapRequest::Bind { name, password } => ber::write_constructed(out, BIND_REQUEST, |out| {
                    ber::write_number(out, ber::INTEGER, 3);
                    ber::write(out, ber::OCTET_STRING, name.as_bytes());
                    ber::write(out, 0x80, password.expose());
                }),
                LdapRequest::Search { base, filter, attributes, size_limit, time_limit } => {
                    ber::write_constructed(out, SEARCH_REQUEST, |out| {
                        ber::write(out, ber::OCTET_STRING, base.as_bytes());
                        // wholeSubtree, neverDerefAliases
                        ber::write_number(out, ber::ENUMERATED, 2);
                        ber::write_number(out, ber::ENUMERATED, 0);
                        ber::write_number(out, ber::INTEGER, *size_limit);
                        ber::write_number(out, ber::INTEGER, *time_limit);
                        ber::write(out, ber::BOOLEAN, &[0]);
                        filter.write(out);
                        ber::write_constructed(out, ber::SEQUENCE, |out| {
                            for attribute in *attributes {
                                ber::write(out, ber::OCTET_STRING, attribute.as_bytes());
                            }
                        });
                    });
                }
                LdapRequest::StartTls => {
                    ber::write_constructed(out, EXTENDED_REQUEST, |out| ber::write(out, 0x80, START_TLS));
                }
                LdapRequest::SetPassword { name, password } => {
                    ber::write_constructed(out, EXTENDED_REQUEST, |out| {
                        ber::write(out, 0x80, PASSWORD_MODIFY);
                        ber::write_constructed(out, 0x81, |out| {
                            ber::write_constructed(out, ber::SEQUENCE, |out| {
                                ber::write(out, 0x80, name.as_bytes());
                                ber::write(out, 0x82, password.expose());
                            });
                        });
                    });
                }
                LdapRequest::Unbind => ber::write(out, UNBIND_REQUEST, &[]),
            }
        });
        out
    }
}

/// Length of the message at the beginning of `input`; `None` if more input is needed.
///
/// # Errors
/// If it is no message, or larger than [`MAX_MESSAGE_BYTES`].
pub fn message_length(input: &[u8]) -> Result<Option<usize>, Malformed> {
    match ber::head(input)? {
        None => Ok(None),
        Some((ber::SEQUENCE, header, content)) if content <= MAX_MESSAGE_BYTES => {
            let length = header + content;
            Ok((input.len() >= length).then_some(length))
        }
        Some(_) => Err(Malformed),
    }
}

/// Decodes a message: its id and the response. Id 0 is a notice of the server (section 4.4), such as that it ends the
/// connection.
///
/// # Errors
/// If it is malformed, or a response to nothing that is requested here.
pub fn decode(message: &[u8]) -> Result<(u32, LdapResponse), Malformed> {
    let mut message = BerReader::new(message).enter(ber::SEQUENCE)?;
    let id = message.number(ber::INTEGER)?;
    let (tag, content) = message.element()?;
    let mut content = BerReader::new(content);
    let response = match tag {
        BIND_RESPONSE | SEARCH_DONE | EXTENDED_RESPONSE => {
            let code = content.number(ber::ENUMERATED)?;
            content.expect(ber::OCTET_STRING)?;
            let diagnostic = String::from_utf8_lossy(content.expect(ber::OCTET_STRING)?);
            let diagnostic =
                diagnostic.chars().filter(|c| !c.is_control()).take(MAX_DIAGNOSTIC_CHARS).collect();
            LdapResponse::Done(LdapResult { code, diagnostic })
        }
        SEARCH_ENTRY => LdapResponse::Entry(decode_entry(content)?),
        SEARCH_REFERENCE => LdapResponse::Reference,
        _ => return Err(Malformed),
    };
    Ok((id, response))
}

fn decode_entry(mut content: BerReader<'_>) -> Result<LdapEntry, Malformed> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed);
    let mut entry = LdapEntry { name: text(content.expect(ber::OCTET_STRING)?)?, attributes: Vec::new() };
    let mut attributes = content.enter(ber::SEQUENCE)?;
    while !attributes.is_empty() {
        let mut attribute = attributes.enter(ber::SEQUENCE)?;
        let name = text(attribute.expect(ber::OCTET_STRING)?)?;
        let mut set = attribute.enter(ber::SET)?;
        let mut values = Vec::new();
        while !set.is_empty() {
            values.push(set.expect(ber::OCTET_STRING)?.to_vec());
        }
        entry.attributes.push((name, values));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_encoded_as_the_protocol_has_them() {
        let bind = LdapRequest::Bind { name: "cn=a", password: &Secret::from("pw") };
        assert_eq!(bind.encode(1), b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw");
        let start_tls = LdapRequest::StartTls.encode(1);
        assert_eq!(start_tls, b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037");
        assert_eq!(LdapRequest::Unbind.encode(5), b"\x30\x05\x02\x01\x05\x42\x00");
        let filter = Filter::parse("(uid=jo)").unwrap();
        let search = LdapRequest::Search {
            base: "dc=x",
            filter: &filter,
            attributes: &["uid"],
            size_limit: 2,
            time_limit: 5,
        };
        assert_eq!(
            search.encode(2),
            b"\x30\x2c\x02\x01\x02\x63\x27\x04\x04dc=x\x0a\x01\x02\x0a\x01\x00\x02\x01\x02\x02\x01\x05\x01\x01\x00\
              \xa3\x09\x04\x03uid\x04\x02jo\x30\x05\x04\x03uid"
        );
    }

    #[test]
    fn responses_are_decoded() {
        let bind = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x31\x04\x00\x04\x00";
        let refused = LdapResult { code: 49, diagnostic: String::new() };
        assert_eq!(decode(bind), Ok((1, LdapResponse::Done(refused))));
        let entry = b"\x30\x1b\x02\x01\x02\x64\x16\x04\x04cn=a\x30\x0e\x30\x0c\x04\x03UID\x31\x05\x04\x03joe";
        let Ok((2, LdapResponse::Entry(entry))) = decode(entry) else { panic!() };
        assert_eq!((entry.name.as_str(), entry.values("uid")), ("cn=a", &[b"joe".to_vec()][..]));
        assert!(entry.values("cn").is_empty());
        let mut long = vec![];
        ber::write_constructed(&mut long, ber::SEQUENCE, |out| {
            ber::write_number(out, ber::INTEGER, 1);
            ber::write_constructed(out, BIND_RESPONSE, |out| {
                ber::write_number(out, ber::ENUMERATED, 80);
                ber::write(out, ber::OCTET_STRING, b"");
                ber::write(out, ber::OCTET_STRING, "\nforged line\u{1b}[2J".repeat(1_000).as_bytes());
            });
        });
        let Ok((1, LdapResponse::Done(result))) = decode(&long) else { panic!() };
        assert_eq!(result.diagnostic.chars().count(), MAX_DIAGNOSTIC_CHARS);
        assert!(!result.diagnostic.contains(char::is_control));
        for cut in 0..bind.len() {
            assert_eq!(message_length(&bind[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(message_length(bind), Ok(Some(bind.len())));
        assert_eq!(message_length(b"\x30\x84\x7f\xff\xff\xff"), Err(Malformed));
        assert_eq!(message_length(b"HTTP/1.1"), Err(Malformed));
    }

    proptest! {
        #[test]
        fn random_messages_never_panic(input in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = message_length(&input);
            let _ = decode(&input);
        }
    }
}
