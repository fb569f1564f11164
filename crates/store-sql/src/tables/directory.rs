//! The directory: every query is one walk through one index, in its order, that stops after a page.
//!
//! User names come from `username`, which has all accounts; everything else from `profile`. A term for any field is six
//! walks whose answers are merged; an account shows up only in the walk of its smallest matching key.
//!
//! ```text
//! values = domain, key, id, key, id    exclusive lower and upper end of the walk
//!          6 * (from, to)              what the six keys have to be
//!          [5 * (from, to)]            any: what the other fields' keys must not be if they are smaller
//!          limit [, offset]
//! ```
//!
//! A walk passes over accounts that match its own term and not the others. How far is bounded by a number of steps
//! ([`STEPS`]); beyond it the search fails with `TooBroad`. Few searches run at a time, whoever asks for them
//! ([`SqlStores::search_for`]), so that reads for sessions always find a connection.
//!
//! The trap for the next person: without the statistics of ANALYZE the planner takes the index that the order asks for.
//! The test of the plans runs without them, and so must the server.
use store::directory::{COUNT_MOST, Field, PAGE_MOST, Plan, Range, cursor, read_cursor};
use store::{AddressId, Directory, Found, FoundUser, Fut, Query, SearchPage, Searchable, Seek, StoreError};

use super::{address, id};
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Row, Steps};

/// Steps of one search or count: some eighty thousand rows, 0.1 s. Counting to its end for a term of any field takes two
/// thirds of it at worst.
const STEPS: i64 = 4_000_000;

/// How a walk is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    Up,
    Down,
    Count,
}

/// The statements of one kind, for each leading field.
type Texts6 = [String; 6];

pub(crate) struct Texts {
    /// Up, down, count.
    plain: [Texts6; 3],
    any: [Texts6; 3],
}

const WALKS: [Walk; 3] = [Walk::Up, Walk::Down, Walk::Count];

fn text(d: &dyn Dialect, leader: Field, any: bool, walk: Walk) -> String {
    let (from, domain, owner) = match leader {
        Field::User => ("username u LEFT JOIN profile p ON p.owner = u.id", "u.domain", "u.id"),
        _ => ("profile p", "p.domain", "p.owner"),
    };
    let column = |field: Field| match field {
        Field::User if leader == Field::User => "u.name",
        Field::User => "p.username",
        Field::Name => "p.name_key",
        Field::First => "p.first_key",
        Field::Last => "p.last_key",
        Field::Nick => "p.nick_key",
        Field::Email => "p.email_key",
    };
    let place = column(leader);
    // Who has no vCard has no texts; and a column in a function tempts nobody to walk through its index instead.
    let key = |field: Field| format!("coalesce({}, '')", column(field));
    let mut sql = format!(
        "WHERE {domain} = (SELECT id FROM address WHERE jid = ?) \
         AND ({place}, {owner}) > (?, ?) AND ({place}, {owner}) < (?, ?)"
    );
    for field in Field::ALL {
        sql += &format!(" AND {0} >= ? AND {0} < ?", key(field));
    }
    if any {
        for other in Field::ALL.into_iter().filter(|other| *other != leader) {
            let key = key(other);
            let smaller = if (other as usize) < leader as usize { "<=" } else { "<" };
            sql += &format!(" AND NOT ({key} >= ? AND {key} < ? AND {key} {smaller} {place})");
        }
    }
    let columns = format!("{place}, {owner}, a.jid, p.full_name, p.first_name, p.last_name, p.nick, p.email");
    let page = |down: &str| {
        format!(
            "SELECT {columns} FROM {from} JOIN address a ON a.id = {owner} {sql} \
             ORDER BY {place}{down}, {owner}{down} LIMIT ? OFFSET ?"
        )
    };
    d.sql(&match walk {
        Walk::Up => page(""),
        Walk::Down => page(" DESC"),
        Walk::Count => format!("SELECT count(*) FROM (SELECT 1 FROM {from} {sql} LIMIT ?) AS found"),
    })
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        let texts = |any| WALKS.map(|walk| Field::ALL.map(|leader| text(d, leader, any, walk)));
        Texts { plain: texts(false), any: texts(true) }
    }

    fn get(&self, any: bool, walk: Walk, leader: Field) -> &str {
        &(if any { &self.any } else { &self.plain })[walk as usize][leader as usize]
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        self.plain.iter().chain(&self.any).flatten().map(String::as_str).collect()
    }
}

