//! A light client's login as a state machine without a socket: stream header, STARTTLS, SASL, bind, session, roster (RFC 6120, RFC 6121).
//!
//! Each step waits for the answer to the one before, as usual clients do; nothing is pipelined. With the relay the login is one line.
//! With a token (XEP-0484) it is one flight: header and request at once; it ends with success, which binds (XEP-0386).

use anyhow::{Context as _, Result, bail};

use super::scram::{Mechanism, Scram, Secrets};
use super::split::{attribute, text};

/// How a connection is secured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Security {
    /// Plain TCP.
    None,
    /// STARTTLS.
    Starttls,
    /// TLS from the first byte (XEP-0368).
    Direct,
}

/// What the clients of a run have in common.
#[derive(Clone)]
pub(crate) struct Profile {
    /// The domain of the accounts.
    pub(crate) domain: String,
    /// Account names are this and a number.
    pub(crate) prefix: String,
    /// The mechanism to use.
    pub(crate) mechanism: Mechanism,
    /// Plain TCP or TLS.
    pub(crate) security: Security,
    /// Whether to send initial presence behind the roster.
    pub(crate) available: bool,
    /// The peer is the relay and not an XMPP server.
    pub(crate) relay: bool,
    /// A login with a token enables stream management, or resumes the stream that the user lost.
    pub(crate) managed: bool,
}

/// What to do after an element was handled.
pub(crate) enum Next {
    /// Send what was queued and wait.
    Wait,
    /// Begin TLS, then send what was queued.
    Tls,
    /// The session is up under this full address.
    Ready(String),
}

enum Step {
    Features,
    Proceed,
    Auth,
    AuthedFeatures,
    Bind,
    Session,
    Roster,
    Relay,
    /// SASL2, until success.
    Sasl2,
}

/// One login under way.
pub(crate) struct Login {
    step: Step,
    user: String,
    address: String,
    scram: Option<Scram>,
    secured: bool,
}

impl Login {
    /// Begins the login of account number `account`; queues the first bytes.
    pub(crate) fn begin(profile: &Profile, account: u64, secrets: &Secrets, out: &mut Vec<u8>) -> Self {
        let user = format!("{}{account}", profile.prefix);
        let address = format!("{user}@{}/bench", profile.domain);
        let step = if profile.relay {
            out.extend_from_slice(address.as_bytes());
            out.push(b'\n');
            Step::Relay
        } else if let Some(proof) =
            secrets.token_proof(&user).filter(|_| profile.mechanism == Mechanism::Fast)
        {
            header(profile, out);
            let mut more = "<fast xmlns='urn:xmpp:fast:0'/>".to_owned();
            if let Some(stream) = secrets.streams.get(&user).filter(|_| profile.managed) {
                more.push_str(&format!("<resume xmlns='urn:xmpp:sm:3' h='0' previd='{stream}'/>"));
            }
            let enable = if profile.managed { "<enable xmlns='urn:xmpp:sm:3' resume='true'/>" } else { "" };
            authenticate(profile.mechanism, &user, &proof, enable, &more, out);
            Step::Sasl2
        } else {
            header(profile, out);
            Step::Features
        };
        Self { step, user, address, scram: None, secured: profile.security == Security::Direct }
    }

