//! Lists of roles and affiliations: XEP-0045 1.35.5, sections 8.5, 9.2, 9.5, 9.8, 10.5 and 10.8, in pages of XEP-0059 1.0.
//!
//! Members and banned users of a large room are in the store: their list is read from there, in the order of the numbers of addresses.
//!
//! # Pitfalls
//!
//! Those numbers are those of the whole server: a position by an address that is not in the list would show whether, and when, the address
//! was stored anywhere.

use jid::Jid;
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{StanzaCondition, StanzaError};
use store::RoomAffiliation;
use store::rooms::{AffiliationPosition, AffiliationQuery};
use throng_core::iq::IqAnswer;
use xml::{Ns, TreeNode, Writer};

use super::admin::Actor;
use super::{Room, RoomCtx, RoomRequest};
use crate::privileges::{Affiliation, RoomRole};

/// Users on a page of a list.
const MAX_PAGE: u32 = 1_000;

/// What is listed.
enum ListedPrivilege {
    Affiliation(Affiliation),
    RoomRole(RoomRole),
}

/// A list that the store has.
pub(crate) struct StoredAffiliationList {
    affiliation: Affiliation,
    position: AffiliationPosition,
    size: u32,
    /// Length of the list.
    count: u64,
}

impl StoredAffiliationList {
    /// What the store is asked.
    pub(crate) fn query(&self) -> AffiliationQuery {
        let affiliation = Some(self.affiliation.number());
        AffiliationQuery { affiliation, position: self.position.clone(), limit: self.size }
    }

    /// The answer. A list that is cut is a page, even if the client did not ask for one.
    pub(crate) fn answer(&self, page: &[RoomAffiliation]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + page.len() * 64);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::MucAdmin);
        for one in page {
            let text = |text| Some(text).filter(|text: &&str| !text.is_empty());
            write_item(&mut w, self.affiliation, one.user.as_str(), text(&one.nick), text(&one.reason));
        }
        let index = match self.position {
            AffiliationPosition::First => Some(0),
            AffiliationPosition::Index(index) => Some(index.into()),
            AffiliationPosition::Last => Some(self.count.saturating_sub(page.len() as u64)),
            AffiliationPosition::After(_) | AffiliationPosition::Before(_) => None,
        };
        let ends = page.first().zip(page.last());
        let first_and_last = ends.map(|(first, last)| (first.user.as_str(), last.user.as_str()));
        let index = index.filter(|_| first_and_last.is_some());
        RsmResponse { first_and_last, index, count: Some(self.count) }.write(&mut w);
        w.end();
        out
    }
}

fn write_item(
    w: &mut Writer<'_>,
    affiliation: Affiliation,
    user: &str,
    nick: Option<&str>,
    reason: Option<&str>,
) {
    w.start("item").attr("affiliation", affiliation.as_str()).attr("jid", user).attr_opt("nick", nick);
    if let Some(reason) = reason {
        w.text_element("reason", reason);
    }
    w.end();
}

impl Room {
    /// The list of a request, if the store has it.
    ///
    /// # Errors
    /// The requester may not retrieve it.
    pub(super) fn stored_list(
        &self,
        ctx: &RoomCtx<'_>,
        request: &RoomRequest<'_>,
    ) -> Result<Option<StoredAffiliationList>, StanzaError> {
        if request.is_set || !self.affiliations.is_large() || !request.payload.is("query", Ns::MucAdmin) {
            return Ok(None);
        }
        let mut items = request.payload.child_elements().filter(|child| child.is("item", Ns::MucAdmin));
        // Errors of the request are those of other lists.
        let (Some(item), None) = (items.next(), items.next()) else { return Ok(None) };
        let named = item.attr("affiliation").and_then(|name| Affiliation::from_name(&name));
        if !matches!(named, Some(Affiliation::Member | Affiliation::Outcast)) {
            return Ok(None);
        }
        let actor = self.actor(ctx, request.from);
        let ListedPrivilege::Affiliation(affiliation) = self.check_list(&actor, item)? else {
            return Ok(None);
        };
        let page = RsmRequest::from_parent(request.payload)?;
        let size = page.as_ref().map_or(MAX_PAGE, |page| page.page_size(MAX_PAGE));
        // XEP-0059, section 2.4.
        let user = |id: &str| match Jid::parse(id) {
            Ok(user) if self.affiliations.is(&user, affiliation) => Ok(user),
            _ => Err(StanzaError::new(StanzaCondition::ItemNotFound)),
        };
        let position = match page.map(|page| page.position) {
            None | Some(PagePosition::First) => AffiliationPosition::First,
            Some(PagePosition::After(id)) => AffiliationPosition::After(user(&id)?),
            Some(PagePosition::Before(id)) => AffiliationPosition::Before(user(&id)?),
            Some(PagePosition::Last) => AffiliationPosition::Last,
            Some(PagePosition::Index(index)) => AffiliationPosition::Index(index),
        };
        let count = self.affiliations.count(affiliation) as u64;
        Ok(Some(StoredAffiliationList { affiliation, position, size, count }))
    }

