//! The two statements of every login, for many accounts at once, each with one text as its result: what proves the
//! client's identity, and after the proof the roster and the other initial data of a session.
//!
//! Rows are the most expensive part on the way out of SQLite's thread, for its reader is woken for each and each
//! column is copied twice. All accounts therefore share a single row.
//!
//! ```text
//! secrets = secret *(LF secret)
//! secret  = jid SP id SP revision SP disabled 2(SP *HEXDIG)   credentials and tokens in hexadecimal; id 0: no such account
//!
//! logins = block *(LF block)
//! block  = head LF *(line LF)
//! head   = id SP revision SP disabled SP version SP waiting 2(SP *HEXDIG) SP large    blocklist and photo in hexadecimal
//! line   = contact SP subscription SP *HEXDIG SP *HEXDIG SP jid         label and request in hexadecimal
//! ```
//! Bare addresses contain neither spaces nor line feeds, so nothing is escaped. Blocks and lines come in any order.
//!
//! Unauthenticated clients can request secrets. An address without an account therefore costs the same as one with an
//! account: the same look-ups, and a line of the usual length, which is read like the others.
//!
//! # Pitfalls
//!
//! A large roster does not fit the text that many logins share; it is read separately.

use jid::JidRef;
use store::logins::LOWEST_REVISION;
use store::roster::LARGE_ROSTER_BYTES;
use store::{
    AccountSecrets, AddressId, Login, LoginAttempt, Logins, ProofFn, Roster as _, RosterItem, StoreError,
    StoreErrorKind, StoreFuture, Subscription,
};

use super::{TableStatements, address, id};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, SizedStatement, placeholders};
use crate::error::{self, corrupt};
use crate::roster_label;

pub(crate) struct LoginStatements {
    secrets: SizedStatement,
    login: SizedStatement,
}

/// Length of the credentials of new accounts, in bytes.
const DECOY_CREDENTIAL_BYTES: usize = 300;

/// A line feed as an SQL literal.
const LINE_FEED: &str = "'\n'";

/// Expression for the address of the contact of a row `r` of `roster`. Not a join, for which PostgreSQL reads all addresses
/// as long as it has no statistics of them, and for a large roster among few accounts.
pub(super) const CONTACT_JID: &str = "(SELECT j.jid FROM address j WHERE j.id = r.contact)";

/// Expression for the whole roster of `owner` as lines.
pub(super) fn roster_lines(d: &dyn Dialect, owner: &str) -> String {
    let line = format!(
        "r.contact || ' ' || r.subscription || ' ' || {} || ' ' || {} || ' ' || {CONTACT_JID}",
        d.hex("r.label"),
        d.hex("r.request")
    );
    format!("(SELECT {} FROM roster r WHERE r.owner = {owner})", d.join_lines(&line))
}

/// Expression for the weight of the roster of `owner`; see [`store::roster::LARGE_ROSTER_BYTES`]. It reads no text.
pub(super) fn roster_weight(d: &dyn Dialect, owner: &str) -> String {
    let weight = format!(
        "{} + coalesce(octet_length(w.label), 0) + coalesce(octet_length(w.request), 0)",
        store::roster::ENTRY_OVERHEAD_BYTES
    );
    format!("(SELECT {} FROM roster w WHERE w.owner = {owner})", d.sum(&weight))
}