    /// Handles one element from the server and queues what follows. `nonce` must be new for each call.
    pub(crate) fn element(
        &mut self,
        element: &[u8],
        profile: &Profile,
        secrets: &mut Secrets,
        nonce: u64,
        out: &mut Vec<u8>,
    ) -> Result<Next> {
        if element.starts_with(b"<stream:error") || element.starts_with(b"<failure") {
            bail!("{} was refused: {}", self.user, String::from_utf8_lossy(element));
        }
        let features = element.starts_with(b"<stream:features") || element.starts_with(b"<features");
        match self.step {
            Step::Relay if element.starts_with(b"<ok") => {
                return Ok(Next::Ready(std::mem::take(&mut self.address)));
            }
            Step::Features if features => {
                if profile.security == Security::Starttls && !self.secured {
                    out.extend_from_slice(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
                    self.step = Step::Proceed;
                } else {
                    self.auth(element, profile, secrets, nonce, out)?;
                }
            }
            Step::Proceed if element.starts_with(b"<proceed") => {
                self.secured = true;
                self.step = Step::Features;
                header(profile, out);
                return Ok(Next::Tls);
            }
            Step::Auth => self.sasl(element, profile, secrets, out)?,
            Step::Sasl2 if features => {}
            Step::Sasl2 => return self.sasl2(element, profile, secrets, out),
            Step::AuthedFeatures if features => {
                // `session` is asked for only where RFC 3921 is still wanted (not marked `optional`).
                let session = memchr::memmem::find(element, b"<session").is_some_and(|at| {
                    let tail = &element[at..];
                    let end = memchr::memmem::find(tail, b"</session>").unwrap_or(0);
                    memchr::memmem::find(&tail[..end], b"<optional").is_none()
                });
                self.scram = None;
                self.step = if session { Step::Session } else { Step::Bind };
                out.extend_from_slice(
                    b"<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
                      <resource>bench</resource></bind></iq>",
                );
            }
            Step::Bind | Step::Session if answers(element, b"bind") => {
                let jid = text(element, "jid").context("bind was refused")?;
                self.address = String::from_utf8(jid.to_vec())?;
                if matches!(self.step, Step::Session) {
                    out.extend_from_slice(
                        b"<iq type='set' id='session'>\
                          <session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></iq>",
                    );
                } else {
                    roster(out);
                }
                self.step = if matches!(self.step, Step::Session) { Step::Bind } else { Step::Roster };
            }
            Step::Bind if answers(element, b"session") => {
                roster(out);
                self.step = Step::Roster;
            }
            Step::Roster if answers(element, b"roster") => {
                if attribute(element, "type") != Some(b"result") {
                    bail!("{}'s roster was refused: {}", self.user, String::from_utf8_lossy(element));
                }
                if profile.available {
                    out.extend_from_slice(b"<presence/>");
                }
                return Ok(Next::Ready(std::mem::take(&mut self.address)));
            }
            // Something that the server says by itself.
            _ => reply(element, out),
        }
        Ok(Next::Wait)
    }

    fn auth(
        &mut self,
        features: &[u8],
        profile: &Profile,
        secrets: &Secrets,
        nonce: u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let name = profile.mechanism.name();
        if memchr::memmem::find(features, format!(">{name}<").as_bytes()).is_none() {
            bail!("the server does not offer {name}: {}", String::from_utf8_lossy(features));
        }
        if profile.mechanism == Mechanism::Fast {
            // No token yet: the first login asks for one.
            let (scram, initial) = Scram::begin(Mechanism::Sha1, &self.user, nonce);
            self.scram = Some(scram);
            let ask = format!("<request-token xmlns='urn:xmpp:fast:0' mechanism='{name}'/>");
            authenticate(Mechanism::Sha1, &self.user, &initial, "", &ask, out);
            self.step = Step::Sasl2;
            return Ok(());
        }
        let initial = if profile.mechanism == Mechanism::Plain {
            secrets.plain(&self.user)
        } else {
            let (scram, initial) = Scram::begin(profile.mechanism, &self.user, nonce);
            self.scram = Some(scram);
            initial
        };
        let auth =
            format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{name}'>{initial}</auth>");
        out.extend_from_slice(auth.as_bytes());
        self.step = Step::Auth;
        Ok(())
    }

    fn sasl(
        &mut self,
        element: &[u8],
        profile: &Profile,
        secrets: &mut Secrets,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if element.starts_with(b"<challenge") {
            let scram = self.scram.as_mut().context("a challenge without SCRAM")?;
            let challenge = text(element, "challenge").unwrap_or_default();
            let answer = scram.answer(challenge, secrets)?;
            out.extend_from_slice(b"<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>");
            out.extend_from_slice(answer.as_bytes());
            out.extend_from_slice(b"</response>");
        } else if element.starts_with(b"<success") {
            if let Some(scram) = &self.scram {
                scram.verify(text(element, "success").unwrap_or_default())?;
            }
            header(profile, out);
            self.step = Step::AuthedFeatures;
        }
        Ok(())
    }
}

impl Login {
    /// Challenge or success of XEP-0388.
    fn sasl2(
        &mut self,
        element: &[u8],
        profile: &Profile,
        secrets: &mut Secrets,
        out: &mut Vec<u8>,
    ) -> Result<Next> {
        if element.starts_with(b"<challenge") {
            let scram = self.scram.as_mut().context("a challenge without SCRAM")?;
            let answer = scram.answer(text(element, "challenge").unwrap_or_default(), secrets)?;
            out.extend_from_slice(b"<response xmlns='urn:xmpp:sasl:2'>");
            out.extend_from_slice(answer.as_bytes());
            out.extend_from_slice(b"</response>");
            return Ok(Next::Wait);
        }
        if !element.starts_with(b"<success") {
            bail!("{} got no answer to its login: {}", self.user, String::from_utf8_lossy(element));
        }
        if let Some(scram) = &self.scram {
            scram.verify(text(element, "additional-data").unwrap_or_default())?;
        }
        if let Some(at) = memchr::memmem::find(element, b"<token ") {
            let token = attribute(&element[at..], "token").context("a token without a token")?;
            secrets.tokens.insert(self.user.clone(), String::from_utf8(token.to_vec())?);
        }
        if profile.managed {
            let lost = secrets.streams.contains_key(&self.user);
            if let Some(at) = memchr::memmem::find(element, b"<enabled ") {
                let stream = attribute(&element[at..], "id").context("a stream without a name")?;
                secrets.streams.insert(self.user.clone(), String::from_utf8(stream.to_vec())?);
            }
            if lost && memchr::memmem::find(element, b"<resumed ").is_none() {
                bail!("{} could not resume: {}", self.user, String::from_utf8_lossy(element));
            }
        }
        let address = text(element, "authorization-identifier").context("success names nobody")?;
        let address = String::from_utf8(address.to_vec())?;
        if !address.contains('/') {
            bail!("{} was not given a resource", self.user);
        }
        Ok(Next::Ready(address))
    }
}

/// `<authenticate/>` with a resource; one client for each user.
fn authenticate(mechanism: Mechanism, user: &str, initial: &str, bind: &str, more: &str, out: &mut Vec<u8>) {
    let name = mechanism.name();
    let request = format!(
        "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='{name}'><initial-response>{initial}</initial-response>\
         <user-agent id='bench-{user}'/><bind xmlns='urn:xmpp:bind:0'><tag>bench</tag>{bind}</bind>{more}</authenticate>"
    );
    out.extend_from_slice(request.as_bytes());
}

fn header(profile: &Profile, out: &mut Vec<u8>) {
    let header = format!(
        "<?xml version='1.0'?><stream:stream to='{}' version='1.0' xmlns='jabber:client' \
         xmlns:stream='http://etherx.jabber.org/streams'>",
        profile.domain
    );
    out.extend_from_slice(header.as_bytes());
}

fn roster(out: &mut Vec<u8>) {
    out.extend_from_slice(b"<iq type='get' id='roster'><query xmlns='jabber:iq:roster'/></iq>");
}

fn answers(element: &[u8], id: &[u8]) -> bool {
    element.starts_with(b"<iq") && attribute(element, "id") == Some(id)
}

/// Answers a request of the server, so that it does not take the client for dead; everything else is ignored.
pub(crate) fn reply(element: &[u8], out: &mut Vec<u8>) {
    let asks = element.starts_with(b"<iq")
        && matches!(attribute(element, "type"), Some(kind) if kind == b"get" || kind == b"set");
    let (true, Some(id)) = (asks, attribute(element, "id")) else { return };
    out.extend_from_slice(b"<iq type='result' id='");
    out.extend(id.iter().filter(|byte| **byte != b'\''));
    out.push(b'\'');
    if let Some(from) = attribute(element, "from") {
        out.extend_from_slice(b" to='");
        out.extend(from.iter().filter(|byte| **byte != b'\''));
        out.push(b'\'');
    }
    out.extend_from_slice(b"/>");
}

#[cfg(test)]
mod tests {
    use super::{Login, Next, Profile, Security, reply};
    use crate::bench::scram::{Mechanism, Secrets};

