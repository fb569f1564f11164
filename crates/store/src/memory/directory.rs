//! The directory in memory: all who match, sorted, for each call.
use super::{Memory, State, ready};
use crate::directory::{COUNT_MOST, PAGE_MOST, cursor, keys, read_cursor, user_of};
use crate::{AddressId, Directory, Found, FoundUser, Fut, Query, SearchPage, Seek, StoreError};

type Place = (String, AddressId);

impl State {
    fn matching(&self, domain: &str, query: &Query) -> Vec<Place> {
        let plan = query.plan();
        let mut places: Vec<Place> = self
            .accounts
            .iter()
            .filter_map(|(id, entry)| {
                let jid = self.address(*id).filter(|jid| jid.domain() == domain)?;
                let keys = keys(user_of(jid.as_ref()), &entry.searchable);
                let place = plan.place(&keys.each_ref().map(String::as_str))?;
                Some((place.to_owned(), *id))
            })
            .collect();
        places.sort_unstable();
        places
    }

    fn found(&self, (key, id): &Place) -> Option<FoundUser> {
        let shown = self.accounts.get(id)?.searchable.clone();
        Some(FoundUser { jid: self.address(*id)?.clone(), shown, cursor: cursor(*id, key) })
    }

    fn search(&self, domain: &str, query: &Query, page: SearchPage) -> Result<Found, StoreError> {
        let places = self.matching(domain, query);
        let limit = page.limit.min(PAGE_MOST) as usize;
        let at = |cursor: &str, behind: bool| -> Result<usize, StoreError> {
            let cursor = read_cursor(cursor)?;
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
            Seek::Index(index) if u64::from(index) >= COUNT_MOST => (0..0, false),
            Seek::Index(index) => forward(index as usize),
        };
        Ok(Found { users: places[range].iter().filter_map(|place| self.found(place)).collect(), more })
    }
}

impl Directory for Memory {
    fn search(&self, domain: &str, query: &Query, page: SearchPage) -> Fut<'_, Found> {
        ready(self.state.lock().search(domain, query, page))
    }

    fn count(&self, domain: &str, query: &Query) -> Fut<'_, u64> {
        ready(Ok(COUNT_MOST.min(self.state.lock().matching(domain, query).len() as u64)))
    }

    fn index(&self, domain: &str, query: &Query, cursor: &str) -> Fut<'_, u64> {
        let places = self.state.lock().matching(domain, query);
        ready(
            read_cursor(cursor)
                .map(|cursor| COUNT_MOST.min(places.partition_point(|place| *place < cursor) as u64)),
        )
    }
}
