//! Hats of occupants: XEP-0317 0.3.1, in presence and by the commands with which administrators manage them.
//!
//! A command has one step: its form is requested without a session that the room would have to remember.
//!
//! Not implemented: payloads within hats; languages of titles.

use std::collections::BTreeMap;

use jid::{Jid, JidRef};
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::IqAnswer;
use xml::{Ns, TreeNode, Writer};

use super::presence::OccupantChange;
use super::{Room, RoomCtx, RoomRequest};
use crate::privileges::Affiliation;

/// Hats of a room, and of one user: each occupant receives them with presence.
const MAX_HATS: usize = 50;
const MAX_HATS_OF_USER: usize = 5;
/// Users with hats.
const MAX_WEARERS: usize = 1_000;
/// Bytes of a title or URI.
const MAX_TEXT_BYTES: usize = 256;
/// Memory of a hat, and of a user with one, about.
const HAT_BYTES: usize = 600;
const WEARER_BYTES: usize = 400;
/// Bytes of an id that a client gives for a session of a command.
const MAX_SESSION_BYTES: usize = 64;

/// `FORM_TYPE` of all commands.
const HATS_FORM: &str = "urn:xmpp:hats:commands";
const JID: &str = "hats#jid";
const TITLE: &str = "hats#title";
const URI: &str = "hats#uri";
const HUE: &str = "hats#hue";

/// A command of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HatCommand {
    Create,
    Destroy,
    List,
    Assign,
    Unassign,
    ListAssigned,
}

impl HatCommand {
    const ALL: [HatCommand; 6] = [
        HatCommand::Create,
        HatCommand::Destroy,
        HatCommand::List,
        HatCommand::Assign,
        HatCommand::Unassign,
        HatCommand::ListAssigned,
    ];

    const fn node(self) -> &'static str {
        match self {
            HatCommand::Create => "urn:xmpp:hats:commands:create",
            HatCommand::Destroy => "urn:xmpp:hats:commands:destroy",
            HatCommand::List => "urn:xmpp:hats:commands:list",
            HatCommand::Assign => "urn:xmpp:hats:commands:assign",
            HatCommand::Unassign => "urn:xmpp:hats:commands:unassign",
            HatCommand::ListAssigned => "urn:xmpp:hats:commands:list-assigned",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            HatCommand::Create => "Creating a Hat",
            HatCommand::Destroy => "Destroying a Hat",
            HatCommand::List => "Hats List",
            HatCommand::Assign => "Assigning a Hat",
            HatCommand::Unassign => "Removing a Hat",
            HatCommand::ListAssigned => "Assigned Hats List",
        }
    }
}

/// A hat that the room has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hat {
    title: Box<str>,
    /// A hue angle; empty for none.
    hue: Box<str>,
}

/// The hats of a room, and their wearers.
#[derive(Debug, Default)]
pub(super) struct RoomHats {
    /// By URI.
    hats: BTreeMap<Box<str>, Hat>,
    /// URIs by user.
    worn: BTreeMap<Jid, Vec<Box<str>>>,
}

impl RoomHats {
    /// Whether a user has hats.
    pub(super) fn has_wearer(&self, user: &Jid) -> bool {
        self.worn.contains_key(user)
    }

    /// The account of a user was removed; whether the user had hats.
    pub(super) fn forget(&mut self, user: &Jid) -> bool {
        self.worn.remove(user).is_some()
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.hats.len() * HAT_BYTES + self.worn.len() * WEARER_BYTES
    }

    /// Hats as URI, title and hue.
    pub(super) fn iter(&self) -> impl Iterator<Item = [&str; 3]> {
        self.hats.iter().map(|(uri, hat)| [&**uri, &*hat.title, &*hat.hue])
    }

    /// Users with the URI of each hat.
    pub(super) fn worn(&self) -> impl Iterator<Item = (&Jid, &str)> {
        self.worn.iter().flat_map(|(user, uris)| uris.iter().map(move |uri| (user, &**uri)))
    }

