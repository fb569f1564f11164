//! Accounts, keyed by the number of their address; the domain's number is stored beside it for lists.

use std::collections::{BTreeSet, HashSet};

use jid::{Jid, JidRef};
use store::{
    AccountRecord, Accounts, AddressId, CreateOutcome, NewAccount, Page, Paged, RemovedAccount, RosterItem,
    StoreError, StoreErrorKind, StoreFuture,
};

use super::{OWNED_TABLES, TableStatements, address, address_dictionary, bare, id, logins, rooms};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement, SizedStatement, SqlRow, placeholders};
use crate::error::corrupt;
use crate::writer::Owner;

/// Accounts per transaction of a bulk creation; about 30 ms.
const ROWS_PER_TRANSACTION: usize = 4096;

pub(crate) struct AccountStatements {
    insert: RowsStatement,
    pub(super) present: SizedStatement,
    show: String,
    list: String,
    count: String,
    roster: String,
    remove: Vec<String>,
    names: RowsStatement,
    remove_name: String,
    owner: String,
    /// Locks accounts, where several transactions write at the same time.
    lock: Option<SizedStatement>,
    set_credentials: String,
    set_disabled: String,
    upgrade: String,
    list_disabled: String,
    count_disabled: String,
}

const COLUMNS: [&str; 7] =
    ["id", "domain", "created_at", "disabled", "roster_version", "credentials", "revision"];

