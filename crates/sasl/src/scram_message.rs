//! Grammar of the client's SCRAM messages: RFC 5802, section 7.
//!
//! Everything is borrowed from the message, because the proof covers its exact bytes. Extensions after the nonce are
//! checked for syntax and otherwise ignored; `m=` (mandatory extension) fails at any position.
//!
//! Not implemented: semantics. `scram.rs` verifies flag, nonce and proof.
//!
//! # Pitfalls
//!
//! `,` and `=` are escaped in a name as `=2C` and `=3D`. Never unescape before splitting.

use crate::failure::FailureReason;

/// `gs2-cbind-flag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CbindFlag<'a> {
    /// `n`: the client does not support channel binding.
    Unsupported,
    /// `y`: the client supports it, but believes that the server does not.
    NotOffered,
    /// `p=`: bound, with this type.
    Bound(&'a str),
}

/// `client-first-message`.
#[derive(Debug)]
pub(crate) struct ClientFirst<'a> {
    /// `gs2-header`, with its last comma.
    pub(crate) header: &'a str,
    pub(crate) flag: CbindFlag<'a>,
    /// Unescaped.
    pub(crate) authzid: Option<String>,
    /// `client-first-message-bare`.
    pub(crate) bare: &'a str,
    /// Unescaped.
    pub(crate) username: String,
    pub(crate) nonce: &'a str,
}

/// `client-final-message`.
#[derive(Debug)]
pub(crate) struct ClientFinal<'a> {
    /// `channel-binding`, still in base 64.
    pub(crate) binding: &'a str,
    pub(crate) nonce: &'a str,
    /// Still in base 64.
    pub(crate) proof: &'a str,
    pub(crate) without_proof: &'a str,
}

pub(crate) fn client_first(message: &[u8]) -> Result<ClientFirst<'_>, FailureReason> {
    let text = utf8(message)?;
    let (flag, after) = text.split_once(',').ok_or(FailureReason::InvalidEncoding)?;
    let (authzid, bare) = after.split_once(',').ok_or(FailureReason::InvalidEncoding)?;
    let header = &text[..text.len() - bare.len()];
    let flag = match flag {
        "n" => CbindFlag::Unsupported,
        "y" => CbindFlag::NotOffered,
        _ => CbindFlag::Bound(
            flag.strip_prefix("p=")
                .filter(|name| is_binding_name(name))
                .ok_or(FailureReason::InvalidEncoding)?,
        ),
    };
    let authzid = match authzid {
        "" => None,
        _ => Some(unescape(value(authzid, "a=")?).ok_or(FailureReason::InvalidEncoding)?),
    };
    let mut attributes = bare.split(',');
    let name = attributes.next().unwrap_or_default();
    if name.starts_with("m=") {
        return Err(FailureReason::ExtensionsNotSupported);
    }
    let username = unescape(value(name, "n=")?).ok_or(FailureReason::InvalidUsernameEncoding)?;
    let nonce = nonce(attributes.next())?;
    extensions(attributes)?;
    Ok(ClientFirst { header, flag, authzid, bare, username, nonce })
}

pub(crate) fn client_final(message: &[u8]) -> Result<ClientFinal<'_>, FailureReason> {
    let text = utf8(message)?;
    // The proof comes last, and base 64 has no comma.
    let (without_proof, proof) = text.rsplit_once(',').ok_or(FailureReason::InvalidEncoding)?;
    let proof = value(proof, "p=")?;
    let mut attributes = without_proof.split(',');
    let first = attributes.next().unwrap_or_default();
    if first.starts_with("m=") {
        return Err(FailureReason::ExtensionsNotSupported);
    }
    let binding = value(first, "c=")?;
    let nonce = nonce(attributes.next())?;
    extensions(attributes)?;
    Ok(ClientFinal { binding, nonce, proof, without_proof })
}

/// Decodes UTF-8 without NUL, which no production allows.
fn utf8(message: &[u8]) -> Result<&str, FailureReason> {
    std::str::from_utf8(message)
        .ok()
        .filter(|text| !text.contains('\0'))
        .ok_or(FailureReason::InvalidEncoding)
}

fn value<'a>(attribute: &'a str, name: &str) -> Result<&'a str, FailureReason> {
    attribute.strip_prefix(name).filter(|value| !value.is_empty()).ok_or(FailureReason::InvalidEncoding)
}

fn nonce(attribute: Option<&str>) -> Result<&str, FailureReason> {
    value(attribute.ok_or(FailureReason::InvalidEncoding)?, "r=")
        .and_then(|nonce| if is_nonce(nonce) { Ok(nonce) } else { Err(FailureReason::InvalidEncoding) })
}

/// `printable`: visible ASCII without the comma.
pub(crate) fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn is_binding_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

/// `extensions = attr-val *("," attr-val)`; any content except a mandatory extension.
fn extensions<'a>(attributes: impl Iterator<Item = &'a str>) -> Result<(), FailureReason> {
    for attribute in attributes {
        match attribute.as_bytes() {
            [b'm', b'=', ..] => return Err(FailureReason::ExtensionsNotSupported),
            [name, b'=', _, ..] if name.is_ascii_alphabetic() => {}
            _ => return Err(FailureReason::InvalidEncoding),
        }
    }
    Ok(())
}