impl TableStatements for LoginStatements {
    fn new(d: &dyn Dialect) -> LoginStatements {
        LoginStatements {
            secrets: SizedStatement::new(|n| {
                // An address without an account has a row like the others and the same work. No account has the
                // number 0.
                let head = format!(
                    "found.jid || ' ' || coalesce(c.id, 0) || ' ' || coalesce(c.revision, {LOWEST_REVISION}) || ' ' || \
                     coalesce(c.disabled, 0) || ' ' || {} || ' ' || {}",
                    d.hex(&format!("coalesce(c.credentials, {})", d.zero_bytes(DECOY_CREDENTIAL_BYTES))),
                    d.hex("c.tokens")
                );
                d.sql(&format!(
                    "WITH found(jid) AS ({}) SELECT {} FROM found LEFT JOIN address a ON a.jid = found.jid \
                     LEFT JOIN account c ON c.id = coalesce(a.id, 0)",
                    d.value_list("jid", n),
                    d.join_lines(&head)
                ))
            }),
            login: SizedStatement::new(|n| {
                let head = format!(
                    "c.id || ' ' || c.revision || ' ' || c.disabled || ' ' || c.roster_version || ' ' || \
                     coalesce((SELECT i.waiting FROM inbox i WHERE i.owner = c.id), 0) || ' ' || {} \
                     || ' ' || {}",
                    d.hex("c.blocklist"),
                    d.hex("c.photo")
                );
                let lines = roster_lines(d, "c.id");
                let block = format!(
                    "{head} || CASE WHEN {} > {LARGE_ROSTER_BYTES} THEN ' 1' || {LINE_FEED} \
                     ELSE ' 0' || {LINE_FEED} || coalesce({lines} || {LINE_FEED}, '') END",
                    roster_weight(d, "c.id")
                );
                d.sql(&format!(
                    "SELECT {} FROM account c WHERE c.id IN ({})",
                    d.join_lines(&block),
                    placeholders(n)
                ))
            }),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        [&self.secrets, &self.login]
            .iter()
            .flat_map(|sizes| [sizes.at_least(1).1, sizes.at_least(64).1])
            .collect()
    }
}

impl LoginStatements {
    #[cfg(test)]
    pub(crate) fn all_secrets(&self) -> &SizedStatement {
        &self.secrets
    }
}

/// Results per account: its data, or why this one account cannot be read.
pub(crate) type LoginResults<K, T> = Vec<(K, Result<T, StoreError>)>;

/// An account and the revision of the proved credentials.
pub(crate) type ProvedAccount = (AddressId, u64);

/// The data of an account for a login, except a large roster.
#[derive(Clone)]
pub(crate) struct LoginRow {
    pub(crate) login: Login,
    /// The roster must still be read.
    pub(crate) large: bool,
}

/// Reads the secrets of accounts with one statement; there are at most [`SizedStatement::MAX`] accounts.
pub(crate) async fn secrets(
    conn: &mut DbConnection,
    accounts: &[&str],
) -> Result<LoginResults<Box<str>, Option<AccountSecrets>>, StoreError> {
    let mut names: Vec<Arg<'_>> = accounts.iter().map(|name| Arg::Text(name)).collect();
    let context = conn.context.clone();
    let (size, text) = context.sql.logins.secrets.at_least(names.len());
    // A join with NULL produces no line.
    names.resize(size, Arg::Null);
    let mut found = Vec::with_capacity(accounts.len());
    for row in &conn.fetch_all(text, &names).await? {
        let Some(text) = row.optional_text(0)? else { continue };
        for line in text.split('\n') {
            let (name, line) = line.split_once(' ').ok_or_else(corrupt_account)?;
            found.push((name.into(), parse_secrets(line)));
        }
    }
    Ok(found)
}

/// Reads the initial data of sessions with as few statements as the database allows; there are at most [`SizedStatement::MAX`] accounts. Only an
/// account that still has the proved credentials matches.
pub(crate) async fn logins(
    conn: &mut DbConnection,
    accounts: &[ProvedAccount],
) -> Result<LoginResults<ProvedAccount, Option<LoginRow>>, StoreError> {
    let ids: Vec<Arg<'_>> = accounts.iter().map(|(id, _)| Arg::number(id.get().into())).collect();
    let context = conn.context.clone();
    let mut rows = Vec::new();
    for part in ids.chunks(context.dialect.max_joined_logins()) {
        rows.append(&mut conn.fetch_in(&context.sql.logins.login, part).await?);
    }
    let mut found = Vec::with_capacity(accounts.len());
    for row in &rows {
        let Some(text) = row.optional_text(0)? else { continue };
        for block in text.split("\n\n") {
            let (head, lines) = block.split_once('\n').unwrap_or((block, ""));
            let mut parts = head.splitn(3, ' ');
            let (account, revision) = (parse_number(&mut parts)?, parse_number(&mut parts)?);
            let head = parts.next().ok_or_else(corrupt_account)?;
            found.push(((id(account)?, revision), parse_login(head, lines).map(Some)));
        }
    }
    Ok(found)
}

fn corrupt_account() -> StoreError {
    corrupt("the database contains an invalid account")
}

fn parse_number<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Result<u64, StoreError> {
    parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(corrupt_account)
}

fn parse_hex<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Result<Vec<u8>, StoreError> {
    parts.next().and_then(roster_label::decode_hex).ok_or_else(corrupt_account)
}

fn parse_secrets(line: &str) -> Result<Option<AccountSecrets>, StoreError> {
    let parts = &mut line.split(' ');
    let (account, revision, disabled) =
        (parse_number(parts)?, parse_number(parts)?, parse_number(parts)? != 0);
    let (credentials, tokens) = (parse_hex(parts)?, parse_hex(parts)?);
    Ok(match account {
        0 => None,
        account => Some(AccountSecrets { id: id(account)?, revision, credentials, disabled, tokens }),
    })
}

fn parse_login(head: &str, lines: &str) -> Result<LoginRow, StoreError> {
    let parts = &mut head.split(' ');
    let (disabled, roster_version, waiting) =
        (parse_number(parts)? != 0, parse_number(parts)?, parse_number(parts)?);
    let (blocklist, photo) = (parse_hex(parts)?, parse_hex(parts)?);
    let large = parse_number(parts)? != 0;
    let photo = if photo.is_empty() { None } else { Some(photo.try_into().map_err(|_| corrupt_account())?) };
    let lines = lines.strip_suffix('\n').unwrap_or(lines);
    let roster = roster((!lines.is_empty()).then_some(lines))?;
    let offline = u32::try_from(waiting).unwrap_or(u32::MAX);
    Ok(LoginRow {
        login: Login { disabled, roster, roster_version, offline_messages: offline, blocklist, photo },
        large,
    })
}

/// Parses a roster from its lines, ordered by contact.
pub(super) fn roster(lines: Option<&str>) -> Result<Vec<RosterItem>, StoreError> {
    let Some(lines) = lines else { return Ok(Vec::new()) };
    let count = lines.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let mut items = Vec::with_capacity(count);
    for line in lines.split('\n') {
        items.push(
            parse_roster_item(line)?
                .ok_or_else(|| corrupt("the database contains an invalid roster entry"))?,
        );
    }
    items.sort_unstable_by_key(|item: &RosterItem| item.contact);
    Ok(items)
}

fn parse_roster_item(line: &str) -> Result<Option<RosterItem>, StoreError> {
    let mut parts = line.splitn(5, ' ');
    let mut part = || parts.next().unwrap_or_default();
    let (Ok(contact), Ok(bits)) = (part().parse(), part().parse()) else { return Ok(None) };
    let Some(subscription) = Subscription::from_bits(bits) else { return Ok(None) };
    let (label, request) = (part(), part());
    let labels = roster_label::decode_hex(label).and_then(|label| roster_label::decode(&label));
    let Some((name, groups)) = labels else { return Ok(None) };
    let request = match request {
        "" => None,
        some => match roster_label::decode_hex(some) {
            None => return Ok(None),
            some => some,
        },
    };
    let jid = address(part())?;
    Ok(Some(RosterItem { contact: id(contact)?, jid, name, groups, subscription, request }))
}

impl Logins for SqlStores {
    fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>> {
        self.login_batcher.secrets(account.bare().as_str())
    }

    fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>> {
        Box::pin(async move {
            let block = self.login_batcher.login((account, revision)).await?;
            self.whole(account, block).await
        })
    }

    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>> {
        let answer = self.login_batcher.prove(account.bare().as_str(), proof);
        Box::pin(async move {
            let Some((secrets, block)) = answer.await? else { return Ok(None) };
            let login = match block {
                None => None,
                Some(Ok(block)) => Some(self.whole(secrets.id, block).await),
                Some(Err(error)) => Some(Err(error)),
            };
            Ok(Some(LoginAttempt { secrets, login }))
        })
    }
}

impl SqlStores {
    /// Completes a login with its roster, which is read separately when it is large. A disabled account needs none.
    async fn whole(&self, account: AddressId, block: Option<LoginRow>) -> Result<Option<Login>, StoreError> {
        let Some(LoginRow { mut login, large }) = block else { return Ok(None) };
        if !large || login.disabled {
            return Ok(Some(login));
        }
        let reading = async {
            // Separately, and a few at a time: many in one statement would need many times the memory.
            let _permit = self.large_roster_permits.acquire().await.map_err(|_| error::unavailable())?;
            self.get(account).await
        };
        // The deadline includes the wait for the permit.
        let roster = tokio::time::timeout(self.read_deadline, reading).await;
        match roster.unwrap_or_else(|_| Err(error::deadline_exceeded())) {
            Ok(roster) => {
                (login.roster, login.roster_version) = (roster.items, roster.version);
                Ok(Some(login))
            }
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseOptions;
    use crate::test_spawner::HandleSpawner;
    use jid::Jid;
    use std::sync::Arc;
    use std::time::Duration;
    use store::{BulkItem, BulkRoster};

    #[test]
    fn a_login_waits_for_a_large_roster_within_the_deadline_and_a_disabled_account_needs_none() {
        let folder = std::env::temp_dir().join(format!("throng-store-{}", base::id::random_id()));
        std::fs::create_dir(&folder).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = format!("sqlite:{}", folder.join("throng.db").display());
            let spawner = HandleSpawner(tokio::runtime::Handle::current());
            let open = async |deadline| {
                let options = DatabaseOptions { read_deadline: deadline, ..DatabaseOptions::default() };
                SqlStores::open(&url, &options, Arc::new(base::ManualClock::new()), &spawner).await.unwrap()
            };
            let database = open(Duration::MAX).await;
            let stores = database.stores();
            let jid = Jid::parse("ann@example.org").unwrap();
            let ann = stores.accounts.create(&jid, b"keys").await.unwrap();
            let contact = stores.addresses.intern(&Jid::parse("bob@example.org").unwrap()).await.unwrap();
            let size = usize::try_from(LARGE_ROSTER_BYTES).unwrap();
            let name = Some("x".repeat(size + 1));
            let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
            let items = vec![BulkItem { contact, name, groups: vec![], subscription }];
            stores.roster.put_bulk(vec![BulkRoster { owner: ann, items }]).await.unwrap();
            let revision = stores.logins.secrets(jid.as_ref()).await.unwrap().unwrap().revision;
            let login = stores.logins.login(ann, revision).await.unwrap().unwrap();
            assert_eq!((login.roster.len(), login.disabled), (1, false));

            let permits = database.large_roster_permits.available_permits();
            let all =
                database.large_roster_permits.acquire_many(u32::try_from(permits).unwrap()).await.unwrap();
            stores.accounts.set_disabled(jid.as_ref(), true).await.unwrap();
            let login = stores.logins.login(ann, revision).await.unwrap().unwrap();
            assert_eq!((login.disabled, login.roster.len()), (true, 0), "decided without a permit");
            stores.accounts.set_disabled(jid.as_ref(), false).await.unwrap();
            drop((all, stores));
            database.close().await;

            // The first part of a login has the same deadline, so the second one is called directly.
            let database = open(Duration::ZERO).await;
            let _all =
                database.large_roster_permits.acquire_many(u32::try_from(permits).unwrap()).await.unwrap();
            let login = Login { roster: vec![], ..login };
            let row = LoginRow { login: Login { disabled: false, ..login }, large: true };
            let late = database.whole(ann, Some(row)).await.unwrap_err();
            assert_eq!(late.kind, StoreErrorKind::Timeout);
            database.close().await;
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