type Place = (String, u64);

/// A row on its way to becoming a user.
struct Hit {
    place: Place,
    row: Row,
}

impl Hit {
    fn user(&self) -> Result<FoundUser, StoreError> {
        let text = |column| Ok(self.row.maybe_text(column)?.unwrap_or_default().to_owned());
        let shown =
            Searchable { name: text(3)?, first: text(4)?, last: text(5)?, nick: text(6)?, email: text(7)? };
        let (key, number) = &self.place;
        Ok(FoundUser { jid: address(self.row.text(2)?)?, shown, cursor: cursor(id(*number)?, key) })
    }
}

/// The order of the walks for a term that any field may match. A walk passes over accounts whose place is in another one,
/// and it need not go further than what was found so far; so those whose keys tend to be the smaller ones come first.
const ANY_ORDER: [Field; 6] =
    [Field::User, Field::First, Field::Last, Field::Nick, Field::Email, Field::Name];

/// The walks of a plan: the leading field, and the keys that it walks through.
fn walks(plan: &Plan) -> Vec<(Field, &Range)> {
    match &plan.any {
        None => vec![(plan.leader, &plan.fields[plan.leader as usize])],
        Some(any) => ANY_ORDER.map(|field| (field, &any[field as usize])).into(),
    }
}

/// One search on one connection.
struct Search<'a> {
    conn: &'a mut Conn,
    domain: &'a str,
    plan: &'a Plan,
    /// What all statements of this search may take.
    steps: Steps,
}

impl Search<'_> {
    /// The values of a walk between two places; nothing when there is no room between them.
    fn values<'b>(
        plan: &'b Plan,
        domain: &'b str,
        (leader, range): (Field, &'b Range),
        after: Option<&'b Place>,
        before: Option<&'b Place>,
    ) -> Option<Vec<Arg<'b>>> {
        let (mut low, mut high) = ((range.from.as_str(), 0), (range.to.as_str(), 0));
        if let Some((key, id)) = after {
            low = low.max((key, *id));
        }
        if let Some((key, id)) = before {
            high = high.min((key, *id));
        }
        if low >= high {
            return None;
        }
        let mut args = vec![
            Arg::Text(domain),
            Arg::Text(low.0),
            Arg::number(low.1),
            Arg::Text(high.0),
            Arg::number(high.1),
        ];
        let pair = |range: &'b Range| [Arg::Text(&range.from), Arg::Text(&range.to)];
        args.extend(plan.fields.iter().flat_map(pair));
        if let Some(any) = &plan.any {
            let others = Field::ALL.into_iter().filter(|other| *other != leader);
            args.extend(others.flat_map(|other| pair(&any[other as usize])));
        }
        Some(args)
    }

    /// At most `limit` hits between two places, in the direction of the walk, after leaving `skip` out.
    async fn hits(
        &mut self,
        walk: Walk,
        after: Option<&Place>,
        before: Option<&Place>,
        limit: u32,
        skip: u32,
    ) -> Result<Vec<Hit>, StoreError> {
        let kit = self.conn.kit.clone();
        let (plan, domain) = (self.plan, self.domain);
        let mut hits: Vec<Hit> = Vec::new();
        for (leader, range) in walks(plan) {
            // Where a full page would end.
            let end = hits.get((limit as usize).saturating_sub(1)).map(|hit| hit.place.clone());
            let (after, before) = match walk {
                Walk::Down => (end.as_ref().or(after), before),
                _ => (after, end.as_ref().or(before)),
            };
            let Some(mut args) = Self::values(plan, domain, (leader, range), after, before) else { continue };
            args.extend([limit, skip].map(|number| Arg::number(number.into())));
            let text = kit.directory.get(plan.any.is_some(), walk, leader);
            for row in self.conn.rows_within(&self.steps, text, &args).await? {
                hits.push(Hit { place: (row.text(0)?.to_owned(), row.number(1)?), row });
            }
            if plan.any.is_some() {
                hits.sort_by(|a, b| a.place.cmp(&b.place));
                if walk == Walk::Down {
                    hits.reverse();
                }
                hits.truncate(limit as usize);
            }
        }
        Ok(hits)
    }

    async fn page(&mut self, page: SearchPage) -> Result<Found, StoreError> {
        let limit = page.limit.min(PAGE_MOST);
        let (mut hits, down) = match page.seek {
            Seek::First => (self.hits(Walk::Up, None, None, limit + 1, 0).await?, false),
            Seek::After(cursor) => {
                let place = place(&cursor)?;
                (self.hits(Walk::Up, Some(&place), None, limit + 1, 0).await?, false)
            }
            Seek::Before(cursor) => {
                let place = place(&cursor)?;
                (self.hits(Walk::Down, None, Some(&place), limit + 1, 0).await?, true)
            }
            Seek::Last => (self.hits(Walk::Down, None, None, limit + 1, 0).await?, true),
            Seek::Index(index) if u64::from(index) >= COUNT_MOST => (Vec::new(), false),
            Seek::Index(index) => (self.from(index, limit + 1).await?, false),
        };
        let more = hits.len() > limit as usize;
        hits.truncate(limit as usize);
        if down {
            hits.reverse();
        }
        let users: Result<Vec<FoundUser>, StoreError> = hits.iter().map(Hit::user).collect();
        Ok(Found { users: users?, more })
    }

    /// The hits from this one on. Merged walks cannot be skipped through, so those are read page by page.
    async fn from(&mut self, index: u32, limit: u32) -> Result<Vec<Hit>, StoreError> {
        if self.plan.any.is_none() {
            return self.hits(Walk::Up, None, None, limit, index).await;
        }
        let (mut after, mut left) = (None, index);
        while left > 0 {
            let step = left.min(PAGE_MOST);
            let hits = self.hits(Walk::Up, after.as_ref(), None, step, 0).await?;
            if hits.len() < step as usize {
                return Ok(Vec::new());
            }
            after = hits.into_iter().next_back().map(|hit| hit.place);
            left -= step;
        }
        self.hits(Walk::Up, after.as_ref(), None, limit, 0).await
    }

    /// How many stand before this place.
    async fn count(&mut self, before: Option<&Place>) -> Result<u64, StoreError> {
        let kit = self.conn.kit.clone();
        let (plan, domain) = (self.plan, self.domain);
        let mut counted = 0;
        for (leader, range) in walks(plan) {
            let Some(mut args) = Self::values(plan, domain, (leader, range), None, before) else { continue };
            args.push(Arg::number(COUNT_MOST));
            let text = kit.directory.get(plan.any.is_some(), Walk::Count, leader);
            let rows = self.conn.rows_within(&self.steps, text, &args).await?;
            counted += rows.first().map_or(Ok(0), |row| row.number(0))?;
            if counted >= COUNT_MOST {
                return Ok(COUNT_MOST);
            }
        }
        Ok(counted)
    }
}

