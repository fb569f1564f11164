//! vCard-Based Avatars: XEP-0153 1.1.1, sections 3.1 (the hash in presence) and 4.1 (conditions for it).
//!
//! Clients put the hash of their photo into presence themselves. For those that do not, or not yet, the server
//! adds it, so that contacts see the photo whichever client is in use. An existing statement of a client, also that
//! there is no photo, is left unchanged. When the photo changes, presence with a hash added by the server is sent
//! again.
//!
//! The login reads the hash, and the account holds it; accounts without a photo lack a flag bit, and their presence
//! is not parsed.
//!
//! # Pitfalls
//!
//! The hash makes a presence longer, and its size is limited. A presence near the usual limit is left unchanged.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use stanza::{PresenceType, StanzaKind, StanzaKindSet};
use store::Subscription;
use throng_core::hooks::{Flow, Interest, OutgoingCtx, Phase};
use throng_core::session::flags;
use throng_core::{Account, Effect, Effects, Session, SharedStanza};
use xml::{Ns, TreeNode, Writer};

/// The SHA-1 of a photo.
pub(super) type PhotoSha1 = [u8; 20];

/// A presence does not grow beyond this, in bytes; see Pitfalls.
const MAX_PRESENCE_BYTES: usize = 4_096;

pub(super) fn interest() -> Interest {
    let available = StanzaKindSet::of(StanzaKind::Presence(PresenceType::Available));
    Interest::kinds(available).flags(flags::ACCOUNT_PHOTO)
}
pub(super) const PHASE: Phase = Phase::Rewrite;

/// The hash of the photo in a vCard.
pub(super) fn photo_hash(card: TreeNode<'_>) -> Option<PhotoSha1> {
    let text = card.child("PHOTO", Ns::VCardTemp)?.child("BINVAL", Ns::VCardTemp)?.text();
    decode_photo(&text).map(|(_, hash)| hash)
}

/// Number of octets of a photo, and its hash (section 4.5: base64, white space ignored).
pub(super) fn decode_photo(text: &str) -> Option<(usize, PhotoSha1)> {
    let text: String = text.split_ascii_whitespace().collect();
    let photo = BASE64_STANDARD.decode(text).ok().filter(|photo| !photo.is_empty())?;
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &photo);
    Some((photo.len(), digest.as_ref().try_into().ok()?))
}

/// A hash in hexadecimal digits.
pub(super) fn hex(hash: &PhotoSha1) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds the hash to presence from an account with a photo.
pub(super) fn outgoing(ctx: &mut OutgoingCtx<'_>) -> Flow {
    let Some(hash) = ctx.session.account.photo() else { return Flow::Next };
    if let Some(frame) = with_photo_hash(ctx.stanza, Some(&hash), &HashOrigin::Client) {
        *ctx.stanza = frame;
        if ctx.to.is_none() {
            ctx.session.flags.set(flags::PHOTO_ADDED);
        }
    } else if ctx.to.is_none() {
        ctx.session.flags.clear(flags::PHOTO_ADDED);
    }
    Flow::Next
}

/// The photo changed or was removed: sends the presence of resources again that do not state a hash themselves.
pub(super) fn photo_changed(account: &Arc<Account>, hash: Option<PhotoSha1>, effects: &mut Effects) {
    if account.photo() == hash {
        return;
    }
    account.with(|state| account.set_photo(state, hash));
    for session in account.sessions() {
        if let Some(frame) = refresh_presence(&session, hash.as_ref()) {
            effects.add(Effect::Broadcast {
                account: account.clone(),
                stanza: frame.clone(),
                to: Subscription::FROM,
            });
            effects.add(Effect::OtherResources { except: session.clone(), stanza: frame.clone() });
            effects.add(Effect::SendTo(session, frame));
        }
    }
}

