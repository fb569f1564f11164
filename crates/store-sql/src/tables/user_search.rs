//! User search: every query is one scan of one index, in its order, that stops after a page.
//!
//! User names come from `username`, which has all accounts; everything else from `profile`. A term for any field is
//! six scans whose results are merged; an account appears only in the scan of its smallest matching key.
//!
//! ```text
//! values = domain
//!          [key, key]                  lower and upper end of the walk, if the database needs them apart
//!          key, id, key, id            the same exactly, exclusive
//!          6 * (from, to)              what the six keys have to be
//!          [5 * (from, to)]            any: what the other fields' keys must not be if they are smaller
//!          limit [, offset]
//! ```
//!
//! A scan skips accounts that match its own term but not the others. The number of accounts skipped is limited by a
//! budget of steps ([`MAX_SEARCH_STEPS`]); beyond it the search fails with `TooBroad`. Few searches run at a time,
//! across all callers ([`SqlStores::read_search`]), so that reads for sessions always find a connection.
//!
//! # Pitfalls
//!
//! Without the statistics of ANALYZE the planner chooses the index that the order requires. The test of the plans
//! runs without them, and so must the server.

use store::user_search::{
    KeyRange, MAX_COUNT, MAX_PAGE_SIZE, SearchField, SearchPlan, decode_cursor, encode_cursor,
};
use store::{
    AddressId, FoundUser, SearchPageRequest, SearchableProfile, Seek, StoreError, StoreFuture, UserQuery,
    UserSearch, UserSearchPage,
};

use super::{TableStatements, address, id};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, SqlRow, StepBudget};

/// Steps of one search or count: about eighty thousand rows, 0.1 s. A complete count for a term of any field takes
/// two thirds of it at worst.
const MAX_SEARCH_STEPS: i64 = 4_000_000;

/// Kind of a scan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanKind {
    Up,
    Down,
    Count,
}

/// The statements of one kind, for each leading field.
type StatementPerField = [String; 6];

pub(crate) struct UserSearchStatements {
    /// Ascending, descending, count.
    plain: [StatementPerField; 3],
    any: [StatementPerField; 3],
    /// Whether the keys of both ends are separate values, too.
    bounds: bool,
}

const SCANS: [ScanKind; 3] = [ScanKind::Up, ScanKind::Down, ScanKind::Count];

fn statement(d: &dyn Dialect, leader: SearchField, any: bool, walk: ScanKind) -> String {
    let (from, domain, owner) = match leader {
        SearchField::User => ("username u LEFT JOIN profile p ON p.owner = u.id", "u.domain", "u.id"),
        _ => ("profile p", "p.domain", "p.owner"),
    };
    let column = |field: SearchField| match field {
        SearchField::User if leader == SearchField::User => "u.name",
        SearchField::User => "p.username",
        SearchField::Name => "p.name_key",
        SearchField::First => "p.first_key",
        SearchField::Last => "p.last_key",
        SearchField::Nick => "p.nick_key",
        SearchField::Email => "p.email_key",
    };
    let leading = column(leader);
    // An account without a vCard has no texts; and wrapping a column in a function keeps the planner from its index.
    let key = |field: SearchField| format!("coalesce({}, '')", column(field));
    let bounds = match d.ranges_of_rows() {
        true => String::new(),
        false => format!(" AND {leading} >= ? AND {leading} <= ?"),
    };
    let mut sql = format!(
        "WHERE {domain} = (SELECT id FROM address WHERE jid = ?){bounds} \
         AND ({leading}, {owner}) > (?, ?) AND ({leading}, {owner}) < (?, ?)"
    );
    for field in SearchField::ALL {
        sql += &format!(" AND {0} >= ? AND {0} < ?", key(field));
    }
    if any {
        for other in SearchField::ALL.into_iter().filter(|other| *other != leader) {
            let key = key(other);
            let smaller = if (other as usize) < leader as usize { "<=" } else { "<" };
            sql += &format!(" AND NOT ({key} >= ? AND {key} < ? AND {key} {smaller} {leading})");
        }
    }
    let columns =
        format!("{leading}, {owner}, a.jid, p.full_name, p.first_name, p.last_name, p.nick, p.email");
    let page = |down: &str| {
        format!(
            "SELECT {columns} FROM {from} JOIN address a ON a.id = {owner} {sql} \
             ORDER BY {leading}{down}, {owner}{down} LIMIT ? OFFSET ?"
        )
    };
    d.sql(&match walk {
        ScanKind::Up => page(""),
        ScanKind::Down => page(" DESC"),
        ScanKind::Count => format!("SELECT count(*) FROM (SELECT 1 FROM {from} {sql} LIMIT ?) AS found"),
    })
}

