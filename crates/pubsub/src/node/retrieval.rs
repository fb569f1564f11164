//! Retrieval of items: XEP-0060 1.30.0, section 6.5, in pages of XEP-0059 1.0 and orders of XEP-0413 0.2.1.

use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubItem, PubSubItemHead};
use xml::{Ns, Writer};

use super::{NodeCtx, PAGE_BYTES, PubSubAnswer, PubSubNode, Requester};
use crate::pubsub_error::{not_found, pubsub_error, unsupported};
use crate::request::{ItemOrder, ItemsQuery, OrderDirection, OrderField};

/// Items of a page.
const MAX_PAGE: usize = 100;

/// An answer without its items.
#[derive(Debug)]
pub(crate) struct ItemsAnswer {
    /// Their numbers, oldest first unless they are in another order. What is larger than a page is shorter.
    pub(crate) seqs: Vec<u64>,
    /// Of a list that is too long, those at its end are shown.
    pub(crate) is_from_end: bool,
    /// What a client that asked for no page receives of a list that is too long: the page's metadata.
    is_page: bool,
    first_index: u64,
    count: u64,
    /// The numbers are in an order of their own, which is that of the answer.
    pub(crate) is_ordered: bool,
    /// An item that is not in the store.
    pub(crate) cached: Option<PubSubItem>,
}

/// A part of a list.
pub(super) struct ItemPage<T> {
    pub(super) items: Vec<T>,
    pub(super) first_index: usize,
    pub(super) is_page: bool,
}

/// A page of a list whose order is that of publication. `position` finds an id.
///
/// # Errors
/// `item-not-found`: the page is next to an id that does not exist (XEP-0059, section 2.2).
pub(super) fn page<T>(
    list: Vec<T>,
    rsm: Option<&RsmRequest>,
    position: impl Fn(&str) -> Option<usize>,
) -> Result<ItemPage<T>, StanzaError> {
    let most = u32::try_from(MAX_PAGE).unwrap_or(u32::MAX);
    let size = usize::try_from(rsm.map_or(most, |rsm| rsm.page_size(most))).unwrap_or(MAX_PAGE);
    let count = list.len();
    let of = |id: &str| position(id).ok_or_else(not_found);
    let (start, end) = match rsm.map(|rsm| &rsm.position) {
        None | Some(PagePosition::First) => (0, size),
        Some(PagePosition::After(id)) => {
            let start = of(id)? + 1;
            (start, start.saturating_add(size))
        }
        Some(PagePosition::Before(id)) => {
            let end = of(id)?;
            (end.saturating_sub(size), end)
        }
        Some(PagePosition::Last) => (count.saturating_sub(size), count),
        Some(PagePosition::Index(index)) => {
            let start = usize::try_from(*index).unwrap_or(usize::MAX);
            (start, start.saturating_add(size))
        }
    };
    let end = end.min(count);
    let is_page = rsm.is_some() || end.saturating_sub(start) < count;
    let items = list.into_iter().skip(start).take(end.saturating_sub(start)).collect();
    Ok(ItemPage { items, first_index: start, is_page })
}