    fn profile() -> Profile {
        Profile {
            domain: "localhost".into(),
            prefix: "u".into(),
            mechanism: Mechanism::Plain,
            security: Security::None,
            available: true,
            relay: false,
            managed: false,
        }
    }

    #[test]
    fn a_login_with_a_required_session() {
        let (profile, mut secrets, mut out) = (profile(), Secrets::new("secret"), Vec::new());
        let mut login = Login::begin(&profile, 7, &secrets, &mut out);
        let steps: [(&str, &str); 6] = [
            (
                "<stream:features><mechanisms><mechanism>PLAIN</mechanism></mechanisms></stream:features>",
                "AHU3AHNlY3JldA==</auth>",
            ),
            ("<success/>", "<stream:stream"),
            ("<stream:features><bind/><session xmlns='x'/></stream:features>", "<resource>"),
            ("<iq id='bind' type='result'><bind><jid>u7@localhost/b</jid></bind></iq>", "id='session'"),
            ("<iq id='session' type='result'/>", "id='roster'"),
            ("<iq id='roster' type='result'><query/></iq>", "<presence/>"),
        ];
        let mut ready = None;
        for (input, expected) in steps {
            assert!(ready.is_none());
            out.clear();
            if let Next::Ready(address) =
                login.element(input.as_bytes(), &profile, &mut secrets, 1, &mut out).unwrap()
            {
                ready = Some(address);
            }
            let sent = String::from_utf8(out.clone()).unwrap();
            assert!(sent.contains(expected), "{input} was answered by {sent}");
        }
        assert_eq!(ready.as_deref(), Some("u7@localhost/b"));
    }