impl TableStatements for UserSearchStatements {
    fn new(d: &dyn Dialect) -> UserSearchStatements {
        let texts = |any| SCANS.map(|walk| SearchField::ALL.map(|leader| statement(d, leader, any, walk)));
        UserSearchStatements { plain: texts(false), any: texts(true), bounds: !d.ranges_of_rows() }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        self.plain.iter().chain(&self.any).flatten().map(String::as_str).collect()
    }
}

impl UserSearchStatements {
    fn get(&self, any: bool, walk: ScanKind, leader: SearchField) -> &str {
        &(if any { &self.any } else { &self.plain })[walk as usize][leader as usize]
    }
}

type IndexPosition = (String, u64);

/// A row before its conversion into a user.
struct SearchHit {
    position: IndexPosition,
    row: SqlRow,
}

impl SearchHit {
    fn to_found_user(&self) -> Result<FoundUser, StoreError> {
        let text = |column| Ok(self.row.optional_text(column)?.unwrap_or_default().to_owned());
        let shown = SearchableProfile {
            name: text(3)?,
            first: text(4)?,
            last: text(5)?,
            nick: text(6)?,
            email: text(7)?,
        };
        let (key, number) = &self.position;
        Ok(FoundUser { jid: address(self.row.text(2)?)?, shown, cursor: encode_cursor(id(*number)?, key) })
    }
}

/// Order of the scans for a term that any field may match. A scan skips accounts that belong to another one, and it
/// need not go beyond the hits found so far; so fields whose keys tend to be smaller come first.
const ANY_ORDER: [SearchField; 6] = [
    SearchField::User,
    SearchField::First,
    SearchField::Last,
    SearchField::Nick,
    SearchField::Email,
    SearchField::Name,
];

/// The scans of a plan: the leading field, and the range of its keys.
fn planned_scans(plan: &SearchPlan) -> Vec<(SearchField, &KeyRange)> {
    match &plan.any {
        None => vec![(plan.sort_field, &plan.fields[plan.sort_field as usize])],
        Some(any) => ANY_ORDER.map(|field| (field, &any[field as usize])).into(),
    }
}

/// One search on one connection.
struct SearchRun<'a> {
    conn: &'a mut DbConnection,
    domain: &'a str,
    plan: &'a SearchPlan,
    /// Budget for all statements of this search.
    steps: StepBudget,
}

