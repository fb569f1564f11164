//! Which web pages may use the transports: the `RequestSource` of a request (RFC 6454) and the answer to it (Fetch, section 3.2,
//! "CORS protocol"; RFC 7395 has no words about it, RFC 6455 section 10.2 asks for the same check).
//!
//! A BOSH or WebSocket session has no cookies: who logs in has to know a password, so a foreign page can do nothing with it
//! that its own server could not. Hence all pages may, unless a list says otherwise. A page from the same host and port may
//! always.
//! Left out: credentials mode (`Access-Control-Allow-Credentials`), for there are none.
//! The trap: programs that are no browsers send no `RequestSource`; the list does not keep them out and is not meant to.

/// Origins that may use BOSH and WebSocket from a web page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// All.
    #[default]
    Any,
    /// These, such as `https://chat.example.org`, and the same origin.
    Listed(Vec<String>),
}

/// What a request's origin means for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cors {
    /// It has none, or may read the answer without being told.
    NoHeader,
    /// Everybody may.
    Any,
    /// This one may.
    Only(Box<str>),
}

/// A page that may not use the transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForbiddenOrigin;

impl AllowedOrigins {
    /// Adds one to the list; `*` is all.
    ///
    /// # Errors
    /// One sentence that names the text.
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

    /// The value of `Access-Control-Allow-Origin` for it, if one is due.
    ///
    /// # Errors
    /// It may not.
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

    /// What to say to it; `None` when it may not.
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