fn refresh_presence(session: &Arc<Session>, hash: Option<&PhotoSha1>) -> Option<SharedStanza> {
    let given = if session.flags.has(flags::PHOTO_ADDED) { HashOrigin::Server } else { HashOrigin::Client };
    let frame = session.with(|state| {
        let frame = with_photo_hash(state.presence.as_ref()?, hash, &given)?;
        state.presence = Some(frame.clone());
        Some(frame)
    })?;
    session.flags.set(flags::PHOTO_ADDED);
    Some(frame)
}

/// Origin of the hash in a presence.
enum HashOrigin {
    /// Set by the client, so it stays.
    Client,
    /// Set by the server, so it may be replaced.
    Server,
}

/// The presence with this hash, or stating that there is no photo (section 4.1, rule 3); `None` to leave it
/// unchanged.
fn with_photo_hash(
    frame: &SharedStanza,
    hash: Option<&PhotoSha1>,
    given: &HashOrigin,
) -> Option<SharedStanza> {
    let tree = frame.tree().ok()?;
    let update = tree.root().child("x", Ns::VCardUpdate);
    let photo = update.and_then(|update| update.child("photo", Ns::VCardUpdate));
    if photo.is_some() && matches!(given, HashOrigin::Client) {
        return None;
    }
    let mut child = Vec::with_capacity(112);
    let mut w = Writer::new(&mut child);
    let hash = hash.map(hex).unwrap_or_default();
    w.start_ns("x", Ns::VCardUpdate).text_element("photo", &hash).end();
    if frame.bytes().len() + child.len() > MAX_PRESENCE_BYTES {
        return None;
    }
    let mut out = Vec::with_capacity(frame.bytes().len() + child.len() + 16);
    match update {
        Some(update) => {
            out.extend_from_slice(&frame.bytes()[..update.range().start]);
            out.extend_from_slice(&child);
            out.extend_from_slice(&frame.bytes()[update.range().end..]);
            SharedStanza::parse(&out)
        }
        None => {
            let head = stanza::append_child(frame.bytes(), frame.head(), &child, Ns::VCardUpdate, &mut out);
            head.ok().map(|head| SharedStanza::new(head, &out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{NodeClient, TestNode};

    /// `printf photo | sha1sum`, and of `other`.
    const PHOTO: &str = "eeb35d331bddcddfdbb0a6d16f64120bb01356fd";
    const OTHER: &str = "d0941e68da8f38151ff86a61fc59f7c5cf9fcaa2";

    fn engine() -> TestNode {
        let engine = TestNode::new(&[&super::super::FEATURE, &crate::rfc6121::presence::FEATURE]);
        engine.create_user("juliet");
        engine.create_user("romeo");
        engine.befriend("juliet", "romeo");
        engine
    }

    fn set(client: &NodeClient, photo: &str) {
        let data = base64::Engine::encode(&BASE64_STANDARD, photo);
        let (a, b) = data.split_at(data.len() / 2);
        let answer = client.request(&format!(
            "<iq type='set' id='v'><vCard xmlns='vcard-temp'><FN>J</FN>\
             <PHOTO><TYPE>image/png</TYPE><BINVAL>\n {a}\r\n{b}</BINVAL></PHOTO></vCard></iq>"
        ));
        assert!(answer.last().unwrap().contains("type='result'"), "{answer:?}");
    }

    fn update(photo: &str) -> String {
        format!("<x xmlns='vcard-temp:x:update'>{photo}</x>")
    }

    fn carries(stanzas: &[String], photo: &str) -> bool {
        let photo = if photo.is_empty() { "<photo/>".to_owned() } else { format!("<photo>{photo}</photo>") };
        let [stanza] = stanzas else { panic!("one presence: {stanzas:?}") };
        assert_eq!(stanza.matches("vcard-temp:x:update").count(), 1, "{stanza}");
        stanza.contains(&update(&photo))
    }

    #[test]
    fn the_hash_is_read_at_login_and_added_to_presence() {
        let engine = engine();
        let juliet = engine.connect("juliet", "balcony");
        set(&juliet, "photo");
        juliet.close();
        let romeo = engine.connect("romeo", "orchard");
        romeo.send("<presence/>");
        let juliet = engine.connect("juliet", "chamber");
        engine.store_calls();
        romeo.recv();
        for presence in [
            "<presence/>",
            "<presence><show>away</show></presence>",
            "<presence><x xmlns='vcard-temp:x:update'/></presence>",
        ] {
            juliet.send(presence);
            assert!(carries(&romeo.recv(), PHOTO), "{presence}");
        }
        juliet.send("<presence to='romeo@example.com/orchard'><status>you</status></presence>");
        assert!(carries(&romeo.recv(), PHOTO));
        assert!(engine.store_calls().is_empty());
    }

    #[test]
    fn section_4_1_a_hash_from_the_client_is_unchanged() {
        let engine = engine();
        let juliet = engine.connect("juliet", "balcony");
        set(&juliet, "photo");
        let romeo = engine.connect("romeo", "orchard");
        romeo.send("<presence/>");
        romeo.recv();
        for (own, is) in [("<photo/>", ""), ("<photo>01b8</photo>", "01b8")] {
            juliet.send(&format!("<presence>{}</presence>", update(own)));
            assert!(carries(&romeo.recv(), is));
        }
        set(&juliet, "other");
        assert!(romeo.recv().is_empty(), "the client will say so itself");
        juliet.send("<presence type='unavailable'/>");
        assert!(!romeo.recv()[0].contains("vcard-temp"));
    }

    #[test]
    fn a_changed_photo_is_announced_for_resources_that_send_no_hash() {
        let engine = engine();
        let juliet = engine.connect("juliet", "balcony");
        let romeo = engine.connect("romeo", "orchard");
        romeo.send("<presence/>");
        juliet.send("<presence><status>here</status></presence>");
        assert!(!romeo.recv().iter().any(|stanza| stanza.contains("vcard-temp")), "nothing without a photo");
        for (photo, hash) in [("photo", PHOTO), ("other", OTHER)] {
            set(&juliet, photo);
            let received = romeo.recv();
            assert!(carries(&received, hash) && received[0].contains("<status>here</status>"));
        }
        set(&juliet, "other");
        assert!(romeo.recv().is_empty(), "the same photo");
        juliet.request("<iq type='set' id='v'><vCard xmlns='vcard-temp'/></iq>");
        assert!(carries(&romeo.recv(), ""), "no photo any more");
        juliet.send("<presence/>");
        assert!(!romeo.recv()[0].contains("vcard-temp"));
        // The answer to a probe contains the same hash.
        set(&juliet, "photo");
        romeo.recv();
        let late = engine.connect("romeo", "late");
        late.send("<presence/>");
        assert_eq!(late.recv().iter().filter(|stanza| stanza.contains(PHOTO)).count(), 1);
    }

    #[test]
    fn photos_that_cannot_be_read_have_no_hash() {
        let of = |inner: &str| {
            let text = format!("<vCard xmlns='vcard-temp'>{inner}</vCard>");
            let tree = throng_core::shared_stanza::tree(text.as_bytes()).unwrap();
            photo_hash(tree.root()).is_some()
        };
        assert!(of("<PHOTO><BINVAL>cGhvdG8=</BINVAL></PHOTO>"));
        for none in [
            "",
            "<PHOTO/>",
            "<PHOTO><BINVAL/></PHOTO>",
            "<PHOTO><BINVAL>not!</BINVAL></PHOTO>",
            "<PHOTO><EXTVAL>http://x/</EXTVAL></PHOTO>",
        ] {
            assert!(!of(none), "{none}");
        }
    }

    #[test]
    fn a_presence_near_its_size_limit_is_unchanged() {
        let engine = engine();
        let juliet = engine.connect("juliet", "balcony");
        set(&juliet, "photo");
        let own = juliet.request(&format!("<presence><status>{}</status></presence>", "x".repeat(3_980)));
        assert!(
            own.last().unwrap().contains("xxx") && !own.last().unwrap().contains("vcard-temp"),
            "{:?}",
            own.len()
        );
    }
}