impl SearchRun<'_> {
    /// The values of a scan between two positions; `None` when the range is empty.
    fn values<'b>(
        plan: &'b SearchPlan,
        domain: &'b str,
        (leader, range): (SearchField, &'b KeyRange),
        after: Option<&'b IndexPosition>,
        before: Option<&'b IndexPosition>,
        bounds: bool,
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
        let mut args = vec![Arg::Text(domain)];
        if bounds {
            args.extend([Arg::Text(low.0), Arg::Text(high.0)]);
        }
        args.extend([Arg::Text(low.0), Arg::number(low.1), Arg::Text(high.0), Arg::number(high.1)]);
        let pair = |range: &'b KeyRange| [Arg::Text(&range.from), Arg::Text(&range.to)];
        args.extend(plan.fields.iter().flat_map(pair));
        if let Some(any) = &plan.any {
            let others = SearchField::ALL.into_iter().filter(|other| *other != leader);
            args.extend(others.flat_map(|other| pair(&any[other as usize])));
        }
        Some(args)
    }

    /// At most `limit` hits between two positions, in the direction of the scan, after skipping `skip`.
    async fn hits(
        &mut self,
        walk: ScanKind,
        after: Option<&IndexPosition>,
        before: Option<&IndexPosition>,
        limit: u32,
        skip: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        let context = self.conn.context.clone();
        let (plan, domain) = (self.plan, self.domain);
        let mut hits: Vec<SearchHit> = Vec::new();
        for (leader, range) in planned_scans(plan) {
            // Where a full page would end.
            let end = hits.get((limit as usize).saturating_sub(1)).map(|hit| hit.position.clone());
            let (after, before) = match walk {
                ScanKind::Down => (end.as_ref().or(after), before),
                _ => (after, end.as_ref().or(before)),
            };
            let bounds = context.sql.user_search.bounds;
            let Some(mut args) = Self::values(plan, domain, (leader, range), after, before, bounds) else {
                continue;
            };
            args.extend([limit, skip].map(|number| Arg::number(number.into())));
            let text = context.sql.user_search.get(plan.any.is_some(), walk, leader);
            for row in self.conn.fetch_all_within(&self.steps, text, &args).await? {
                hits.push(SearchHit { position: (row.text(0)?.to_owned(), row.number(1)?), row });
            }
            if plan.any.is_some() {
                hits.sort_by(|a, b| a.position.cmp(&b.position));
                if walk == ScanKind::Down {
                    hits.reverse();
                }
                hits.truncate(limit as usize);
            }
        }
        Ok(hits)
    }

    async fn page(&mut self, page: SearchPageRequest) -> Result<UserSearchPage, StoreError> {
        let limit = page.limit.min(MAX_PAGE_SIZE);
        let (mut hits, down) = match page.seek {
            Seek::First => (self.hits(ScanKind::Up, None, None, limit + 1, 0).await?, false),
            Seek::After(cursor) => {
                let position = position(&cursor)?;
                (self.hits(ScanKind::Up, Some(&position), None, limit + 1, 0).await?, false)
            }
            Seek::Before(cursor) => {
                let position = position(&cursor)?;
                (self.hits(ScanKind::Down, None, Some(&position), limit + 1, 0).await?, true)
            }
            Seek::Last => (self.hits(ScanKind::Down, None, None, limit + 1, 0).await?, true),
            Seek::Index(index) if u64::from(index) >= MAX_COUNT => (Vec::new(), false),
            Seek::Index(index) => (self.from(index, limit + 1).await?, false),
        };
        let more = hits.len() > limit as usize;
        hits.truncate(limit as usize);
        if down {
            hits.reverse();
        }
        let users: Result<Vec<FoundUser>, StoreError> = hits.iter().map(SearchHit::to_found_user).collect();
        Ok(UserSearchPage { users: users?, more })
    }

    /// The hits from this index on. Merged scans cannot be skipped through, so those are read page by page.
    async fn from(&mut self, index: u32, limit: u32) -> Result<Vec<SearchHit>, StoreError> {
        if self.plan.any.is_none() {
            return self.hits(ScanKind::Up, None, None, limit, index).await;
        }
        let (mut after, mut left) = (None, index);
        while left > 0 {
            let step = left.min(MAX_PAGE_SIZE);
            let hits = self.hits(ScanKind::Up, after.as_ref(), None, step, 0).await?;
            if hits.len() < step as usize {
                return Ok(Vec::new());
            }
            after = hits.into_iter().next_back().map(|hit| hit.position);
            left -= step;
        }
        self.hits(ScanKind::Up, after.as_ref(), None, limit, 0).await
    }

    /// Number of hits before this position.
    async fn count(&mut self, before: Option<&IndexPosition>) -> Result<u64, StoreError> {
        let context = self.conn.context.clone();
        let (plan, domain) = (self.plan, self.domain);
        let mut counted = 0;
        for (leader, range) in planned_scans(plan) {
            let bounds = context.sql.user_search.bounds;
            let Some(mut args) = Self::values(plan, domain, (leader, range), None, before, bounds) else {
                continue;
            };
            args.push(Arg::number(MAX_COUNT));
            let text = context.sql.user_search.get(plan.any.is_some(), ScanKind::Count, leader);
            let rows = self.conn.fetch_all_within(&self.steps, text, &args).await?;
            counted += rows.first().map_or(Ok(0), |row| row.number(0))?;
            if counted >= MAX_COUNT {
                return Ok(MAX_COUNT);
            }
        }
        Ok(counted)
    }
}

fn position(cursor: &str) -> Result<IndexPosition, StoreError> {
    let (key, id): (String, AddressId) = decode_cursor(cursor)?;
    Ok((key, id.get().into()))
}

impl SqlStores {
    fn counted(
        &self,
        domain: &str,
        query: &UserQuery,
        before: Option<IndexPosition>,
    ) -> StoreFuture<'_, u64> {
        let (domain, plan) = (domain.to_owned(), query.plan());
        self.read_search((domain, plan, before), |conn, (domain, plan, before)| {
            Box::pin(async move {
                SearchRun { conn, domain, plan, steps: StepBudget::new(MAX_SEARCH_STEPS) }
                    .count(before.as_ref())
                    .await
            })
        })
    }
}