/// `saslname`: `=2C` is a comma, `=3D` an equals sign, and nothing else may follow `=`.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match part.as_bytes() {
            [b'2', b'C', ..] => (',', &part[2..]),
            [b'3', b'D', ..] => ('=', &part[2..]),
            _ => return None,
        };
        out.push(sign);
        out.push_str(rest);
    }
    Some(out)
}

/// The reverse of [`unescape`], for clients.
pub(crate) fn escape(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_first_message_is_parsed() {
        let first = client_first(b"p=tls-exporter,a=a=2Cb,n=x=3Dy=2C,r=abc,z=1=2,Q=\xc3\xa9").unwrap();
        assert_eq!(first.header, "p=tls-exporter,a=a=2Cb,");
        assert_eq!(first.flag, CbindFlag::Bound("tls-exporter"));
        assert_eq!(first.authzid.as_deref(), Some("a,b"));
        assert_eq!((first.username.as_str(), first.nonce), ("x=y,", "abc"));
        assert_eq!(first.bare, "n=x=3Dy=2C,r=abc,z=1=2,Q=é");
    }

    #[test]
    fn a_client_final_message_is_parsed() {
        let last = client_final(b"c=biws,r=abc,x=1,p=cHJvb2Y=").unwrap();
        assert_eq!((last.binding, last.nonce, last.proof), ("biws", "abc", "cHJvb2Y="));
        assert_eq!(last.without_proof, "c=biws,r=abc,x=1");
    }

    #[test]
    fn invalid_first_messages_are_refused_with_the_reason() {
        use FailureReason::{ExtensionsNotSupported, InvalidEncoding, InvalidUsernameEncoding};
        for (message, reason) in [
            (&b""[..], InvalidEncoding),
            (b"n", InvalidEncoding),
            (b"n,", InvalidEncoding),
            (b"n,,", InvalidEncoding),
            (b"n,,n=", InvalidEncoding),
            (b"n,,n=u", InvalidEncoding),
            (b"n,,n=u,r=", InvalidEncoding),
            (b"n,,n=,r=x", InvalidEncoding),
            (b"n,,r=x,n=u", InvalidEncoding),
            (b"x,,n=u,r=x", InvalidEncoding),
            (b"N,,n=u,r=x", InvalidEncoding),
            (b"p=,,n=u,r=x", InvalidEncoding),
            (b"p=tls_x,,n=u,r=x", InvalidEncoding),
            (b"n,a=,n=u,r=x", InvalidEncoding),
            (b"n,b=x,n=u,r=x", InvalidEncoding),
            (b"n,a=x=2,n=u,r=x", InvalidEncoding),
            (b"n,,n=u,r=x y", InvalidEncoding),
            (b"n,,n=u,r=\xc3\xa9", InvalidEncoding),
            (b"n,,n=u,r=x,", InvalidEncoding),
            (b"n,,n=u,r=x,y", InvalidEncoding),
            (b"n,,n=u,r=x,y=", InvalidEncoding),
            (b"n,,n=u,r=x,1=y", InvalidEncoding),
            (b"n,,n=u\0,r=x", InvalidEncoding),
            (b"n,,n=\xff,r=x", InvalidEncoding),
            (b"n,,n=a=b,r=x", InvalidUsernameEncoding),
            (b"n,,n=a=2c,r=x", InvalidUsernameEncoding),
            (b"n,,n=a=,r=x", InvalidUsernameEncoding),
            (b"n,,m=x,n=u,r=x", ExtensionsNotSupported),
            (b"n,,n=u,r=x,m=x", ExtensionsNotSupported),
            (b"n,,n=u,r=x,a=b,m=", ExtensionsNotSupported),
        ] {
            assert_eq!(client_first(message).unwrap_err(), reason, "{}", String::from_utf8_lossy(message));
        }
    }

    #[test]
    fn invalid_final_messages_are_refused_with_the_reason() {
        use FailureReason::{ExtensionsNotSupported, InvalidEncoding};
        for (message, reason) in [
            (&b""[..], InvalidEncoding),
            (b"c=biws,r=x", InvalidEncoding),
            (b"c=biws,p=x", InvalidEncoding),
            (b"r=x,p=x", InvalidEncoding),
            (b"c=,r=x,p=x", InvalidEncoding),
            (b"c=biws,r=x,p=", InvalidEncoding),
            (b"r=x,c=biws,p=x", InvalidEncoding),
            (b"c=biws,r=x,p=x,e=y", InvalidEncoding),
            (b"c=biws,r=x,e,p=x", InvalidEncoding),
            (b"c=biws,r=\x7f,p=x", InvalidEncoding),
            (b"c=biws,r=x\0,p=x", InvalidEncoding),
            (b"\xff=biws,r=x,p=x", InvalidEncoding),
            (b"m=1,c=biws,r=x,p=x", ExtensionsNotSupported),
            (b"c=biws,r=x,m=1,p=x", ExtensionsNotSupported),
        ] {
            assert_eq!(client_final(message).unwrap_err(), reason, "{}", String::from_utf8_lossy(message));
        }
    }

    #[test]
    fn names_are_escaped_and_back() {
        for name in ["juliet", "a,b", "=", "==2C,", "é=,"] {
            assert_eq!(unescape(&escape(name)).as_deref(), Some(name));
            assert!(!escape(name).contains(','));
        }
    }
}