impl TableStatements for AccountStatements {
    fn new(d: &dyn Dialect) -> AccountStatements {
        let shown =
            "SELECT c.id, a.jid, c.disabled, c.created_at FROM account c JOIN address a ON a.id = c.id";
        let set = |column: &str| {
            d.sql(&format!(
                "UPDATE account SET {column} = ? WHERE id = (SELECT id FROM address WHERE jid = ?)"
            ))
        };
        AccountStatements {
            insert: RowsStatement::insert(d, "account", &COLUMNS),
            present: SizedStatement::new(|n| {
                d.sql(&format!("SELECT id FROM account WHERE id IN ({})", placeholders(n)))
            }),
            show: d.sql(&format!("{shown} WHERE a.jid = ?")),
            list: d.sql(&format!(
                "{shown} WHERE c.domain = (SELECT id FROM address WHERE jid = ?) AND c.id > ? \
                 ORDER BY c.id LIMIT ?"
            )),
            count: d
                .sql("SELECT count(*) FROM account WHERE domain = (SELECT id FROM address WHERE jid = ?)"),
            roster: d.sql(&format!(
                "SELECT c.id, {}, c.domain FROM address a JOIN account c ON c.id = a.id WHERE a.jid = ?",
                logins::roster_lines(d, "c.id")
            )),
            remove: OWNED_TABLES
                .iter()
                .copied()
                .flatten()
                .map(|table| d.sql(&format!("DELETE FROM {table} WHERE owner = ?")))
                .chain(rooms::REMOVED_USER.map(|sql| d.sql(sql)))
                .chain([d.sql("DELETE FROM account WHERE id = ?")])
                .collect(),
            names: RowsStatement::insert_new(d, "username", &["domain", "name", "id"]),
            remove_name: d.sql("DELETE FROM username WHERE domain = ? AND name = ? AND id = ?"),
            owner: d
                .sql("SELECT c.id, c.domain FROM address a JOIN account c ON c.id = a.id WHERE a.jid = ?"),
            lock: d.lock_rows().map(|lock| {
                SizedStatement::new(|n| {
                    d.sql(&format!(
                        "SELECT id FROM account WHERE id IN ({}) ORDER BY id {lock}",
                        placeholders(n)
                    ))
                })
            }),
            // A password change revokes the tokens issued under the old one.
            set_credentials: set("tokens = NULL, revision = revision + 1, credentials"),
            set_disabled: set("disabled"),
            upgrade: d.sql(
                "UPDATE account SET credentials = ? \
                 WHERE id = (SELECT id FROM address WHERE jid = ?) AND credentials = ?",
            ),
            list_disabled: d.sql(&format!(
                "{shown} WHERE c.domain = (SELECT id FROM address WHERE jid = ?) AND c.disabled <> 0 \
                 AND c.id > ? ORDER BY c.id LIMIT ?"
            )),
            count_disabled: d.sql(
                "SELECT count(*) FROM account \
                 WHERE domain = (SELECT id FROM address WHERE jid = ?) AND disabled <> 0",
            ),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.remove.iter().map(String::as_str).collect();
        all.extend([
            self.present.at_least(2).1,
            &self.show,
            &self.list,
            &self.count,
            &self.roster,
            &self.remove_name,
            &self.owner,
            &self.set_credentials,
            &self.set_disabled,
            &self.upgrade,
            &self.list_disabled,
            &self.count_disabled,
        ]);
        all
    }
}

async fn create_chunk(
    conn: &mut DbConnection,
    accounts: &[NewAccount],
) -> Result<Vec<CreateOutcome>, StoreError> {
    let context = conn.context.clone();
    let now = context.clock.unix_millis();
    // Domains first, so that an account's domain has a number even when it is the very first address.
    let mut names: Vec<&str> = accounts.iter().map(|new| new.jid.domain()).collect();
    names.dedup();
    names.extend(accounts.iter().map(|new| new.jid.bare().as_str()));
    let numbers = address_dictionary::intern(conn, &names).await?;
    let number = |name: &str| {
        numbers.get(name).copied().ok_or_else(|| corrupt("an inserted address is missing from the database"))
    };

    let ids: Result<Vec<AddressId>, StoreError> =
        accounts.iter().map(|new| number(new.jid.bare().as_str())).collect();
    let ids = ids?;
    let args: Vec<Arg<'_>> = ids.iter().map(|id| Arg::number(id.get().into())).collect();
    let rows = conn.fetch_in(&context.sql.accounts.present, &args).await?;
    let present: Result<HashSet<AddressId>, StoreError> = rows.iter().map(|row| id(row.number(0)?)).collect();
    let mut present = present?;

    let mut answers = Vec::with_capacity(accounts.len());
    let mut values = Vec::with_capacity(accounts.len() * COLUMNS.len());
    let mut users = Vec::with_capacity(accounts.len() * 3);
    // One random draw for all: each account has its own number, and so its own revisions.
    let revision = store::logins::first_revision();
    for (new, id) in accounts.iter().zip(ids) {
        if !present.insert(id) {
            answers.push(CreateOutcome::Exists(id));
            continue;
        }
        answers.push(CreateOutcome::New(id));
        let (id, domain) =
            (Arg::number(id.get().into()), Arg::number(number(new.jid.domain())?.get().into()));
        users.extend([domain, Arg::Text(new.jid.local().unwrap_or_default()), id]);
        values.extend([
            id,
            domain,
            Arg::number(now),
            Arg::Int(0),
            Arg::number(store::accounts::first_sequence_number(now)),
            Arg::Bytes(&new.credentials),
            Arg::number(revision),
        ]);
    }
    // Another node may create one of them in the meantime. Then this fails, runs again, and finds it.
    conn.execute_rows(&context.sql.accounts.insert, COLUMNS.len(), &values).await?;
    conn.execute_rows(&context.sql.accounts.names, 3, &users).await?;
    Ok(answers)
}

/// The numbers of an account and of its domain, if the account exists. Runs inside the writer's transaction.
pub(super) async fn owner(conn: &mut DbConnection, name: &str) -> Result<Option<(u64, u64)>, StoreError> {
    let context = conn.context.clone();
    let row = conn.fetch_optional(&context.sql.accounts.owner, &[Arg::Text(name)]).await?;
    row.map(|row| Ok((row.number(0)?, row.number(1)?))).transpose()
}

/// Locks accounts that a request found only inside its transaction; true if others could have written before. Runs
/// inside the writer's transaction.
pub(super) async fn lock(conn: &mut DbConnection, owners: &BTreeSet<u64>) -> Result<bool, StoreError> {
    let context = conn.context.clone();
    let Some(lock) = &context.sql.accounts.lock else { return Ok(false) };
    let ids: Vec<Arg<'_>> = owners.iter().map(|owner| Arg::number(*owner)).collect();
    conn.fetch_in(lock, &ids).await?;
    Ok(true)
}

/// The local part of a bare address.
pub(super) fn user_of(name: &str) -> &str {
    name.split_once('@').map_or("", |(user, _)| user)
}

async fn remove(conn: &mut DbConnection, name: &str) -> Result<Option<RemovedAccount>, StoreError> {
    let context = conn.context.clone();
    let Some(row) = conn.fetch_optional(&context.sql.accounts.roster, &[Arg::Text(name)]).await? else {
        return Ok(None);
    };
    let id = id(row.number(0)?)?;
    let mut contacts = logins::roster(row.optional_text(1)?)?;
    contacts.retain(RosterItem::has_subscription_or_request);
    let number = Arg::number(id.get().into());
    for sql in &context.sql.accounts.remove {
        conn.execute(sql, &[number]).await?;
    }
    rooms::count_removal(conn, id.get().into()).await?;
    let args = [Arg::number(row.number(2)?), Arg::Text(user_of(name)), number];
    conn.execute(&context.sql.accounts.remove_name, &args).await?;
    Ok(Some(RemovedAccount { id, contacts }))
}

fn shown(row: &SqlRow) -> Result<AccountRecord, StoreError> {
    Ok(AccountRecord {
        id: id(row.number(0)?)?,
        jid: address(row.text(1)?)?,
        disabled: row.number(2)? != 0,
        created_at: row.number(3)?,
    })
}

impl SqlStores {
    /// Runs one update with a value and the account's address; returns whether the account exists.
    fn update(&self, name: Box<str>, value: Option<Vec<u8>>, flag: bool) -> StoreFuture<'_, bool> {
        let bytes = value.as_ref().map_or(0, Vec::len) + 64;
        let owner = Owner::Name(name.clone());
        self.writer.call(owner, bytes, (name, value, flag), |conn, (name, value, flag)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let (sql, arg) = match value {
                    Some(bytes) => (&context.sql.accounts.set_credentials, Arg::Bytes(bytes)),
                    None => (&context.sql.accounts.set_disabled, Arg::Int(i64::from(*flag))),
                };
                Ok(conn.execute(sql, &[arg, Arg::Text(name)]).await? > 0)
            })
        })
    }

    fn shown(&self, name: Box<str>) -> StoreFuture<'_, Option<AccountRecord>> {
        self.read(name, |conn, name| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn.fetch_optional(&context.sql.accounts.show, &[Arg::Text(name)]).await?;
                row.as_ref().map(shown).transpose()
            })
        })
    }

    fn page(
        &self,
        domain: &str,
        page: Page,
        sql: fn(&AccountStatements) -> &String,
    ) -> StoreFuture<'_, Paged<AccountRecord>> {
        let domain = domain.to_owned();
        self.read((domain, page, sql), |conn, (domain, page, sql)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let limit = u64::from(page.limit) + 1;
                let args = [Arg::Text(domain), Arg::number(page.after), Arg::number(limit)];
                let rows = conn.fetch_all(sql(&context.sql.accounts), &args).await?;
                let items: Result<Vec<AccountRecord>, StoreError> = rows.iter().map(shown).collect();
                Ok(Paged::from_rows(items?, *page, |account| u64::from(account.id.get())))
            })
        })
    }

    fn count_accounts(&self, domain: &str, sql: fn(&AccountStatements) -> &String) -> StoreFuture<'_, u64> {
        let domain = domain.to_owned();
        self.read((domain, sql), |conn, (domain, sql)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn.fetch_optional(sql(&context.sql.accounts), &[Arg::Text(domain)]).await?;
                row.map_or(Ok(0), |row| row.number(0))
            })
        })
    }

    fn create_chunks(&self, accounts: Vec<NewAccount>) -> StoreFuture<'_, Vec<CreateOutcome>> {
        let bytes = accounts.len() * 256;
        let created: StoreFuture<'_, Vec<CreateOutcome>> =
            self.writer
                .call(Owner::None, bytes, accounts, |conn, accounts| Box::pin(create_chunk(conn, accounts)));
        Box::pin(async move {
            let created = created.await?;
            // A session may have ended after an account of the same name was removed.
            let new = |created: &CreateOutcome| match created {
                CreateOutcome::New(id) => Some(*id),
                CreateOutcome::Exists(_) => None,
            };
            self.last_seen_writer.discard(created.iter().filter_map(new));
            Ok(created)
        })
    }
}

