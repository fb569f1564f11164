//! vCard-Based Avatars: XEP-0153 1.1.1 sections 3.1 (the hash in presence) and 4.1 (when it is there).
//!
//! Clients put the hash of their photo into presence themselves. For those that do not know how, or not yet, the server does
//! it, so that contacts see the photo of a user whichever client is in use. What a client says of its photo, also that it
//! has none, is left alone. When the photo changes, the presence that carries a hash of the server's is sent anew.
//!
//! The hash comes with the login and is kept by the account; accounts without a photo have a bit that is not set, and their
//! presence is not looked into.
//!
//! Left out: conversion between these avatars and those of XEP-0084 (XEP-0398).
//!
//! The trap: what is put into presence makes it longer, and a presence has a limit. A presence near the usual limit is left
//! as it is.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use stanza::{Kind, KindSet, PresenceType};
use store::Subscription;
use throng_core::hooks::{Flow, Interest, OutgoingCtx, Phase};
use throng_core::session::flags;
use throng_core::{Account, Effect, Effects, Frame, Session};
use xml::{Node, Ns, Writer};

/// The SHA-1 of a photo.
pub(super) type Hash = [u8; 20];

/// A presence does not grow beyond this, in bytes; see the trap.
const PRESENCE_BYTES: usize = 4_096;

pub(super) fn interest() -> Interest {
    let available = KindSet::of(Kind::Presence(PresenceType::Available));
    Interest::kinds(available).flags(flags::ACCOUNT_PHOTO)
}
pub(super) const PHASE: Phase = Phase::Rewrite;

/// The hash of the photo in a card (section 4.5: base64, white space ignored).
pub(super) fn of_card(card: Node<'_>) -> Option<Hash> {
    let text = card.child("PHOTO", Ns::VCardTemp)?.child("BINVAL", Ns::VCardTemp)?.text();
    let text: String = text.split_ascii_whitespace().collect();
    let photo = BASE64_STANDARD.decode(text).ok().filter(|photo| !photo.is_empty())?;
    ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &photo).as_ref().try_into().ok()
}

/// A stanza from an account with a photo.
pub(super) fn outgoing(ctx: &mut OutgoingCtx<'_>) -> Flow {
    let Some(hash) = ctx.session.account.photo() else { return Flow::Next };
    if let Some(frame) = with(ctx.frame, Some(&hash), &Given::Nothing) {
        *ctx.frame = frame;
        if ctx.to.is_none() {
            ctx.session.flags.set(flags::PHOTO_ADDED);
        }
    } else if ctx.to.is_none() {
        ctx.session.flags.clear(flags::PHOTO_ADDED);
    }
    Flow::Next
}

/// The photo is another one, or gone: the presence of resources that do not say so themselves is sent anew.
pub(super) fn changed(account: &Arc<Account>, hash: Option<Hash>, effects: &mut Effects) {
    if account.photo() == hash {
        return;
    }
    account.with(|state| account.set_photo(state, hash));
    for session in account.sessions() {
        if let Some(frame) = renew(&session, hash.as_ref()) {
            effects.add(Effect::Broadcast {
                account: account.clone(),
                frame: frame.clone(),
                to: Subscription::FROM,
            });
            effects.add(Effect::Siblings { except: session.clone(), frame: frame.clone() });
            effects.add(Effect::SendTo(session, frame));
        }
    }
}

fn renew(session: &Arc<Session>, hash: Option<&Hash>) -> Option<Frame> {
    let given = if session.flags.has(flags::PHOTO_ADDED) { Given::Ours } else { Given::Nothing };
    let frame = session.with(|state| {
        let frame = with(state.presence.as_ref()?, hash, &given)?;
        state.presence = Some(frame.clone());
        Some(frame)
    })?;
    session.flags.set(flags::PHOTO_ADDED);
    Some(frame)
}

/// Whose word the hash in a presence is, if there is one.
enum Given {
    /// The client's, so it stays.
    Nothing,
    /// The server's, so it may be replaced.
    Ours,
}