    /// What an item names, if the requester may retrieve it.
    fn check_list(&self, actor: &Actor, item: TreeNode<'_>) -> Result<ListedPrivilege, StanzaError> {
        let (listed, may) = match (item.attr("affiliation").as_deref(), item.attr("role").as_deref()) {
            (Some(name), None) => {
                let listed = Affiliation::from_name(name).filter(|one| *one != Affiliation::None);
                let listed = listed.ok_or(StanzaCondition::BadRequest)?;
                let may = match listed {
                    Affiliation::Outcast => actor.affiliation.is_privileged(),
                    Affiliation::Member => self.config.permits_member_list(actor.affiliation, actor.role),
                    // In semi-anonymous rooms, only owners retrieve these lists.
                    _ => {
                        actor.affiliation == Affiliation::Owner
                            || self.config.non_anonymous
                                && self.config.permits_member_list(actor.affiliation, actor.role)
                    }
                };
                (ListedPrivilege::Affiliation(listed), may)
            }
            (None, Some(name)) => {
                let listed = RoomRole::from_name(name).filter(|one| *one != RoomRole::None);
                let listed = listed.ok_or(StanzaCondition::BadRequest)?;
                let may = match listed {
                    RoomRole::Moderator => actor.affiliation.is_privileged(),
                    _ => actor.role == RoomRole::Moderator || actor.affiliation.is_privileged(),
                };
                (ListedPrivilege::RoomRole(listed), may)
            }
            _ => return Err(StanzaCondition::BadRequest.into()),
        };
        match may {
            true => Ok(listed),
            false => Err(StanzaCondition::Forbidden.into()),
        }
    }

    /// A list that is in memory.
    pub(super) fn list(&self, actor: &Actor, item: TreeNode<'_>, page: Option<&RsmRequest>) -> IqAnswer {
        let listed = self.check_list(actor, item)?;
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::MucAdmin);
        match listed {
            ListedPrivilege::Affiliation(listed) => self.write_list(&mut w, listed, page)?,
            ListedPrivilege::RoomRole(listed) => {
                for one in self.occupants.iter().filter(|one| one.role == listed) {
                    w.start("item").attr("affiliation", self.affiliation_of(one).as_str());
                    w.attr_opt("jid", one.sessions.last().map(|session| session.jid.as_str()));
                    w.attr("nick", one.nick()).attr("role", listed.as_str()).end();
                }
            }
        }
        w.end();
        Ok(out)
    }

    /// A list of affiliations, or a page of it, in the order of addresses.
    fn write_list(
        &self,
        w: &mut Writer<'_>,
        listed: Affiliation,
        page: Option<&RsmRequest>,
    ) -> Result<(), StanzaError> {
        let all: Vec<_> = self.affiliations.with(listed).collect();
        let size = page.map_or(all.len(), |page| page.page_size(MAX_PAGE) as usize);
        let position_of = |id: &str| all.partition_point(|(user, _)| user.as_str() < id);
        let first = match page.map(|page| &page.position) {
            None | Some(PagePosition::First) => 0,
            Some(PagePosition::After(id)) => all.partition_point(|(user, _)| user.as_str() <= id.as_str()),
            Some(PagePosition::Before(id)) => position_of(id).saturating_sub(size),
            Some(PagePosition::Last) => all.len().saturating_sub(size),
            Some(PagePosition::Index(index)) => (*index as usize).min(all.len()),
        };
        let end = match page.map(|page| &page.position) {
            Some(PagePosition::Before(id)) => position_of(id),
            _ => first.saturating_add(size).min(all.len()),
        };
        let shown = all.get(first..end).unwrap_or_default();
        for (user, entry) in shown {
            write_item(w, listed, user.as_str(), entry.nick.as_deref(), entry.reason.as_deref());
        }
        if page.is_some() {
            let ends = shown.first().zip(shown.last());
            let ends = ends.map(|(first, last)| (first.0.as_str(), last.0.as_str()));
            let index = ends.map(|_| first as u64);
            RsmResponse { first_and_last: ends, index, count: Some(all.len() as u64) }.write(w);
        }
        Ok(())
    }
}
