//! A room as a state machine: a stanza and the state give effects, without I/O: XEP-0045 1.35.5.
//!
//! One task owns a room (`room_task.rs`), so its inputs have one order, which is that of every occupant.

mod activity;
mod admin;
mod administration;
mod affiliations;
mod avatar;
mod change_limits;
mod config;
mod copy;
mod delivery_errors;
mod disco;
mod entering;
mod hats;
mod history;
mod import;
mod invitations;
mod iq_relay;
mod messages;
mod moderation;
mod nickname;
mod occupant_id;
mod occupants;
mod owner;
mod presence;
mod private_messages;
mod privilege_lists;
mod registration;
mod removed_accounts;
mod retained_roles;
mod room_state;
mod service_admins;
mod slow_mode;
mod snapshot;
mod stored_users;
mod subject;
mod unanswered_requests;
mod visibility;
mod voice;

use std::sync::Arc;

use jid::{Jid, JidRef};
use ring::hmac;
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind};
use store::rooms::KEEP_ALL;
use store::{RoomAffiliation, RoomHistoryEntry};
use throng_core::multicast::Multicast;
use throng_core::receipt::ReceiptIssuer;
use throng_core::{Effect, Effects, Node, RecipientList, SharedStanza, StanzaSource, UndeliveredRecipient};
use xml::{Ns, TreeNode, Writer};

use self::activity::RoomActivity;
use self::config::RoomConfig;
use self::delivery_errors::SentPrivateMessages;
use self::hats::RoomHats;
use self::history::RoomHistory;
use self::iq_relay::RelayedRequests;
use self::occupant_id::OccupantId;
use self::occupants::{Occupant, Occupants};
use self::retained_roles::RetainedRoles;
use self::room_state::RoomEvent;
use self::slow_mode::SlowModeTimes;
use self::subject::Subject;
use self::unanswered_requests::UnansweredRequests;
use crate::invitation_registry::InvitationRegistry;
use crate::options::{RoomLimits, ServiceOptions};
use crate::privileges::{Affiliation, RoomRole};
use crate::removed_accounts::RemovedAccounts;
use crate::room_directory::RoomSummary;

pub(crate) use self::administration::{AffiliationOutcome, CreationOutcome, DestructionOutcome};
pub(crate) use self::affiliations::Affiliations;
pub(crate) use self::copy::{RoomCopy, empty_copy};
pub(crate) use self::invitations::PendingInvitations;
pub(crate) use self::iq_relay::not_in_room;
pub(crate) use self::owner::DestroyNotice;
pub(crate) use self::presence::report_not_in_room;
pub(crate) use self::privilege_lists::StoredAffiliationList;
pub(crate) use self::room_state::RoomState;
pub(crate) use self::snapshot::LoadedRoom;

/// Receives the sessions that did not receive a multicast of the room.
pub(crate) type UndeliveredReport = Arc<dyn Fn(&Arc<Node>, Vec<Jid>) + Send + Sync>;

/// Surroundings of a room besides the stanza, and the effects that it wants.
pub(crate) struct RoomCtx<'a> {
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    /// A stanza id (XEP-0359).
    pub(crate) new_id: &'a dyn Fn() -> String,
    /// Key of the occupant ids of the service.
    pub(crate) occupant_key: &'a hmac::Key,
    /// Whether the sender administers the service.
    pub(crate) is_service_admin: bool,
    /// Whether a user does.
    pub(crate) is_admin: &'a dyn Fn(JidRef<'_>) -> bool,
    /// Users who are not the ones that had their addresses before.
    pub(crate) removed_accounts: &'a RemovedAccounts,
    /// Invitations of each user to all rooms.
    pub(crate) invitations: &'a InvitationRegistry,
    pub(crate) undelivered: &'a UndeliveredReport,
    /// Fulfilled when all nodes have acknowledged the first multicast, which is the message that is being handled.
    pub(crate) delivered: Option<ReceiptIssuer>,
    pub(crate) effects: Effects,
}

