//! Versions of rosters in pushes (RFC 6121, section 2.6).

use stanza::{IqType, StanzaKind};
use xml::Ns;

use crate::SharedStanza;

impl SharedStanza {
    /// A roster push with a version that no roster has; other stanzas as they are. A version is opaque to clients (RFC 6121, section
    /// 2.6.1), and the whole roster is the answer to a request with this one.
    #[must_use]
    pub fn with_incomplete_roster_version(self) -> SharedStanza {
        incomplete(&self).unwrap_or(self)
    }
}

fn incomplete(stanza: &SharedStanza) -> Option<SharedStanza> {
    if stanza.kind() != StanzaKind::Iq(IqType::Set) {
        return None;
    }
    let version: u64 = stanza.tree().ok()?.root().child("query", Ns::Roster)?.attr("ver")?.parse().ok()?;
    let version = format!(" ver='{version}");
    let bytes = stanza.bytes();
    let end = bytes.windows(version.len()).position(|part| part == version.as_bytes())? + version.len();
    let (before, after) = bytes.split_at_checked(end)?;
    SharedStanza::parse(&[before, b"-incomplete", after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_push_to_a_client_that_has_missed_one_names_no_roster() {
        let push = |content: &str| {
            let stanza = format!("<iq type='set' id='1'>{content}</iq>");
            let stanza = SharedStanza::parse(stanza.as_bytes()).unwrap().with_incomplete_roster_version();
            String::from_utf8(stanza.bytes().to_vec()).unwrap().replace(" xmlns='jabber:client'", "")
        };
        let with = |content: &str| format!("<iq type='set' id='1'>{content}</iq>");
        let roster = "<query xmlns='jabber:iq:roster' ver='7'><item jid='a@b' name='c'/></query>";
        assert_eq!(push(roster), with(&roster.replace("'7'", "'7-incomplete'")));
        for other in [
            "<query xmlns='jabber:iq:roster'><item jid='a@b' name=' ver='/></query>",
            "<query xmlns='jabber:iq:roster' ver='x'><item jid='a@b'/></query>",
            "<block xmlns='urn:xmpp:blocking' ver='7'><item jid='a@b'/></block>",
        ] {
            assert_eq!(push(other), with(other));
        }
    }
}
