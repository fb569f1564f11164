//! Web origins that may use the transports: the `Origin` of a request (RFC 6454) and the response to it (Fetch, section
//! 3.2, "CORS protocol"; RFC 7395 does not mention it, RFC 6455, section 10.2 requires the same check).
//!
//! A BOSH or WebSocket session has no cookies: a login needs a password, so a foreign page can do nothing that its own
//! server could not. Hence all origins are permitted unless a list restricts them. A page from the same host and port
//! is always permitted.
//!
//! Not implemented: credentials mode (`Access-Control-Allow-Credentials`), because there are none.
//!
//! # Pitfalls
//!
//! Programs other than browsers send no `Origin`; the list neither stops them nor is meant to.

/// Origins that may use BOSH and WebSocket from a web page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// All.
    #[default]
    Any,
    /// These, such as `https://chat.example.org`, and the same origin.
    Listed(Vec<String>),
}

/// CORS header for a request's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cors {
    /// None: the request has no origin, or the same one.
    NoHeader,
    /// Any origin.
    Any,
    /// This origin.
    Only(Box<str>),
}

/// An origin that may not use the transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForbiddenOrigin;

impl AllowedOrigins {
    /// Adds an origin to the list; `*` is all.
    ///
    /// # Errors
    /// One sentence that quotes the text.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        if text == "*" {
            *self = AllowedOrigins::Any;
            return Ok(());
        }
        let known = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = known.filter(|host| !host.is_empty() && !host.contains(['/', ' ', '*', '@']));
        if host.is_none() {
            return Err(format!(
                "\"{text}\" is not an origin such as \"https://chat.example.org\", nor \"*\""
            ));
        }
        if let AllowedOrigins::Listed(list) = self {
            list.push(text.to_ascii_lowercase());
        }
        Ok(())
    }

    /// Whether a page of this origin may use the transports of this host. `origin` and `host` are the values of the
    /// headers.
    pub fn allows(&self, origin: Option<&str>, host: Option<&str>) -> bool {
        self.header(origin, host).is_ok()
    }

    /// Value of `Access-Control-Allow-Origin`, if that header is needed.
    ///
    /// # Errors
    /// The origin is not permitted.
    pub fn header(
        &self,
        origin: Option<&str>,
        host: Option<&str>,
    ) -> Result<Option<String>, ForbiddenOrigin> {
        match self.cors(origin, host).ok_or(ForbiddenOrigin)? {
            Cors::NoHeader => Ok(None),
            Cors::Any => Ok(Some("*".to_owned())),
            Cors::Only(origin) => Ok(Some(origin.into())),
        }
    }

    /// CORS header for this origin; `None` if it is not permitted.
    pub(crate) fn cors(&self, origin: Option<&str>, host: Option<&str>) -> Option<Cors> {
        match (self, origin) {
            (AllowedOrigins::Any, _) => Some(Cors::Any),
            (AllowedOrigins::Listed(_), None) => Some(Cors::NoHeader),
            (AllowedOrigins::Listed(list), Some(origin)) => {
                let listed = list.iter().any(|known| known.eq_ignore_ascii_case(origin));
                let authority = origin.split_once("://").map(|(_, authority)| authority);
                let own = authority.zip(host).is_some_and(|(a, host)| a.eq_ignore_ascii_case(host));
                (listed || own).then(|| Cors::Only(origin.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_refuses_other_origins_but_never_the_same_origin() {
        let mut origins = AllowedOrigins::Listed(Vec::new());
        origins.add("https://chat.example.org").unwrap();
        origins.add("http://localhost:8080").unwrap();
        let may = |origin: &str| origins.allows(Some(origin), Some("xmpp.example.org:5443"));
        assert!(
            may("https://chat.example.org")
                && may("HTTPS://Chat.Example.Org")
                && may("http://localhost:8080")
        );
        assert!(may("https://xmpp.example.org:5443"), "the same origin");
        assert!(!may("https://evil.example") && !may("http://chat.example.org") && !may("null"));
        assert!(!may("https://chat.example.org.evil.example") && !may("https://chat.example.org:444"));
        assert!(origins.allows(None, None), "no browser");
        let only = Some(Cors::Only("http://localhost:8080".into()));
        assert_eq!(origins.cors(Some("http://localhost:8080"), None), only);
        assert_eq!(AllowedOrigins::Any.cors(Some("https://evil.example"), None), Some(Cors::Any));
        origins.add("*").unwrap();
        assert_eq!(origins, AllowedOrigins::Any);
    }

    #[test]
    fn invalid_origins_are_named() {
        for text in ["", "chat.example.org", "https://", "https://a.org/", "https://*.a.org", "ftp://a.org"] {
            assert!(AllowedOrigins::Listed(Vec::new()).add(text).unwrap_err().contains(text));
        }
    }
}