    /// Creates or updates a hat.
    pub(super) fn put(&mut self, uri: &str, title: &str, hue: &str) {
        self.hats.insert(uri.into(), Hat { title: title.into(), hue: hue.into() });
    }

    /// A user gets a hat of the room. True if there is such a hat, which the user has not had.
    pub(super) fn assign(&mut self, user: &Jid, uri: &str) -> bool {
        if !self.hats.contains_key(uri) {
            return false;
        }
        let uris = self.worn.entry(user.clone()).or_default();
        let is_new = !uris.iter().any(|one| **one == *uri);
        if is_new {
            uris.push(uri.into());
        }
        is_new
    }

    fn unassign(&mut self, user: &Jid, uri: &str) -> bool {
        let Some(uris) = self.worn.get_mut(user) else { return false };
        let before = uris.len();
        uris.retain(|one| **one != *uri);
        let has_changed = uris.len() != before;
        if uris.is_empty() {
            self.worn.remove(user);
        }
        has_changed
    }

    fn destroy(&mut self, uri: &str) -> bool {
        let exists = self.hats.remove(uri).is_some();
        self.worn.retain(|_, uris| {
            uris.retain(|one| **one != *uri);
            !uris.is_empty()
        });
        exists
    }

    fn wearers(&self, uri: &str) -> Vec<Jid> {
        let wears = |uris: &[Box<str>]| uris.iter().any(|one| **one == *uri);
        self.worn.iter().filter(|(_, uris)| wears(uris)).map(|(user, _)| user.clone()).collect()
    }

    /// Hash of the list of hats, by which clients notice that theirs is outdated; none without hats.
    pub(super) fn hash(&self) -> Option<String> {
        use std::fmt::Write;
        if self.hats.is_empty() {
            return None;
        }
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        for text in self.iter().flatten() {
            hash.update(text.as_bytes());
            hash.update(&[0]);
        }
        Some(hash.finish().as_ref().iter().take(16).fold(String::new(), |mut hex, octet| {
            let _ = write!(hex, "{octet:02x}");
            hex
        }))
    }

    /// Writes `<hats/>` of a user; nothing without any.
    pub(super) fn write(&self, w: &mut Writer<'_>, user: JidRef<'_>) {
        let Some(uris) = self.worn.get(user.bare().as_str()) else { return };
        w.start_ns("hats", Ns::Hats);
        for (uri, hat) in uris.iter().filter_map(|uri| Some((uri, self.hats.get(uri)?))) {
            w.start("hat").attr("title", &hat.title).attr("uri", uri);
            w.attr_opt("hue", Some(&*hat.hue).filter(|hue| !hue.is_empty())).end();
        }
        w.end();
    }
}

