//! The statement behind every login: account, roster and waiting count of many accounts at once, as one text.
//!
//! A row is what costs most on the way out of SQLite's thread, for its reader is woken for each and each column is copied
//! twice. So everything comes in a single one.
//!
//! ```text
//! answer = block *(LF block)
//! block  = head LF *(line LF)
//! head   = jid SP id SP disabled SP version SP waiting 4(SP *HEXDIG)    credentials, blocklist, tokens, photo in hexadecimal
//! line   = contact SP subscription SP *HEXDIG SP *HEXDIG SP jid         label and request in hexadecimal
//! ```
//! Bare addresses contain neither spaces nor line feeds, so nothing is escaped. Blocks and lines come in any order.
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

const LINE_FEED: &str = "char(10)";

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
                let head = format!(
                    "a.jid || ' ' || c.id || ' ' || c.disabled || ' ' || c.roster_version || ' ' \
                     || coalesce(i.waiting, 0) || ' ' || {} || ' ' || {} || ' ' || {} || ' ' || {}",
                    d.hex("c.credentials"),
                    d.hex("c.blocklist"),
                    d.hex("c.tokens"),
                    d.hex("c.photo")
                );
                let lines = roster_lines(d, "c.id");
                let block = format!("{head} || {LINE_FEED} || coalesce({lines} || {LINE_FEED}, '')");
                d.sql(&format!(
                    "SELECT {} FROM address a JOIN account c ON c.id = a.id \
                     LEFT JOIN inbox i ON i.owner = c.id WHERE a.jid IN ({})",
                    d.join_lines(&block),
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
    let mut found = Vec::with_capacity(accounts.len());
    for row in &rows {
        let Some(text) = row.maybe_text(0)? else { continue };
        for block in text.split("\n\n") {
            let (head, lines) = block.split_once('\n').unwrap_or((block, ""));
            let (name, head) = head.split_once(' ').ok_or_else(wrong_account)?;
            found.push((name.into(), login(head, lines)));
        }
    }
    Ok(found)
}

fn wrong_account() -> StoreError {
    corrupt("the database holds a wrong account")
}

fn login(head: &str, lines: &str) -> Result<Login, StoreError> {
    let mut parts = head.split(' ');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(wrong_account);
    let (id, disabled) = (id(number()?)?, number()? != 0);
    let (roster_version, waiting) = (number()?, number()?);
    let mut bytes = || parts.next().and_then(label::unhex).ok_or_else(wrong_account);
    let (credentials, blocklist, tokens, photo) = (bytes()?, bytes()?, bytes()?, bytes()?);
    let photo = if photo.is_empty() { None } else { Some(photo.try_into().map_err(|_| wrong_account())?) };
    let lines = lines.strip_suffix('\n').unwrap_or(lines);
    let roster = roster((!lines.is_empty()).then_some(lines))?;
    let offline = u32::try_from(waiting).unwrap_or(u32::MAX);
    Ok(Login { id, credentials, disabled, roster, roster_version, offline, blocklist, tokens, photo })
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
