//! Subject of a room: XEP-0045 1.35.5, sections 7.2.15 and 8.1.

use jid::Jid;
use stanza::payload::delay;
use stanza::{PayloadNs, PayloadSet, StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use xml::{Ns, TreeNode};

use super::messages::append;
use super::{Room, RoomCtx};
use crate::privileges::RoomRole;

/// The current subject.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    /// As newcomers receive it, and its sender; none if there was never one.
    pub(crate) stanza: Option<(SharedStanza, Jid)>,
    pub(crate) text: String,
}

/// Whether a message changes the subject: it has a subject, and neither a body nor a thread.
pub(super) fn is_subject_change(message: TreeNode<'_>) -> bool {
    let has = |name| message.child(name, Ns::Client).is_some();
    has("subject") && !has("body") && !has("thread")
}

/// Bytes of a subject's stanza besides its text: attributes, extensions, texts in other languages.
const MAX_SUBJECT_OVERHEAD: usize = 8_192;

impl Room {
    /// Section 8.1: an occupant changes the subject.
    pub(super) fn change_subject(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        message: TreeNode<'_>,
        stanza: &SharedStanza,
        from: &Jid,
    ) -> Result<(), StanzaError> {
        let occupant = self.occupant(from)?;
        let may = occupant.role == RoomRole::Moderator
            || self.config.change_subject && occupant.role == RoomRole::Participant;
        if !may {
            let text = "you are not allowed to change the subject";
            return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
        }
        let text = message.child("subject", Ns::Client).map(|subject| subject.text().into_owned());
        let text = text.unwrap_or_default();
        // The whole stanza is kept, with subjects in other languages.
        let max_bytes = self.limits().subject_bytes;
        if text.len() > max_bytes || stanza.bytes().len() > max_bytes.saturating_add(MAX_SUBJECT_OVERHEAD) {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the subject is too long"));
        }
        let (address, id) = (occupant.jid.clone(), (ctx.new_id)());
        // Section 7.2.15: the time of a subject is that of the room.
        let reflected = self.reflected(stanza, occupant, &id, false)?;
        let recipients = self.occupants.all_sessions();
        ctx.multicast(Some(reflected.clone()), &address, recipients);
        self.subject.stanza = Some((self.with_delay(&reflected, ctx.now), address));
        self.subject.text = text;
        self.note_change();
        Ok(())
    }

    /// The room's id of the message that has set the subject, and the occupant id of its author.
    pub(super) fn subject_id(&self) -> Option<(String, String)> {
        let (stanza, _) = self.subject.stanza.as_ref()?;
        let tree = stanza.tree().ok()?;
        let id = |name, ns| tree.root().child(name, ns)?.attr("id").map(|id| id.into_owned());
        Some((id("stanza-id", Ns::StanzaId)?, id("occupant-id", Ns::OccupantId)?))
    }

    /// A subject that was retracted is not sent to newcomers (XEP-0424 and XEP-0425, section 5).
    pub(super) fn clear_subject(&mut self) {
        self.subject = Subject::default();
        self.note_change();
    }

    /// The same stanza with the time at which the room received it (section 7.2.13). One that an owner has sent with a time has no
    /// other (section 7.9).
    pub(super) fn with_delay(&self, stanza: &SharedStanza, millis: u64) -> SharedStanza {
        let mut delayed = stanza.clone();
        if stanza.head().payloads().intersects(PayloadSet::of(&[PayloadNs::Delay])) {
            return delayed;
        }
        // A stanza that is too long for the addition stays as it is.
        let _ = append(&mut delayed, Ns::Delay, |w| delay::write(w, self.jid.as_str(), millis));
        delayed
    }
}