impl RoomCtx<'_> {
    /// Sends a stanza with both addresses.
    pub(crate) fn send(&mut self, stanza: Option<SharedStanza>, from: Jid, to: Jid) {
        if let Some(stanza) = stanza {
            self.effects.add(Effect::RouteInLane { source: StanzaSource::Service, stanza, from, to });
        }
    }

    /// Sends a stanza without `to` to sessions.
    pub(crate) fn multicast(
        &mut self,
        stanza: Option<SharedStanza>,
        from: &Jid,
        recipients: impl Into<RecipientList>,
    ) {
        let recipients = recipients.into();
        let Some(stanza) = stanza.filter(|_| !recipients.is_empty()) else { return };
        let report = self.undelivered.clone();
        let mut multicast = Multicast::new(stanza, from.clone(), recipients).on_undelivered(
            move |node: &Arc<Node>, recipients: Vec<UndeliveredRecipient>| {
                report(node, recipients.into_iter().map(|one| one.to).collect());
                Effects::default()
            },
        );
        if let Some(receipt) = self.delivered.take() {
            multicast = multicast.with_receipt(receipt);
        }
        self.effects.multicast(multicast);
    }

    /// Sends a stanza without `to` to one session.
    pub(crate) fn send_shared(&mut self, stanza: Option<SharedStanza>, from: &Jid, to: &Jid) {
        self.multicast(stanza, from, RecipientList::from_iter([to]));
    }
}

/// The answer to a request.
pub(crate) enum RoomAnswer {
    /// The payload of the result.
    Result(Vec<u8>),
    /// The payload is a list that the store has.
    List(StoredAffiliationList),
}

/// A request to the room.
pub(crate) struct RoomRequest<'a> {
    pub(crate) from: &'a Jid,
    pub(crate) is_set: bool,
    /// The payload.
    pub(crate) payload: TreeNode<'a>,
}

/// Memory of a room without history, lists and vCard.
const ROOM_BYTES: usize = 1_500;

/// A room.
pub(crate) struct Room {
    jid: Jid,
    options: Arc<ServiceOptions>,
    config: RoomConfig,
    affiliations: Affiliations,
    occupants: Occupants,
    history: RoomHistory,
    subject: Subject,
    invitations: PendingInvitations,
    relayed: RelayedRequests,
    private_messages: SentPrivateMessages,
    registrations: UnansweredRequests,
    voice_requests: UnansweredRequests,
    slow_mode: SlowModeTimes,
    activity: RoomActivity,
    roles: RetainedRoles,
    /// The vCard, with the hashes of its photos.
    avatar: Option<avatar::RoomAvatar>,
    hats: RoomHats,
    creator: Jid,
    /// Number of the last removal of an account that it contains.
    removals: u64,
    /// The same of the copy on another node.
    copied_removals: u64,
    state: RoomState,
    /// The stored state has changed, except for the history.
    is_changed: bool,
    /// The rooms of its creator take too much memory.
    is_over_quota: bool,
    /// The copy on another node has other settings.
    is_copy_outdated: bool,
    /// Messages that are not stored yet.
    unsaved: Vec<RoomHistoryEntry>,
}

impl Room {
    /// A room that its first owner creates by entering it.
    pub(crate) fn create(jid: Jid, options: Arc<ServiceOptions>, creator: Jid) -> Room {
        let mut affiliations = Affiliations::default();
        affiliations.set(&creator, Affiliation::Owner, None, None);
        Room {
            config: RoomConfig::new(&options.room_defaults),
            jid,
            options,
            affiliations,
            occupants: Occupants::default(),
            history: RoomHistory::default(),
            subject: Subject::default(),
            invitations: PendingInvitations::default(),
            relayed: RelayedRequests::default(),
            private_messages: SentPrivateMessages::default(),
            registrations: UnansweredRequests::default(),
            voice_requests: UnansweredRequests::default(),
            slow_mode: SlowModeTimes::default(),
            activity: RoomActivity::default(),
            roles: RetainedRoles::default(),
            avatar: None,
            hats: RoomHats::default(),
            creator,
            removals: 0,
            copied_removals: 0,
            state: RoomState::Locked,
            is_changed: true,
            is_over_quota: false,
            is_copy_outdated: true,
            unsaved: Vec::new(),
        }
    }

    /// Its address.
    pub(crate) fn jid(&self) -> &Jid {
        &self.jid
    }

    /// Ends it if it is a temporary room without occupants; its state.
    pub(crate) fn end_if_empty(&mut self) -> RoomState {
        if self.occupants.is_empty() {
            self.state = self.state.after(RoomEvent::Emptied);
        }
        self.state
    }