impl Accounts for SqlStores {
    fn create(&self, account: &Jid, credentials: &[u8]) -> StoreFuture<'_, AddressId> {
        let jid = account.as_ref().bare().to_jid();
        let created = self.create_chunks(vec![NewAccount { jid, credentials: credentials.into() }]);
        Box::pin(async move {
            match created.await?.first() {
                Some(CreateOutcome::New(id)) => Ok(*id),
                Some(CreateOutcome::Exists(_)) => {
                    Err(StoreError::new(StoreErrorKind::AlreadyExists, "the account already exists"))
                }
                None => Err(corrupt("an inserted account is missing from the database")),
            }
        })
    }

    fn create_bulk(&self, accounts: Vec<NewAccount>) -> StoreFuture<'_, Vec<CreateOutcome>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(accounts.len());
            let mut accounts = accounts.into_iter();
            loop {
                let chunk: Vec<NewAccount> = accounts.by_ref().take(ROWS_PER_TRANSACTION).collect();
                if chunk.is_empty() {
                    return Ok(answers);
                }
                answers.append(&mut self.create_chunks(chunk).await?);
            }
        })
    }

    fn remove(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<RemovedAccount>> {
        let name = bare(account);
        let removed: StoreFuture<'_, Option<RemovedAccount>> =
            self.writer.call(Owner::Name(name.clone()), 64, name, |conn, name| Box::pin(remove(conn, name)));
        Box::pin(async move {
            let removed = removed.await?;
            self.last_seen_writer.discard(removed.as_ref().map(|removed| removed.id));
            Ok(removed)
        })
    }

    fn set_credentials(&self, account: JidRef<'_>, credentials: &[u8]) -> StoreFuture<'_, bool> {
        self.update(bare(account), Some(credentials.to_vec()), false)
    }

    fn set_disabled(&self, account: JidRef<'_>, disabled: bool) -> StoreFuture<'_, bool> {
        self.update(bare(account), None, disabled)
    }

    fn get(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountRecord>> {
        self.shown(bare(account))
    }

    fn upgrade_credentials(
        &self,
        account: JidRef<'_>,
        expected: &[u8],
        credentials: &[u8],
    ) -> StoreFuture<'_, bool> {
        let (name, expected, new) = (bare(account), expected.to_vec(), credentials.to_vec());
        let bytes = expected.len() + new.len() + 64;
        let owner = Owner::Name(name.clone());
        self.writer.call(owner, bytes, (name, expected, new), |conn, (name, expected, new)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Bytes(new), Arg::Text(name), Arg::Bytes(expected)];
                Ok(conn.execute(&context.sql.accounts.upgrade, &args).await? > 0)
            })
        })
    }

    fn list(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>> {
        self.page(domain, page, |texts| &texts.list)
    }

    fn count(&self, domain: &str) -> StoreFuture<'_, u64> {
        self.count_accounts(domain, |texts| &texts.count)
    }

    fn list_disabled(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>> {
        self.page(domain, page, |texts| &texts.list_disabled)
    }

    fn count_disabled(&self, domain: &str) -> StoreFuture<'_, u64> {
        self.count_accounts(domain, |texts| &texts.count_disabled)
    }

    fn exists(&self, account: JidRef<'_>) -> StoreFuture<'_, bool> {
        let shown = self.shown(bare(account));
        Box::pin(async move { Ok(shown.await?.is_some()) })
    }
}