    #[test]
    fn an_optional_session_is_left_out() {
        let (profile, mut secrets, mut out) = (profile(), Secrets::new("secret"), Vec::new());
        let mut login = Login::begin(&profile, 7, &secrets, &mut out);
        for input in [
            "<stream:features><mechanism>PLAIN</mechanism></stream:features>",
            "<success/>",
            "<stream:features><bind/><session xmlns='x'><optional/></session></stream:features>",
            "<iq id='bind' type='result'><bind><jid>u7@localhost/b</jid></bind></iq>",
        ] {
            out.clear();
            login.element(input.as_bytes(), &profile, &mut secrets, 1, &mut out).unwrap();
        }
        assert!(String::from_utf8(out).unwrap().contains("id='roster'"));
    }

    #[test]
    fn the_first_login_gets_a_token_and_the_next_uses_it() {
        let profile = Profile { mechanism: Mechanism::Fast, ..profile() };
        let (mut secrets, mut out) = (Secrets::new("secret"), Vec::new());
        let mut login = Login::begin(&profile, 7, &secrets, &mut out);
        let features = b"<stream:features><mechanism>HT-SHA-256-NONE</mechanism></stream:features>";
        login.element(features, &profile, &mut secrets, 1, &mut out).unwrap();
        let sent = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert!(sent.contains("mechanism='SCRAM-SHA-1'") && sent.contains("<request-token"), "{sent}");
        login.scram = None;
        let success =
            b"<success xmlns='urn:xmpp:sasl:2'><authorization-identifier>u7@x/y</authorization-identifier>\
                        <token xmlns='urn:xmpp:fast:0' expiry='x' token='abc'/></success>";
        let next = login.element(success, &profile, &mut secrets, 1, &mut out).unwrap();
        assert!(matches!(next, Next::Ready(address) if address == "u7@x/y"));
        Login::begin(&profile, 7, &secrets, &mut out);
        let sent = String::from_utf8(out).unwrap();
        assert!(sent.starts_with("<?xml") && sent.contains("mechanism='HT-SHA-256-NONE'"), "{sent}");
        assert!(Login::begin(&profile, 8, &secrets, &mut Vec::new()).scram.is_none());
    }

    #[test]
    fn a_failure_names_the_account() {
        let (profile, mut secrets, mut out) = (profile(), Secrets::new("secret"), Vec::new());
        let mut login = Login::begin(&profile, 7, &secrets, &mut out);
        let error = login.element(b"<failure/>", &profile, &mut secrets, 1, &mut out).err().unwrap();
        assert!(error.to_string().contains("u7"));
    }

    #[test]
    fn requests_of_the_server_are_answered() {
        let mut out = Vec::new();
        reply(b"<iq type='get' id='p1' from='localhost'><ping xmlns='urn:xmpp:ping'/></iq>", &mut out);
        assert_eq!(out, b"<iq type='result' id='p1' to='localhost'/>");
        out.clear();
        reply(b"<iq type='result' id='p1'/>", &mut out);
        reply(b"<message/>", &mut out);
        assert!(out.is_empty());
    }
}