    /// Whether it waits for its first configuration (section 10.1.1).
    fn is_locked(&self) -> bool {
        self.state == RoomState::Locked
    }

    /// Whether it is kept without occupants.
    pub(crate) fn is_persistent(&self) -> bool {
        self.state == RoomState::Persistent
    }

    /// Whether it is listed.
    pub(crate) fn is_public(&self) -> bool {
        self.config.public && !self.is_locked()
    }

    /// Its natural-language name.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// What others learn of it in lists of rooms.
    pub(crate) fn summary(&self) -> RoomSummary {
        RoomSummary {
            name: self.config.name.clone(),
            is_public: self.is_public(),
            is_persistent: self.is_persistent(),
            occupants: self.occupants.len(),
            creator: self.creator.clone(),
            description: self.config.description.as_str().into(),
            language: self.config.language.as_str().into(),
            is_open: self.is_open(),
            is_non_anonymous: self.config.non_anonymous,
            bytes: 0,
        }
    }

    /// Bare address of the user who has created it; its own, if the account was removed.
    pub(crate) fn creator(&self) -> &Jid {
        &self.creator
    }

    /// Memory that it takes besides its occupants, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let avatar = self.avatar.as_ref().map_or(0, |avatar| avatar.card.len());
        let subject = self.subject.stanza.as_ref().map_or(0, |(stanza, _)| stanza.bytes().len());
        let waiting = [
            self.private_messages.memory_bytes(),
            self.relayed.memory_bytes(),
            self.invitations.bytes(),
            self.registrations.memory_bytes(),
            self.voice_requests.memory_bytes(),
            self.slow_mode.memory_bytes(),
            self.roles.memory_bytes(),
            self.hats.memory_bytes(),
        ];
        let waiting: usize = waiting.into_iter().sum();
        let stored = self.history.memory_bytes() + self.affiliations.memory_bytes();
        ROOM_BYTES + stored + waiting + avatar + subject + self.subject.text.len()
    }

    /// The rooms of its creator take too much memory, or not any more: they have less history then, and nothing but bans is added to
    /// lists.
    pub(crate) fn set_over_quota(&mut self, is_over_quota: bool) {
        if self.is_over_quota != is_over_quota {
            self.is_over_quota = is_over_quota;
            let limits = *self.limits();
            self.history.trim(&limits);
        }
    }

    /// Whether these details are those of the room.
    pub(crate) fn has_details(&self, summary: &RoomSummary) -> bool {
        summary.creator == self.creator
            && *summary.description == *self.config.description
            && *summary.language == *self.config.language
            && summary.is_open == self.is_open()
            && summary.is_non_anonymous == self.config.non_anonymous
    }

    /// Number of occupants.
    pub(crate) fn occupant_count(&self) -> usize {
        self.occupants.len()
    }

    /// Sessions, and nicknames, of the occupants.
    pub(crate) fn occupant_list(&self) -> Vec<(String, Jid)> {
        let sessions = |one: &Occupant| {
            let nick = one.nick().to_owned();
            one.sessions.iter().map(move |session| (nick.clone(), session.jid.clone())).collect::<Vec<_>>()
        };
        self.occupants.iter().flat_map(sessions).collect()
    }

    /// An administrator of the service creates it: it exists without occupants.
    pub(crate) fn unlock_persistent(&mut self) {
        self.config.persistent = true;
        self.state = self.state.after(RoomEvent::Configured { persistent: true });
    }

    /// Whether what is stored has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Affiliations that were not stored yet; with `all`, every one.
    pub(crate) fn take_unsaved_affiliations(&mut self, all: bool) -> Vec<RoomAffiliation> {
        self.affiliations.take_unsaved(all)
    }

    /// The store has all affiliations.
    pub(crate) fn affiliations_are_stored(&mut self) {
        self.affiliations.mark_stored();
    }

    /// Changes of these users' affiliations were not stored.
    pub(crate) fn affiliations_are_not_stored(&mut self, users: Vec<Jid>) {
        self.affiliations.mark_unsaved(users);
    }

    /// A temporary room: affiliations are stored, all of them, when it becomes persistent.
    pub(crate) fn forget_unsaved_affiliations(&mut self) {
        self.affiliations.forget_unsaved();
    }

    /// The stored state changes, other than affiliations.
    fn note_change(&mut self) {
        self.is_changed = true;
        self.is_copy_outdated = true;
    }

    /// Storing what has changed failed.
    pub(crate) fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    /// The copy on another node must get the settings again.
    pub(crate) fn note_other_copy(&mut self) {
        self.is_copy_outdated = true;
    }

    /// Whether something but messages is not stored yet.
    pub(crate) fn has_changes(&self) -> bool {
        self.is_changed || self.affiliations.has_unsaved()
    }

    /// Whether there are messages that are not stored yet.
    pub(crate) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Messages that are not stored yet. Those of a temporary room are not stored.
    pub(crate) fn take_unsaved(&mut self) -> Vec<RoomHistoryEntry> {
        std::mem::take(&mut self.unsaved)
    }

    /// Number of messages of the history that are in memory.
    pub(crate) fn history_length(&self) -> usize {
        self.history.len()
    }

    /// Number of messages that the store keeps when `more` are added. Removing others takes long in a long history, so it is not done
    /// each time, but so often that there are a hundredth too many on average.
    pub(crate) fn stored_history(&self, more: usize) -> u32 {
        let (limit, in_memory) = (self.limits().stored_history_messages, self.history_length());
        let step = limit / 100;
        let random = u32::from_be_bytes(base::id::random_bytes()) as usize;
        if limit > in_memory && random.checked_rem(step).is_some_and(|random| random >= more) {
            return KEEP_ALL;
        }
        u32::try_from(limit.max(in_memory)).unwrap_or(KEEP_ALL)
    }

    /// The inputs that are handled together end.
    pub(crate) fn end_batch(&mut self) {
        self.occupants.drop_list();
    }

    /// The options after a reload.
    pub(crate) fn set_options(&mut self, options: Arc<ServiceOptions>) {
        self.options = options;
    }

    fn limits(&self) -> &RoomLimits {
        if self.is_over_quota { &self.options.limits_over_quota } else { &self.options.limits }
    }

    /// Handles a presence to the room or an occupant.
    pub(crate) fn presence(&mut self, ctx: &mut RoomCtx<'_>, stanza: &SharedStanza, from: &Jid, to: &Jid) {
        let StanzaKind::Presence(kind) = stanza.kind() else { return };
        self.activity.start(ctx.now);
        let result = match kind {
            PresenceType::Available => self.available(ctx, stanza, from, to),
            PresenceType::Unavailable => {
                self.leave(ctx, from, Some(stanza));
                Ok(())
            }
            PresenceType::Error => {
                self.delivery_error(ctx, stanza, from, to);
                Ok(())
            }
            _ => Ok(()),
        };
        self.refuse(ctx, stanza, from, to, result);
    }

    /// Handles a message to the room or an occupant.
    pub(crate) fn message(&mut self, ctx: &mut RoomCtx<'_>, stanza: &SharedStanza, from: &Jid, to: &Jid) {
        if stanza.kind().is_error() {
            self.delivery_error(ctx, stanza, from, to);
            return;
        }
        let result = match to.resource() {
            Some(nick) => self.private_message(ctx, stanza, from, nick),
            None => self.room_message(ctx, stanza, from),
        };
        self.refuse(ctx, stanza, from, to, result);
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The error for the requester.
    pub(crate) fn request(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        request: &RoomRequest<'_>,
    ) -> Result<RoomAnswer, StanzaError> {
        self.answer(ctx, request).map_err(|error| match error.by {
            Some(_) => error,
            None => error.by(self.jid.as_str()),
        })
    }

    fn answer(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        request: &RoomRequest<'_>,
    ) -> Result<RoomAnswer, StanzaError> {
        self.activity.start(ctx.now);
        if self.is_locked() && !self.is_owner(ctx, request.from.bare()) {
            return Err(StanzaCondition::ItemNotFound.into());
        }
        if let Some(list) = self.stored_list(ctx, request)? {
            return Ok(RoomAnswer::List(list));
        }
        let result = match (request.payload.ns(), request.payload.name()) {
            (Some(Ns::MucAdmin), "query") => self.admin_request(ctx, request),
            (Some(Ns::MucOwner), "query") => self.owner_request(ctx, request),
            (Some(Ns::DiscoInfo), "query") => self.disco_info(ctx, request),
            (Some(Ns::DiscoItems), "query") => self.disco_items(ctx, request),
            (Some(Ns::Register), "query") => self.registration_request(ctx, request),
            (Some(Ns::VCardTemp), "vCard") => self.avatar_request(ctx, request),
            (Some(Ns::Moderate), "moderate") => self.moderate(ctx, request),
            (Some(Ns::Commands), "command") => self.hat_request(ctx, request),
            (Some(Ns::Ping), "ping") => Ok(Vec::new()),
            _ => Err(StanzaCondition::ServiceUnavailable.into()),
        };
        result.map(RoomAnswer::Result)
    }

    /// Removes sessions that did not receive a stanza (section 11.1, section 18.1.2).
    pub(crate) fn sessions_lost(&mut self, ctx: &mut RoomCtx<'_>, sessions: &[Jid]) {
        self.remove_lost_sessions(ctx, sessions);
    }

    fn refuse(
        &self,
        ctx: &mut RoomCtx<'_>,
        stanza: &SharedStanza,
        from: &Jid,
        to: &Jid,
        result: Result<(), StanzaError>,
    ) {
        if let Err(error) = result {
            send_error(ctx, stanza, from, to, &error);
        }
    }

    /// The affiliation of an occupant; administrators of the service are owners of every room.
    fn affiliation_of(&self, occupant: &Occupant) -> Affiliation {
        if occupant.is_service_admin { Affiliation::Owner } else { self.affiliations.of(occupant.user()) }
    }

    /// The affiliation of the sender.
    fn affiliation(&self, ctx: &RoomCtx<'_>, user: JidRef<'_>) -> Affiliation {
        if ctx.is_service_admin { Affiliation::Owner } else { self.affiliations.of(user) }
    }

    fn is_owner(&self, ctx: &RoomCtx<'_>, user: JidRef<'_>) -> bool {
        self.affiliation(ctx, user) == Affiliation::Owner
    }

    /// The occupant of a session; `not-acceptable` for others (sections 7.4 and 7.5).
    fn occupant(&self, session: &Jid) -> Result<&Occupant, StanzaError> {
        self.occupants.of_session(session).ok_or_else(|| {
            StanzaError::new(StanzaCondition::NotAcceptable).text("only occupants can send messages")
        })
    }

    /// Whether the occupants with this role see the real JIDs of others.
    fn sees_real_jids(&self, role: RoomRole) -> bool {
        self.config.non_anonymous || role == RoomRole::Moderator
    }

    /// The id of a user in this room, from which the real JID cannot be computed (XEP-0421, section 3.1).
    fn occupant_id(&self, ctx: &RoomCtx<'_>, user: JidRef<'_>) -> OccupantId {
        let mut text = [self.jid.as_str(), "\0", user.bare().as_str()].concat();
        match ctx.removed_accounts.removal_count(user) {
            0 => {}
            former => text.push_str(&format!("\0{former}")),
        }
        OccupantId::new(ctx.occupant_key, text.as_bytes())
    }

    /// Sends what changed to the occupants, with these status codes (section 10.2.1).
    fn announce_status(&mut self, ctx: &mut RoomCtx<'_>, codes: &[u16]) {
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.jid.as_str()).attr("type", "groupchat").attr("id", &id);
            w.start_ns("x", Ns::MucUser);
            write_status_codes(w, codes);
            w.end().end();
        });
        let recipients = self.occupants.all_sessions();
        ctx.multicast(stanza, &self.jid.clone(), recipients);
    }
}

/// Writes `<status/>` elements into `<x/>`.
fn write_status_codes(w: &mut Writer<'_>, codes: &[u16]) {
    for code in codes {
        w.start("status").attr("code", &code.to_string()).end();
    }
}

/// Returns a stanza with an error.
pub(crate) fn send_error(
    ctx: &mut RoomCtx<'_>,
    stanza: &SharedStanza,
    from: &Jid,
    to: &Jid,
    error: &StanzaError,
) {
    let error = StanzaError { by: Some(to.bare().as_str().into()), ..error.clone() };
    let reply = error.reply(stanza.bytes(), stanza.head(), Some(to.as_str()), Some(from.as_str()));
    let Some(reply) = reply.and_then(|reply| SharedStanza::parse(&reply)) else { return };
    reply.mark_server_answer();
    ctx.send(Some(reply), to.clone(), from.clone());
}
