//! User search, in memory: finds and sorts all matches on each call.

use super::{MemoryState, MemoryStore, ready};
use crate::user_search::{
    MAX_COUNT, MAX_PAGE_SIZE, account_search_keys, decode_cursor, encode_cursor, local_part,
};
use crate::{
    AddressId, FoundUser, SearchPageRequest, Seek, StoreError, StoreFuture, UserQuery, UserSearch,
    UserSearchPage,
};

type ResultPosition = (String, AddressId);

impl MemoryState {
    fn matching_accounts(&self, domain: &str, query: &UserQuery) -> Vec<ResultPosition> {
        let plan = query.plan();
        let mut places: Vec<ResultPosition> = self
            .accounts
            .iter()
            .filter_map(|(id, entry)| {
                let jid = self.address(*id).filter(|jid| jid.domain() == domain)?;
                let keys = account_search_keys(local_part(jid.as_ref()), &entry.searchable);
                let place = plan.sort_key(&keys.each_ref().map(String::as_str))?;
                Some((place.to_owned(), *id))
            })
            .collect();
        places.sort_unstable();
        places
    }

    fn found(&self, (key, id): &ResultPosition) -> Option<FoundUser> {
        let shown = self.accounts.get(id)?.searchable.clone();
        Some(FoundUser { jid: self.address(*id)?.clone(), shown, cursor: encode_cursor(*id, key) })
    }

    fn search(
        &self,
        domain: &str,
        query: &UserQuery,
        page: SearchPageRequest,
    ) -> Result<UserSearchPage, StoreError> {
        let places = self.matching_accounts(domain, query);
        let limit = page.limit.min(MAX_PAGE_SIZE) as usize;
        let at = |cursor: &str, behind: bool| -> Result<usize, StoreError> {
            let cursor = decode_cursor(cursor)?;
            Ok(places.partition_point(|place| *place < cursor || behind && *place == cursor))
        };
        let forward = |from: usize| {
            let from = from.min(places.len());
            (from..places.len().min(from + limit), from + limit < places.len())
        };
        let backward = |to: usize| (to.saturating_sub(limit)..to, to > limit);
        let (range, more) = match page.seek {
            Seek::First => forward(0),
            Seek::After(cursor) => forward(at(&cursor, true)?),
            Seek::Before(cursor) => backward(at(&cursor, false)?),
            Seek::Last => backward(places.len()),
            Seek::Index(index) if u64::from(index) >= MAX_COUNT => (0..0, false),
            Seek::Index(index) => forward(index as usize),
        };
        Ok(UserSearchPage {
            users: places[range].iter().filter_map(|place| self.found(place)).collect(),
            more,
        })
    }
}

impl UserSearch for MemoryStore {
    fn search(
        &self,
        domain: &str,
        query: &UserQuery,
        page: SearchPageRequest,
    ) -> StoreFuture<'_, UserSearchPage> {
        ready(self.state.lock().search(domain, query, page))
    }

    fn count(&self, domain: &str, query: &UserQuery) -> StoreFuture<'_, u64> {
        ready(Ok(MAX_COUNT.min(self.state.lock().matching_accounts(domain, query).len() as u64)))
    }

    fn index(&self, domain: &str, query: &UserQuery, cursor: &str) -> StoreFuture<'_, u64> {
        let places = self.state.lock().matching_accounts(domain, query);
        ready(
            decode_cursor(cursor)
                .map(|cursor| MAX_COUNT.min(places.partition_point(|place| *place < cursor) as u64)),
        )
    }
}