impl Room {
    /// The items of the node of commands (XEP-0050, section 2.2).
    pub(super) fn hat_command_items(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoItems).attr("node", Ns::Commands.as_str());
        for command in HatCommand::ALL {
            w.start("item").attr("jid", self.jid.as_str()).attr("name", command.title());
            w.attr("node", command.node()).end();
        }
        w.end();
        out
    }

    /// Information about the node of the commands, or about one of them (XEP-0050, section 2.2).
    pub(super) fn hat_command_info(&self, node: &str) -> IqAnswer {
        let command = HatCommand::ALL.into_iter().find(|one| one.node() == node);
        let (kind, name) = match command {
            Some(command) => ("command-node", command.title()),
            None if node == Ns::Commands.as_str() => ("command-list", "Commands"),
            None => return Err(StanzaCondition::FeatureNotImplemented.into()),
        };
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoInfo).attr("node", node);
        w.start("identity").attr("category", "automation").attr("name", name).attr("type", kind).end();
        for var in [Ns::Commands, Ns::DataForms] {
            w.start("feature").attr("var", var.as_str()).end();
        }
        w.end();
        Ok(out)
    }

    /// A command of XEP-0317.
    pub(super) fn hat_request(&mut self, ctx: &mut RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        let command = request.payload;
        let node = command.attr("node").unwrap_or_default();
        let kind = HatCommand::ALL.into_iter().find(|one| one.node() == node);
        let kind = kind.ok_or(StanzaCondition::ItemNotFound)?;
        let affiliation = self.affiliation(ctx, request.from.bare());
        let is_permitted = match kind {
            HatCommand::List => {
                affiliation.is_privileged() || self.occupants.of_session(request.from).is_some()
            }
            _ => affiliation.is_privileged(),
        };
        if !is_permitted {
            return Err(StanzaCondition::Forbidden.into());
        }
        let session = command.attr("sessionid").filter(|id| !id.is_empty() && id.len() <= MAX_SESSION_BYTES);
        let session = session.map_or_else(|| (ctx.new_id)(), |id| id.into_owned());
        if command.attr("action").is_some_and(|action| action == "cancel") {
            return Ok(write_command(kind, &session, "canceled", None));
        }
        let list = match kind {
            HatCommand::List => Some(self.hat_list()),
            HatCommand::ListAssigned => Some(self.worn_list()),
            _ => None,
        };
        if list.is_some() {
            return Ok(write_command(kind, &session, "completed", list.as_ref()));
        }
        match command.child("x", Ns::DataForms) {
            None => Ok(write_command(kind, &session, "executing", Some(&self.hat_form(kind)))),
            Some(form) => {
                self.submit_hat(ctx, kind, form)?;
                Ok(write_command(kind, &session, "completed", None))
            }
        }
    }

    fn hat_form(&self, kind: HatCommand) -> DataForm {
        let text = |var: &str, label: &str| FormField::new(FormFieldType::TextSingle, var).label(label);
        let form = DataForm::typed(FormKind::Form, HATS_FORM).title(kind.title());
        if kind == HatCommand::Create {
            let form = form.instructions("Fill out this form to create a hat.");
            return form
                .field(text(TITLE, "Hat Title").required())
                .field(text(URI, "Hat URI").required())
                .field(text(HUE, "Hat Hue"));
        }
        let mut hats = FormField::new(FormFieldType::ListSingle, URI).label("The role").required();
        for [uri, title, _] in self.hats.iter() {
            hats = hats.option(title, uri);
        }
        if kind == HatCommand::Destroy {
            return form.instructions("Fill out this form to destroy a hat.").field(hats);
        }
        let user = FormField::new(FormFieldType::JidSingle, JID).label("User Address").required();
        form.instructions("Choose a user and a hat.").field(user).field(hats)
    }

    fn hat_list(&self) -> DataForm {
        let mut form = DataForm::new(FormKind::Result).title(HatCommand::List.title());
        form.reported = [TITLE, URI, HUE].map(|var| FormField::cell(var, "")).into();
        form.reported.iter_mut().for_each(|column| column.values.clear());
        for [uri, title, hue] in self.hats.iter() {
            let cells = [(TITLE, title), (URI, uri), (HUE, hue)];
            form = form.item(cells.map(|(var, value)| FormField::cell(var, value)).into());
        }
        form
    }

    fn worn_list(&self) -> DataForm {
        let mut form = DataForm::new(FormKind::Result).title(HatCommand::ListAssigned.title());
        form.reported = [JID, URI, TITLE, HUE].map(|var| FormField::cell(var, "")).into();
        form.reported.iter_mut().for_each(|column| column.values.clear());
        for (user, uri) in self.hats.worn() {
            let hat = self.hats.hats.get(uri).cloned().unwrap_or_default();
            let cells = [(JID, user.as_str()), (URI, uri), (TITLE, &*hat.title), (HUE, &*hat.hue)];
            form = form.item(cells.map(|(var, value)| FormField::cell(var, value)).into());
        }
        form
    }

    fn submit_hat(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        kind: HatCommand,
        form: TreeNode<'_>,
    ) -> Result<(), StanzaError> {
        let invalid = |text: &'static str| {
            let error = StanzaError::new(StanzaCondition::BadRequest);
            error.application_condition(Ns::Commands, "bad-payload").text(text)
        };
        let form = DataForm::read(form).map_err(|_| invalid("the form cannot be read"))?;
        if form.kind != FormKind::Submit || form.form_type() != Some(HATS_FORM) {
            return Err(invalid("submit the form of the command"));
        }
        // The form of section 3.3 names the field "hat", its example of a submission "hats#uri".
        let uri = form.value(URI).or_else(|| form.value("hat")).unwrap_or_default().trim();
        if uri.is_empty() || uri.len() > MAX_TEXT_BYTES {
            return Err(invalid("the field \"hats#uri\" is required, with at most 256 bytes"));
        }
        let no_hat = || StanzaError::new(StanzaCondition::ItemNotFound).text("there is no such hat");
        let concerned = match kind {
            HatCommand::Create => {
                let title = form.value(TITLE).unwrap_or_default().trim();
                if title.is_empty() || title.len() > MAX_TEXT_BYTES {
                    return Err(invalid("the field \"hats#title\" is required, with at most 256 bytes"));
                }
                let hue = form.value(HUE).unwrap_or_default().trim();
                let is_angle = |hue: &str| hue.parse().is_ok_and(|hue: f64| (0.0..=360.0).contains(&hue));
                if !(hue.is_empty() || hue.len() <= MAX_SESSION_BYTES && is_angle(hue)) {
                    return Err(invalid("the field \"hats#hue\" is an angle from 0 to 360"));
                }
                if !self.hats.hats.contains_key(uri) && self.hats.hats.len() >= MAX_HATS {
                    return Err(too_many("the room has reached its maximum number of hats"));
                }
                self.hats.put(uri, title, hue);
                self.hats.wearers(uri)
            }
            HatCommand::Destroy => {
                let wearers = self.hats.wearers(uri);
                if !self.hats.destroy(uri) {
                    return Err(no_hat());
                }
                wearers
            }
            _ => {
                let user = form.value(JID).and_then(|user| Jid::parse(user).ok());
                let user = user.ok_or_else(|| invalid("the field \"hats#jid\" is an address"))?;
                let user = user.bare().to_jid();
                if !self.hats.hats.contains_key(uri) {
                    return Err(no_hat());
                }
                let has_changed = match kind {
                    HatCommand::Unassign => self.hats.unassign(&user, uri),
                    _ => {
                        self.check_wearer(&user, uri)?;
                        self.hats.assign(&user, uri)
                    }
                };
                if !has_changed {
                    return Ok(());
                }
                vec![user]
            }
        };
        self.note_change();
        if matches!(kind, HatCommand::Create | HatCommand::Destroy) {
            self.announce_status(ctx, &[104]);
        }
        for nick in concerned.iter().flat_map(|user| self.occupants.nicks_of_user(user)) {
            if let Some(occupant) = self.occupants.get(&nick) {
                self.announce(ctx, occupant, &OccupantChange::default());
            }
        }
        Ok(())
    }

    fn check_wearer(&self, user: &Jid, uri: &str) -> Result<(), StanzaError> {
        if self.affiliations.of(user.as_ref()) == Affiliation::Outcast {
            return Err(StanzaError::new(StanzaCondition::NotAllowed).text("the user is banned"));
        }
        match self.hats.worn.get(user) {
            Some(uris) if uris.len() >= MAX_HATS_OF_USER && !uris.iter().any(|one| **one == *uri) => {
                Err(too_many("the user has reached the maximum number of hats"))
            }
            None if self.hats.worn.len() >= MAX_WEARERS => {
                Err(too_many("the room has reached its maximum number of users with hats"))
            }
            _ => Ok(()),
        }
    }
}

fn too_many(text: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::ResourceConstraint).text(text)
}

fn write_command(kind: HatCommand, session: &str, status: &str, form: Option<&DataForm>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut w = Writer::new(&mut out);
    w.start_ns("command", Ns::Commands).attr("node", kind.node()).attr("sessionid", session);
    w.attr("status", status);
    if status == "executing" {
        w.start("actions").attr("execute", "complete").start("complete").end().end();
    }
    if let Some(form) = form {
        form.write(&mut w);
    }
    w.end();
    out
}