impl PubSubNode {
    /// Section 6.5.
    pub(super) fn retrieve(
        &self,
        ctx: &NodeCtx<'_>,
        requester: &Requester<'_>,
        query: &ItemsQuery,
    ) -> Result<PubSubAnswer, StanzaError> {
        self.check_read(requester)?;
        self.check_subid(requester, query.subid.as_deref())?;
        if self.is_collection() {
            return self.retrieve_of_children(query);
        }
        if query.ids.len() > ctx.limits.batch_items {
            return Err(
                StanzaError::new(StanzaCondition::NotAcceptable).text("too many items in one request")
            );
        }
        let whole = |seqs: Vec<u64>, cached: Option<PubSubItem>| ItemsAnswer {
            count: seqs.len() as u64,
            seqs,
            is_from_end: false,
            is_page: false,
            first_index: 0,
            is_ordered: false,
            cached,
        };
        if !self.config.persist_items {
            if self.config.is_transient_notification() {
                return Err(unsupported("persistent-items"));
            }
            // Section 6.5.5: the last item of a transient node.
            let is_meant =
                |last: &&PubSubItem| query.ids.is_empty() || query.ids.iter().any(|id| **id == *last.head.id);
            return Ok(PubSubAnswer::Items(whole(Vec::new(), self.last.as_ref().filter(is_meant).cloned())));
        }
        if !query.ids.is_empty() {
            let mut seqs: Vec<u64> =
                query.ids.iter().filter_map(|id| self.items.get(id)).map(|head| head.seq).collect();
            seqs.sort_unstable();
            seqs.dedup();
            return Ok(PubSubAnswer::Items(whole(seqs, None)));
        }
        if let Some(order) = query.order {
            return self.retrieve_ordered(query, order);
        }
        if let Some(most) = query.max_items {
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_PAGE);
            let mut seqs: Vec<u64> = self.items.iter().rev().take(most).map(|head| head.seq).collect();
            seqs.reverse();
            // The newest ones are meant.
            return Ok(PubSubAnswer::Items(ItemsAnswer { is_from_end: true, ..whole(seqs, None) }));
        }
        let all: Vec<u64> = self.items.iter().map(|head| head.seq).collect();
        let count = all.len() as u64;
        let page = page(all, query.rsm.as_ref(), |id| self.items.position(id))?;
        let position = query.rsm.as_ref().map(|rsm| &rsm.position);
        Ok(PubSubAnswer::Items(ItemsAnswer {
            is_from_end: matches!(position, Some(PagePosition::Before(_) | PagePosition::Last)),
            seqs: page.items,
            is_page: page.is_page,
            first_index: page.first_index as u64,
            count,
            is_ordered: false,
            cached: None,
        }))
    }

    /// XEP-0413 0.2.1: all items in this order, and a page of them.
    fn retrieve_ordered(&self, query: &ItemsQuery, order: ItemOrder) -> Result<PubSubAnswer, StanzaError> {
        let mut all: Vec<&PubSubItemHead> = self.items.iter().collect();
        if order.field == OrderField::Creation {
            all.sort_unstable_by_key(|head| (head.first_seq, head.seq));
        }
        if order.direction == OrderDirection::Descending {
            all.reverse();
        }
        if let (Some(most), None) = (query.max_items, &query.rsm) {
            all.truncate(usize::try_from(most).unwrap_or(usize::MAX).min(MAX_PAGE));
        }
        let count = all.len() as u64;
        let position = |id: &str| all.iter().position(|head| *head.id == *id);
        let page = page(all.clone(), query.rsm.as_ref(), position)?;
        Ok(PubSubAnswer::Items(ItemsAnswer {
            seqs: page.items.iter().map(|head| head.seq).collect(),
            is_from_end: false,
            is_page: page.is_page,
            first_index: page.first_index as u64,
            count,
            is_ordered: true,
            cached: None,
        }))
    }

    /// Sections 6.5.9.1 and 6.5.9.2.
    fn check_subid(&self, requester: &Requester<'_>, subid: Option<&str>) -> Result<(), StanzaError> {
        let mut own = self.special.of_user(requester.user()).iter().peekable();
        if own.peek().is_none() {
            return Ok(());
        }
        match subid {
            Some(subid) if own.any(|one| *one.subid == *subid) => Ok(()),
            Some(_) => Err(pubsub_error("invalid-subid")),
            // Items do not depend on the subscription, so which one is meant does not matter.
            None => Ok(()),
        }
    }

    /// Bytes of payload that an answer has at most, apart from its first item.
    pub(crate) const ITEMS_BYTES: u64 = PAGE_BYTES as u64;

    /// Writes the answer with those of the items that were found.
    pub(crate) fn write_items(&self, answer: &ItemsAnswer, shown: &[PubSubItem]) -> Vec<u8> {
        let is_page = answer.is_page || shown.len() < answer.seqs.len();
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("pubsub", Ns::Pubsub).start("items").attr("node", &self.name);
        for PubSubItem { head, payload } in shown.iter().chain(&answer.cached) {
            self.write_item(&mut w, head, payload);
        }
        w.end();
        if is_page {
            let id = |item: &PubSubItem| item.head.id.to_string();
            let ends = shown.first().map(id).zip(shown.last().map(id));
            let ends = ends.as_ref().map(|(first, last)| (first.as_str(), last.as_str()));
            let skipped = if answer.is_from_end { answer.seqs.len() - shown.len() } else { 0 };
            let index = ends.map(|_| answer.first_index + skipped as u64);
            RsmResponse { first_and_last: ends, index, count: Some(answer.count) }.write(&mut w);
        }
        w.end();
        out
    }

    /// The items, for service discovery (section 5.5).
    pub(super) fn disco_items(
        &self,
        _: &NodeCtx<'_>,
        requester: &Requester<'_>,
        rsm: Option<RsmRequest>,
    ) -> Result<PubSubAnswer, StanzaError> {
        self.check_read(requester)?;
        if self.is_collection() {
            return self.disco_children(rsm.as_ref());
        }
        let all: Vec<&PubSubItemHead> = self.items.iter().collect();
        let count = all.len() as u64;
        let page = page(all, rsm.as_ref(), |id| self.items.position(id))?;
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoItems).attr("node", &self.name);
        for head in &page.items {
            w.start("item").attr("jid", self.service.as_str()).attr("name", &head.id).end();
        }
        if page.is_page {
            let ends = page.items.first().zip(page.items.last()).map(|(first, last)| (&*first.id, &*last.id));
            let index = ends.map(|_| page.first_index as u64);
            RsmResponse { first_and_last: ends, index, count: Some(count) }.write(&mut w);
        }
        w.end();
        Ok(PubSubAnswer::Payload(out))
    }
}