/// The presence with this hash, or with none to be had (section 4.1, rule 3); `None` to leave it as it is.
fn with(frame: &Frame, hash: Option<&Hash>, given: &Given) -> Option<Frame> {
    let tree = frame.tree().ok()?;
    let update = tree.root().child("x", Ns::VCardUpdate);
    let photo = update.and_then(|update| update.child("photo", Ns::VCardUpdate));
    if photo.is_some() && matches!(given, Given::Nothing) {
        return None;
    }
    let mut child = Vec::with_capacity(112);
    let mut w = Writer::new(&mut child);
    let hex: String = hash.into_iter().flatten().map(|b| format!("{b:02x}")).collect();
    w.start_ns("x", Ns::VCardUpdate).leaf("photo", &hex).end();
    if frame.bytes().len() + child.len() > PRESENCE_BYTES {
        return None;
    }
    let mut out = Vec::with_capacity(frame.bytes().len() + child.len() + 16);
    match update {
        Some(update) => {
            out.extend_from_slice(&frame.bytes()[..update.range().start]);
            out.extend_from_slice(&child);
            out.extend_from_slice(&frame.bytes()[update.range().end..]);
            Frame::read(&out)
        }
        None => {
            let head = stanza::append_child(frame.bytes(), frame.head(), &child, Ns::VCardUpdate, &mut out);
            head.ok().map(|head| Frame::new(head, &out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Client, Engine};

    /// `printf photo | sha1sum`, and of `other`.
    const PHOTO: &str = "eeb35d331bddcddfdbb0a6d16f64120bb01356fd";
    const OTHER: &str = "d0941e68da8f38151ff86a61fc59f7c5cf9fcaa2";

    fn engine() -> Engine {
        let engine = Engine::new(&[&super::super::FEATURE, &crate::rfc6121::presence::FEATURE]);
        engine.user("juliet");
        engine.user("romeo");
        engine.befriend("juliet", "romeo");
        engine
    }
    fn set(client: &Client, photo: &str) {
        let data = base64::Engine::encode(&BASE64_STANDARD, photo);
        let (a, b) = data.split_at(data.len() / 2);
        let answer = client.ask(&format!(
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
    fn the_hash_comes_with_the_login_and_goes_into_presence() {
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
    fn section_4_1_what_a_client_says_is_left_alone() {
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
    fn another_photo_is_told_for_resources_that_do_not_tell_it() {
        let engine = engine();
        let juliet = engine.connect("juliet", "balcony");
        let romeo = engine.connect("romeo", "orchard");
        romeo.send("<presence/>");
        juliet.send("<presence><status>here</status></presence>");
        assert!(!romeo.recv().iter().any(|stanza| stanza.contains("vcard-temp")), "nothing without a photo");
        for (photo, hash) in [("photo", PHOTO), ("other", OTHER)] {
            set(&juliet, photo);
            let told = romeo.recv();
            assert!(carries(&told, hash) && told[0].contains("<status>here</status>"));
        }
        set(&juliet, "other");
        assert!(romeo.recv().is_empty(), "the same photo");
        juliet.ask("<iq type='set' id='v'><vCard xmlns='vcard-temp'/></iq>");
        assert!(carries(&romeo.recv(), ""), "no photo any more");
        juliet.send("<presence/>");
        assert!(!romeo.recv()[0].contains("vcard-temp"));
        // A probe is answered with the same.
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
            let tree = throng_core::frame::tree(text.as_bytes()).unwrap();
            of_card(tree.root()).is_some()
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
    fn a_presence_near_its_limit_is_left_as_it_is() {
        let engine = engine();
        let juliet = engine.connect("juliet", "balcony");
        set(&juliet, "photo");
        let own = juliet.ask(&format!("<presence><status>{}</status></presence>", "x".repeat(3_980)));
        assert!(
            own.last().unwrap().contains("xxx") && !own.last().unwrap().contains("vcard-temp"),
            "{:?}",
            own.len()
        );
    }
}