impl UserSearch for SqlStores {
    fn search(
        &self,
        domain: &str,
        query: &UserQuery,
        page: SearchPageRequest,
    ) -> StoreFuture<'_, UserSearchPage> {
        let (domain, plan) = (domain.to_owned(), query.plan());
        self.read_search((domain, plan, page), |conn, (domain, plan, page)| {
            Box::pin(async move {
                SearchRun { conn, domain, plan, steps: StepBudget::new(MAX_SEARCH_STEPS) }
                    .page(page.clone())
                    .await
            })
        })
    }

    fn count(&self, domain: &str, query: &UserQuery) -> StoreFuture<'_, u64> {
        self.counted(domain, query, None)
    }

    fn index(&self, domain: &str, query: &UserQuery, cursor: &str) -> StoreFuture<'_, u64> {
        match position(cursor) {
            Ok(position) => self.counted(domain, query, Some(position)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::sqlite::SqliteDialect;
    use sqlx::Row as _;
    use store::conformance::join_all;

    /// Every scan, including counts, uses the index of its own field and begins and ends at its bounds.
    #[test]
    fn every_search_uses_the_index_of_its_field() {
        let texts = UserSearchStatements::new(&SqliteDialect);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut conn = crate::migrate::in_memory().await;
            for any in [false, true] {
                for walk in SCANS {
                    for (leader, expected) in SearchField::ALL.into_iter().zip([
                        "SEARCH u USING PRIMARY KEY (domain=? AND (name,id)>(?,?) AND (name,id)<(?,?))",
                        "INDEX profile_name (domain=? AND (name_key,owner)>(?,?) AND (name_key,owner)<(?,?))",
                        "INDEX profile_first (domain=? AND (first_key,owner)>(?,?) AND (first_key,owner)<(?,?))",
                        "INDEX profile_last (domain=? AND (last_key,owner)>(?,?) AND (last_key,owner)<(?,?))",
                        "INDEX profile_nick (domain=? AND (nick_key,owner)>(?,?) AND (nick_key,owner)<(?,?))",
                        "INDEX profile_email (domain=? AND (email_key,owner)>(?,?) AND (email_key,owner)<(?,?))",
                    ]) {
                        let text = format!("EXPLAIN QUERY PLAN {}", texts.get(any, walk, leader));
                        let rows = sqlx::query(&text).fetch_all(&mut conn).await.unwrap();
                        let plan: Vec<&str> = rows.iter().map(|row| row.get(3)).collect();
                        assert!(plan.iter().any(|step| step.contains(expected)), "{text}\n{plan:#?}");
                    }
                }
            }
        });
    }

    /// One account with many resources that all search at once.
    #[test]
    fn searches_leave_the_other_connections_to_other_reads() {
        let folder = std::env::temp_dir().join(format!("throng-store-{}", base::id::random_id()));
        std::fs::create_dir(&folder).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = format!("sqlite:{}", folder.join("throng.db").display());
            let tasks = crate::test_spawner::HandleSpawner(tokio::runtime::Handle::current());
            let clock = std::sync::Arc::new(base::ManualClock::new());
            // No call may miss its deadline here, however slow the machine is.
            let options = crate::DatabaseOptions {
                read_deadline: std::time::Duration::MAX,
                ..crate::DatabaseOptions::default()
            };
            let database = SqlStores::open(&url, &options, clock, &tasks).await.unwrap();
            let query = UserQuery { user: Some("a".into()), ..UserQuery::default() };
            let page = || SearchPageRequest { seek: Seek::First, limit: 5 };
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());

            assert_eq!(database.search_permits.available_permits(), 2, "of 12 connections");
            let running = database.search_permits.acquire_many(2).await.unwrap();
            let mut counts: Vec<StoreFuture<'_, u64>> =
                (0..crate::MAX_QUEUED_SEARCHES / 2).map(|_| database.count("example.org", &query)).collect();
            let mut pages: Vec<StoreFuture<'_, UserSearchPage>> =
                counts.iter().map(|_| database.search("example.org", &query, page())).collect();
            for search in &mut counts {
                assert!(search.as_mut().poll(&mut cx).is_pending());
            }
            for search in &mut pages {
                assert!(search.as_mut().poll(&mut cx).is_pending());
            }
            let reads = &database.stats().pools[1];
            assert_eq!((reads.in_use, reads.waiting), (0, 0), "a search that waits holds no connection");
            let refused = database.count("example.org", &query).await.unwrap_err();
            assert_eq!(refused.kind, store::StoreErrorKind::Overloaded);
            let stores = database.stores();
            assert_eq!(stores.server_kv.get("x").await.unwrap(), None, "other reads go on");

            drop(running);
            // Polled in the order of arrival, which is the order of the permits.
            assert!(join_all(counts).await.into_iter().all(|found| found.unwrap() == 0));
            assert!(join_all(pages).await.into_iter().all(|found| found.unwrap().users.is_empty()));
            assert_eq!(database.search_permits.available_permits(), 2);
            database.close().await;

            let options = crate::DatabaseOptions { read_deadline: std::time::Duration::ZERO, ..options };
            let clock = std::sync::Arc::new(base::ManualClock::new());
            let database = SqlStores::open(&url, &options, clock, &tasks).await.unwrap();
            let _running = database.search_permits.acquire_many(2).await.unwrap();
            let late = database.count("example.org", &query).await.unwrap_err();
            assert_eq!(late.kind, store::StoreErrorKind::Timeout, "the deadline includes the waiting");
            database.close().await;
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn searches_never_use_the_last_connection_unless_it_is_the_only_one() {
        assert_eq!([1, 2, 3, 12, 1000].map(crate::concurrent_searches), [1, 1, 2, 2, 2]);
    }
}
