//! The statement behind every login: account, roster and waiting count in one row each, for many accounts at once.
//!
//! The roster comes as one text, a line a contact: rows are what costs most on the way out of SQLite's thread (measured
//! with 3 contacts in groups of 64: 8 µs as one row, 13 µs as four).
//!
//! ```text
//! line = contact SP subscription SP *HEXDIG SP *HEXDIG SP jid     label and request in hexadecimal
//! ```
//! A bare address contains no line feed, so the line needs no escapes. The lines come in any order.
use jid::JidRef;
use store::{Fut, Login, Logins, RosterItem, StoreError, Subscription};

use super::{address, id};
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Sizes, marks};
use crate::fault::corrupt;
use crate::label;

pub(crate) struct Texts {
    login: Sizes,
}

/// An expression that is the whole roster of `owner` as lines.
pub(super) fn roster_lines(d: &dyn Dialect, owner: &str) -> String {
    let line = format!(
        "r.contact || ' ' || r.subscription || ' ' || {} || ' ' || {} || ' ' || j.jid",
        d.hex("r.label"),
        d.hex("r.request")
    );
    format!(
        "(SELECT {} FROM roster r JOIN address j ON j.id = r.contact WHERE r.owner = {owner})",
        d.join_lines(&line)
    )
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            login: Sizes::new(|n| {
                d.sql(&format!(
                    "SELECT a.jid, c.id, c.disabled, c.roster_version, c.credentials, i.waiting, {} \
                     FROM address a JOIN account c ON c.id = a.id LEFT JOIN inbox i ON i.owner = c.id \
                     WHERE a.jid IN ({})",
                    roster_lines(d, "c.id"),
                    marks(n)
                ))
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![self.login.holding(1).1, self.login.holding(64).1]
    }
}

/// A login, or why this one account cannot be read.
pub(crate) type Found = Vec<(Box<str>, Result<Login, StoreError>)>;

/// Reads these accounts with one statement; there are at most [`Sizes::MOST`].
pub(crate) async fn read(conn: &mut Conn, accounts: &[&str]) -> Result<Found, StoreError> {
    let names: Vec<Arg<'_>> = accounts.iter().copied().map(Arg::Text).collect();
    let kit = conn.kit.clone();
    let rows = conn.rows_in(&kit.logins.login, &names).await?;
    rows.iter().map(|row| Ok((row.text(0)?.into(), login(row)))).collect()
}

fn login(row: &crate::dialect::Row) -> Result<Login, StoreError> {
    Ok(Login {
        id: id(row.number(1)?)?,
        disabled: row.number(2)? != 0,
        roster_version: row.number(3)?,
        credentials: row.bytes(4)?.to_vec(),
        offline: u32::try_from(row.maybe_number(5)?.unwrap_or(0)).unwrap_or(u32::MAX),
        roster: roster(row.maybe_text(6)?)?,
    })
}

/// A roster out of its lines, ordered by contact.
pub(super) fn roster(lines: Option<&str>) -> Result<Vec<RosterItem>, StoreError> {
    let Some(lines) = lines else { return Ok(Vec::new()) };
    let count = lines.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let mut items = Vec::with_capacity(count);
    for line in lines.split('\n') {
        items.push(item(line)?.ok_or_else(|| corrupt("the database holds a wrong roster entry"))?);
    }
    items.sort_unstable_by_key(|item: &RosterItem| item.contact);
    Ok(items)
}

fn item(line: &str) -> Result<Option<RosterItem>, StoreError> {
    let mut parts = line.splitn(5, ' ');
    let mut part = || parts.next().unwrap_or_default();
    let (Ok(contact), Ok(bits)) = (part().parse(), part().parse()) else { return Ok(None) };
    let Some(subscription) = Subscription::from_bits(bits) else { return Ok(None) };
    let (label, request) = (part(), part());
    let labels = label::unhex(label).and_then(|label| label::decode(&label));
    let Some((name, groups)) = labels else { return Ok(None) };
    let request = match request {
        "" => None,
        some => match label::unhex(some) {
            None => return Ok(None),
            some => some,
        },
    };
    let jid = address(part())?;
    Ok(Some(RosterItem { contact: id(contact)?, jid, name, groups, subscription, request }))
}

impl Logins for SqlStores {
    fn login(&self, account: JidRef<'_>) -> Fut<'_, Option<Login>> {
        self.lanes.login(account.bare().as_str())
    }
}