fn place(cursor: &str) -> Result<Place, StoreError> {
    let (key, id): (String, AddressId) = read_cursor(cursor)?;
    Ok((key, id.get().into()))
}

impl SqlStores {
    fn counted(&self, domain: &str, query: &Query, before: Option<Place>) -> Fut<'_, u64> {
        let (domain, plan) = (domain.to_owned(), query.plan());
        self.search_for(Box::new(move |conn| {
            Box::pin(async move {
                Search { conn, domain: &domain, plan: &plan, steps: Steps::new(STEPS) }
                    .count(before.as_ref())
                    .await
            })
        }))
    }
}

impl Directory for SqlStores {
    fn search(&self, domain: &str, query: &Query, page: SearchPage) -> Fut<'_, Found> {
        let (domain, plan) = (domain.to_owned(), query.plan());
        self.search_for(Box::new(move |conn| {
            Box::pin(async move {
                Search { conn, domain: &domain, plan: &plan, steps: Steps::new(STEPS) }.page(page).await
            })
        }))
    }

    fn count(&self, domain: &str, query: &Query) -> Fut<'_, u64> {
        self.counted(domain, query, None)
    }

    fn index(&self, domain: &str, query: &Query, cursor: &str) -> Fut<'_, u64> {
        match place(cursor) {
            Ok(place) => self.counted(domain, query, Some(place)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::sqlite::SqliteDialect;
    use sqlx::Row as _;
    use store::conformance::all;

    /// Every walk, counting ones too, goes through the index of its own field and begins and ends where it is told to.
    #[test]
    fn every_walk_takes_the_index_of_its_field() {
        let texts = Texts::new(&SqliteDialect);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut line = crate::migrate::in_memory().await;
            for any in [false, true] {
                for walk in WALKS {
                    for (leader, expected) in Field::ALL.into_iter().zip([
                        "SEARCH u USING PRIMARY KEY (domain=? AND (name,id)>(?,?) AND (name,id)<(?,?))",
                        "INDEX profile_name (domain=? AND (name_key,owner)>(?,?) AND (name_key,owner)<(?,?))",
                        "INDEX profile_first (domain=? AND (first_key,owner)>(?,?) AND (first_key,owner)<(?,?))",
                        "INDEX profile_last (domain=? AND (last_key,owner)>(?,?) AND (last_key,owner)<(?,?))",
                        "INDEX profile_nick (domain=? AND (nick_key,owner)>(?,?) AND (nick_key,owner)<(?,?))",
                        "INDEX profile_email (domain=? AND (email_key,owner)>(?,?) AND (email_key,owner)<(?,?))",
                    ]) {
                        let text = format!("EXPLAIN QUERY PLAN {}", texts.get(any, walk, leader));
                        let rows = sqlx::query(&text).fetch_all(&mut line).await.unwrap();
                        let plan: Vec<&str> = rows.iter().map(|row| row.get(3)).collect();
                        assert!(plan.iter().any(|step| step.contains(expected)), "{text}\n{plan:#?}");
                    }
                }
            }
        });
    }

    struct Tasks(tokio::runtime::Handle);

    impl base::Spawner for Tasks {
        fn spawn(&self, _what: &'static str, task: base::BoxFuture<'static, ()>) {
            drop(self.0.spawn(task));
        }
        fn blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
            drop(self.0.spawn_blocking(job));
        }
    }

    /// One account with many resources that all search at once.
    #[test]
    fn searches_leave_the_other_connections_to_other_reads() {
        let folder = std::env::temp_dir().join(format!("throng-store-{}", base::id::random_id()));
        std::fs::create_dir(&folder).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = format!("sqlite:{}", folder.join("throng.db").display());
            let tasks = Tasks(tokio::runtime::Handle::current());
            let clock = std::sync::Arc::new(base::ManualClock::new());
            // Nothing here is to be late, however slow the machine is.
            let options =
                crate::Options { read_deadline: std::time::Duration::MAX, ..crate::Options::default() };
            let database = SqlStores::open(&url, &options, clock, &tasks).await.unwrap();
            let query = Query { user: Some("a".into()), ..Query::default() };
            let page = || SearchPage { seek: Seek::First, limit: 5 };
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());

            assert_eq!(database.searches.available_permits(), 2, "of 12 connections");
            let running = database.searches.acquire_many(2).await.unwrap();
            let mut counts: Vec<Fut<'_, u64>> =
                (0..crate::SEARCHES_WAITING / 2).map(|_| database.count("example.org", &query)).collect();
            let mut pages: Vec<Fut<'_, Found>> =
                counts.iter().map(|_| database.search("example.org", &query, page())).collect();
            for search in &mut counts {
                assert!(search.as_mut().poll(&mut cx).is_pending());
            }
            for search in &mut pages {
                assert!(search.as_mut().poll(&mut cx).is_pending());
            }
            let reads = &database.figures().pools[1];
            assert_eq!((reads.used, reads.waiting), (0, 0), "a search that waits holds no connection");
            let refused = database.count("example.org", &query).await.unwrap_err();
            assert_eq!(refused.kind, store::ErrorKind::Overloaded);
            let stores = database.stores();
            assert_eq!(stores.settings.get("x").await.unwrap(), None, "other reads go on");

            drop(running);
            // In the order of their coming, which is the order of the permits.
            assert!(all(counts).await.into_iter().all(|found| found.unwrap() == 0));
            assert!(all(pages).await.into_iter().all(|found| found.unwrap().users.is_empty()));
            assert_eq!(database.searches.available_permits(), 2);
            database.close().await;

            let options = crate::Options { read_deadline: std::time::Duration::ZERO, ..options };
            let clock = std::sync::Arc::new(base::ManualClock::new());
            let database = SqlStores::open(&url, &options, clock, &tasks).await.unwrap();
            let _running = database.searches.acquire_many(2).await.unwrap();
            let late = database.count("example.org", &query).await.unwrap_err();
            assert_eq!(late.kind, store::ErrorKind::Timeout, "the deadline includes the waiting");
            database.close().await;
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn searches_never_take_the_last_connection_but_the_only_one() {
        assert_eq!([1, 2, 3, 12, 1000].map(crate::searches), [1, 1, 2, 2, 2]);
    }
}
