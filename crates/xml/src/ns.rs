//! Namespaces known to the server, as numbers.
//!
//! RFC 6120, RFC 6121, RFC 7395 and the XEPs named at the entries.
//!
//! Not implemented: numbers for namespaces that are only routed; those stay text.
//!
//! # Pitfalls
//!
//! A number is not stable between builds. It must never be stored or sent to another node.

macro_rules! namespaces {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A namespace known to the server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Ns { $($(#[$doc])* $name,)* }

        impl Ns {
            /// Every known namespace, in numerical order.
            pub const ALL: &'static [Ns] = &[$(Ns::$name),*];
            const TEXT: &'static [&'static str] = &[$($text),*];
        }
    };
}

namespaces! {
    /// Prefix `xml`, always bound.
    Xml = "http://www.w3.org/XML/1998/namespace",
    /// Prefix `xmlns`, always bound, never declared.
    Xmlns = "http://www.w3.org/2000/xmlns/",
    /// Content namespace of client streams (RFC 6120, section 4.8.2).
    Client = "jabber:client",
    /// Content namespace of server streams (RFC 6120, section 4.8.2).
    Server = "jabber:server",
    /// Content namespace of components that connect to the server (XEP-0114).
    ComponentAccept = "jabber:component:accept",
    /// Content namespace of components that the server connects to (XEP-0114).
    ComponentConnect = "jabber:component:connect",
    /// Component connections (XEP-0225).
    Component0 = "urn:xmpp:component:0",
    /// The stream element and its features.
    Stream = "http://etherx.jabber.org/streams",
    /// Stream error conditions.
    StreamsErrors = "urn:ietf:params:xml:ns:xmpp-streams",
    /// Stanza error conditions.
    Stanzas = "urn:ietf:params:xml:ns:xmpp-stanzas",
    /// STARTTLS.
    Tls = "urn:ietf:params:xml:ns:xmpp-tls",
    /// SASL (RFC 6120).
    Sasl = "urn:ietf:params:xml:ns:xmpp-sasl",
    /// Resource binding.
    Bind = "urn:ietf:params:xml:ns:xmpp-bind",
    /// Session establishment (RFC 3921).
    Session = "urn:ietf:params:xml:ns:xmpp-session",
    /// WebSocket framing (RFC 7395).
    Framing = "urn:ietf:params:xml:ns:xmpp-framing",
    /// Roster (RFC 6121).
    Roster = "jabber:iq:roster",
    /// Stream feature of roster versioning.
    RosterVer = "urn:xmpp:features:rosterver",
    /// Stream feature of subscription pre-approval.
    PreApproval = "urn:xmpp:features:pre-approval",
    /// XEP-0220.
    Dialback = "jabber:server:dialback",
    /// Stream feature of XEP-0220.
    DialbackFeature = "urn:xmpp:features:dialback",
    /// XEP-0288.
    Bidi = "urn:xmpp:bidi",
    /// Stream feature of XEP-0288.
    BidiFeature = "urn:xmpp:features:bidi",
    /// XEP-0388.
    Sasl2 = "urn:xmpp:sasl:2",
    /// XEP-0386.
    Bind2 = "urn:xmpp:bind:0",
    /// XEP-0484.
    Fast = "urn:xmpp:fast:0",
    /// XEP-0440.
    SaslCb = "urn:xmpp:sasl-cb:0",
    /// XEP-0480.
    SaslUpgrade = "urn:xmpp:sasl:upgrade:0",
    /// XEP-0480.
    ScramUpgrade = "urn:xmpp:scram-upgrade:0",
    /// XEP-0478.
    StreamLimits = "urn:xmpp:stream-limits:0",
    /// XEP-0198.
    Sm3 = "urn:xmpp:sm:3",
    /// XEP-0198, the older namespace.
    Sm2 = "urn:xmpp:sm:2",
    /// XEP-0138.
    Compress = "http://jabber.org/protocol/compress",
    /// Stream feature of XEP-0138.
    CompressFeature = "http://jabber.org/features/compress",
    /// Stream feature of XEP-0077.
    RegisterFeature = "http://jabber.org/features/iq-register",
    /// XEP-0039.
    Stats = "http://jabber.org/protocol/stats",
    /// XEP-0030.
    DiscoInfo = "http://jabber.org/protocol/disco#info",
    /// XEP-0030.
    DiscoItems = "http://jabber.org/protocol/disco#items",
    /// XEP-0092.
    Version = "jabber:iq:version",
    /// XEP-0115.
    Caps = "http://jabber.org/protocol/caps",
    /// XEP-0390.
    Caps2 = "urn:xmpp:caps",
    /// XEP-0203.
    Delay = "urn:xmpp:delay",
    /// XEP-0091, legacy; only parsed.
    DelayLegacy = "jabber:x:delay",
    /// XEP-0199.
    Ping = "urn:xmpp:ping",
    /// XEP-0202.
    Time = "urn:xmpp:time",
    /// XEP-0359.
    StanzaId = "urn:xmpp:sid:0",
    /// XEP-0004.
    DataForms = "jabber:x:data",
    /// XEP-0122.
    DataFormsValidate = "http://jabber.org/protocol/xdata-validate",
    /// XEP-0221.
    MediaElement = "urn:xmpp:media-element",
    /// XEP-0059.
    Rsm = "http://jabber.org/protocol/rsm",
    /// XEP-0413.
    OrderBy = "urn:xmpp:order-by:1",
    /// XEP-0280.
    Carbons2 = "urn:xmpp:carbons:2",
    /// XEP-0334.
    Hints = "urn:xmpp:hints",
    /// XEP-0297.
    Forward = "urn:xmpp:forward:0",
    /// XEP-0352.
    Csi = "urn:xmpp:csi:0",
    /// XEP-0191.
    Blocking = "urn:xmpp:blocking",
    /// XEP-0191, the error condition.
    BlockingErrors = "urn:xmpp:blocking:errors",
    /// XEP-0377.
    Reporting = "urn:xmpp:reporting:1",
    /// XEP-0016.
    Privacy = "jabber:iq:privacy",
    /// XEP-0054.
    VCardTemp = "vcard-temp",
    /// XEP-0153.
    VCardUpdate = "vcard-temp:x:update",
    /// XEP-0292.
    VCard4 = "urn:ietf:params:xml:ns:vcard-4.0",
    /// XEP-0292, the request.
    VCard4Query = "urn:xmpp:vcard4",
    /// XEP-0084.
    AvatarData = "urn:xmpp:avatar:data",
    /// XEP-0084.
    AvatarMetadata = "urn:xmpp:avatar:metadata",
    /// XEP-0172.
    Nick = "http://jabber.org/protocol/nick",
    /// XEP-0049.
    Private = "jabber:iq:private",
    /// XEP-0048.
    Bookmarks = "storage:bookmarks",
    /// XEP-0402.
    Bookmarks1 = "urn:xmpp:bookmarks:1",
    /// XEP-0012.
    LastActivity = "jabber:iq:last",
    /// XEP-0319.
    Idle = "urn:xmpp:idle:1",
    /// XEP-0077.
    Register = "jabber:iq:register",
    /// XEP-0055.
    Search = "jabber:iq:search",
    /// XEP-0050.
    Commands = "http://jabber.org/protocol/commands",
    /// XEP-0133.
    Admin = "http://jabber.org/protocol/admin",
    /// XEP-0085.
    Chatstates = "http://jabber.org/protocol/chatstates",
    /// XEP-0184.
    Receipts = "urn:xmpp:receipts",
    /// XEP-0333.
    ChatMarkers = "urn:xmpp:chat-markers:0",
    /// XEP-0308.
    Correct = "urn:xmpp:message-correct:0",
    /// XEP-0424.
    Retract = "urn:xmpp:message-retract:1",
    /// XEP-0425.
    Moderate = "urn:xmpp:message-moderate:1",
    /// XEP-0422.
    Fasten = "urn:xmpp:fasten:0",
    /// XEP-0428.
    Fallback = "urn:xmpp:fallback:0",
    /// XEP-0461.
    Reply = "urn:xmpp:reply:0",
    /// XEP-0444.
    Reactions = "urn:xmpp:reactions:0",
    /// XEP-0372.
    Reference = "urn:xmpp:reference:0",
    /// XEP-0380.
    Eme = "urn:xmpp:eme:0",
    /// XEP-0384, the deployed version.
    OmemoLegacy = "eu.siacs.conversations.axolotl",
    /// XEP-0384.
    Omemo2 = "urn:xmpp:omemo:2",
    /// XEP-0373.
    Openpgp = "urn:xmpp:openpgp:0",
    /// XEP-0066.
    Oob = "jabber:x:oob",
    /// XEP-0447.
    Sfs = "urn:xmpp:sfs:0",
    /// XEP-0033.
    Addresses = "http://jabber.org/protocol/address",
    /// XEP-0045.
    Muc = "http://jabber.org/protocol/muc",
    /// XEP-0045.
    MucUser = "http://jabber.org/protocol/muc#user",
    /// XEP-0045.
    MucOwner = "http://jabber.org/protocol/muc#owner",
    /// XEP-0045.
    MucAdmin = "http://jabber.org/protocol/muc#admin",
    /// XEP-0307.
    MucUnique = "http://jabber.org/protocol/muc#unique",
    /// XEP-0249.
    Conference = "jabber:x:conference",
    /// XEP-0433.
    ChannelSearch = "urn:xmpp:channel-search:0:search",
    /// XEP-0433.
    ChannelSearchErrors = "urn:xmpp:channel-search:0:error",
    /// XEP-0421.
    OccupantId = "urn:xmpp:occupant-id:0",
    /// XEP-0317.
    Hats = "urn:xmpp:hats:0",
    /// XEP-0486. (XEP-0410 needs no entry: self-pings use XEP-0199.)
    MucAvatars = "http://modules.prosody.im/mod_vcard_muc",
    /// XEP-0502.
    MucActivity = "urn:xmpp:muc-activity",
    /// XEP-0060.
    Pubsub = "http://jabber.org/protocol/pubsub",
    /// XEP-0060.
    PubsubEvent = "http://jabber.org/protocol/pubsub#event",
    /// XEP-0060.
    PubsubOwner = "http://jabber.org/protocol/pubsub#owner",
    /// XEP-0060.
    PubsubErrors = "http://jabber.org/protocol/pubsub#errors",
    /// XEP-0313.
    Mam2 = "urn:xmpp:mam:2",
    /// XEP-0490.
    MdsDisplayed = "urn:xmpp:mds:displayed:0",
    /// XEP-0492.
    NotificationSettings = "urn:xmpp:notification-settings:1",
    /// XEP-0357.
    Push0 = "urn:xmpp:push:0",
    /// XEP-0363.
    HttpUpload0 = "urn:xmpp:http:upload:0",
    /// XEP-0215.
    ExtDisco2 = "urn:xmpp:extdisco:2",
    /// XEP-0401.
    Invite = "urn:xmpp:invite",
    /// XEP-0379 and XEP-0445.
    Pars = "urn:xmpp:pars:0",
    /// XEP-0158.
    Captcha = "urn:xmpp:captcha",
    /// XEP-0231.
    Bob = "urn:xmpp:bob",
    /// XEP-0356.
    Privilege = "urn:xmpp:privilege:2",
    /// XEP-0355.
    Delegation = "urn:xmpp:delegation:2",
    /// XEP-0124.
    HttpBind = "http://jabber.org/protocol/httpbind",
    /// XEP-0206.
    XBosh = "urn:xmpp:xbosh",
    /// XEP-0065.
    Bytestreams = "http://jabber.org/protocol/bytestreams",
    /// XEP-0166.
    Jingle1 = "urn:xmpp:jingle:1",
    /// XEP-0353.
    JingleMessage = "urn:xmpp:jingle-message:0",
    /// XEP-0071.
    XhtmlIm = "http://jabber.org/protocol/xhtml-im",
    /// XEP-0300.
    Hashes2 = "urn:xmpp:hashes:2",
    /// XEP-0485. (XEP-0157 and XEP-0128 forms need no entry.)
    ServerInfo = "urn:xmpp:serverinfo:0",
}

/// Slots of the hash table from name to number: a power of two, at least three times the number of entries.
const SLOTS: usize = 512;
const EMPTY: u8 = u8::MAX;

const _: () = assert!(SLOTS.is_power_of_two() && SLOTS >= 3 * Ns::ALL.len(), "double the number of slots");
const _: () =
    assert!(Ns::ALL.len() < EMPTY as usize, "a number is one byte, and one value marks empty slots");

/// Hashes the length and four bytes near the end, where namespaces differ.
#[allow(clippy::cast_possible_truncation, reason = "a hash needs the low bits of a length only")]
const fn slot(text: &[u8]) -> usize {
    let n = text.len();
    if n < 4 {
        return 0;
    }
    let tail = u32::from_le_bytes([text[n - 4], text[n - 3], text[n - 2], text[n - 1]]);
    let mid = u32::from_le_bytes([text[n / 2], text[n / 2 + 1], text[(n * 3) / 4], text[n / 4]]);
    let mixed = (tail ^ mid.rotate_left(13) ^ (n as u32).rotate_left(7)).wrapping_mul(0x9E37_79B1);
    (mixed >> (u32::BITS - SLOTS.trailing_zeros())) as usize
}

const fn table() -> [u8; SLOTS] {
    let mut table = [EMPTY; SLOTS];
    let mut i = 0u8;
    while (i as usize) < Ns::TEXT.len() {
        let mut at = slot(Ns::TEXT[i as usize].as_bytes());
        while table[at] != EMPTY {
            at = (at + 1) & (SLOTS - 1);
        }
        table[at] = i;
        i += 1;
    }
    table
}

static TABLE: [u8; SLOTS] = table();

impl Ns {
    /// The number of a namespace name, compared byte by byte (Namespaces in XML 1.0, section 2.3).
    #[allow(clippy::should_implement_trait, reason = "an unknown namespace is no error, so not FromStr")]
    pub fn from_str(text: &str) -> Option<Ns> {
        let mut at = slot(text.as_bytes());
        loop {
            let found = TABLE[at];
            if found == EMPTY {
                return None;
            }
            if Ns::TEXT[usize::from(found)] == text {
                return Some(Ns::ALL[usize::from(found)]);
            }
            at = (at + 1) & (SLOTS - 1);
        }
    }

    /// The namespace name.
    pub const fn as_str(self) -> &'static str {
        Ns::TEXT[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_is_found_by_its_name_and_no_name_is_listed_twice() {
        for &ns in Ns::ALL {
            assert_eq!(Ns::from_str(ns.as_str()), Some(ns), "{ns:?}");
            assert_eq!(Ns::ALL[ns as usize], ns);
        }
    }

    #[test]
    fn unknown_names_and_near_misses_have_no_number() {
        for text in ["", "x", "jabber:clien", "jabber:client ", "JABBER:CLIENT", "urn:xmpp:nothing:9"] {
            assert_eq!(Ns::from_str(text), None, "{text}");
        }
    }

    #[test]
    fn look_ups_end_after_a_few_steps() {
        for &ns in Ns::ALL {
            let mut at = slot(ns.as_str().as_bytes());
            let mut steps = 1;
            while TABLE[at] != ns as u8 {
                at = (at + 1) & (SLOTS - 1);
                steps += 1;
            }
            assert!(steps <= 6, "{ns:?} takes {steps} steps");
        }
    }
}
