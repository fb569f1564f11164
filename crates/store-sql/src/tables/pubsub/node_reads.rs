//! Reads of one node: everything that it has but payloads and plain subscriptions, its record only, and its items.

use std::collections::BTreeMap;

use store::StoreError;
use store::pubsub::{PubSubItem, PubSubItemHead, PubSubNodeRecord, StoredPubSubNode, items_that_fit};

use super::{NodeName, address, find, head, node_number, record, small, special, with_node};
use crate::dialect::{Arg, DbConnection, SizedStatement, SqlRow};

pub(super) async fn load(
    conn: &mut DbConnection,
    node: &NodeName,
) -> Result<Option<StoredPubSubNode>, StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let args = [Arg::Text(&node.service), Arg::Bytes(node.name.as_bytes())];
    let Some(row) = conn.fetch_optional(&sql.load, &args).await? else { return Ok(None) };
    let record = record(&row)?;
    let key = [Arg::number(row.number(0)?)];
    let rows = conn.fetch_all(&sql.affiliations, &key).await?;
    let affiliation = |row: &SqlRow| Ok((address(row.text(0)?)?, small(row.number(1)?)?));
    let affiliations = rows.iter().map(affiliation).collect::<Result<_, StoreError>>()?;
    let rows = conn.fetch_all(&sql.special, &key).await?;
    let special = rows.iter().map(|row| special(row, 0)).collect::<Result<_, StoreError>>()?;
    let rows = conn.fetch_all(&sql.heads, &key).await?;
    let items = rows.iter().map(head).collect::<Result<_, StoreError>>()?;
    let number = node_number(row.number(0)?)?;
    Ok(Some(StoredPubSubNode { number, record, affiliations, special, items }))
}

pub(super) async fn record_of(
    conn: &mut DbConnection,
    (node, entity): &(NodeName, Box<str>),
) -> Result<Option<(PubSubNodeRecord, Option<u8>)>, StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let args = [Arg::Text(&node.service), Arg::Bytes(node.name.as_bytes())];
    let Some(row) = conn.fetch_optional(&sql.load, &args).await? else { return Ok(None) };
    let args = [Arg::Text(entity), Arg::number(row.number(0)?)];
    let affiliation = conn.fetch_optional(&sql.affiliation, &args).await?;
    let affiliation = affiliation.map(|row| small(row.number(0)?)).transpose()?;
    Ok(Some((record(&row)?, affiliation)))
}

pub(super) async fn newest_items(
    conn: &mut DbConnection,
    (node, limit): &(NodeName, u32),
) -> Result<Vec<PubSubItemHead>, StoreError> {
    let Some(number) = find(conn, node).await? else { return Ok(Vec::new()) };
    let context = conn.context.clone();
    let args = [Arg::number(number), Arg::number((*limit).into())];
    let rows = conn.fetch_all(&context.sql.pubsub.newest_heads, &args).await?;
    rows.iter().rev().map(head).collect()
}

pub(super) async fn items(
    conn: &mut DbConnection,
    node: &NodeName,
    seqs: &[u64],
) -> Result<Vec<PubSubItem>, StoreError> {
    let Some(number) = find(conn, node).await? else { return Ok(Vec::new()) };
    let context = conn.context.clone();
    let args: Vec<Arg<'_>> = seqs.iter().copied().map(Arg::number).collect();
    let mut found = BTreeMap::new();
    for part in args.chunks(SizedStatement::MAX) {
        let (size, text) = context.sql.pubsub.items.at_least(part.len());
        let rows = conn.fetch_all(text, &with_node(Arg::number(number), part, size)).await?;
        for row in &rows {
            let item = PubSubItem { head: head(row)?, payload: row.bytes(4)?.to_vec() };
            found.insert(item.head.seq, item);
        }
    }
    Ok(found.into_values().collect())
}

/// Their sizes decide which payloads are read.
pub(super) async fn items_within(
    conn: &mut DbConnection,
    node: &NodeName,
    seqs: &[u64],
    bytes: u64,
    from_end: bool,
) -> Result<Vec<PubSubItem>, StoreError> {
    let Some(number) = find(conn, node).await? else { return Ok(Vec::new()) };
    let context = conn.context.clone();
    let args: Vec<Arg<'_>> = seqs.iter().copied().map(Arg::number).collect();
    let mut sizes = BTreeMap::new();
    for part in args.chunks(SizedStatement::MAX) {
        let (size, text) = context.sql.pubsub.item_sizes.at_least(part.len());
        for row in &conn.fetch_all(text, &with_node(Arg::number(number), part, size)).await? {
            sizes.insert(row.number(0)?, row.number(1)?);
        }
    }
    let (seqs, sizes): (Vec<u64>, Vec<u64>) = sizes.into_iter().unzip();
    let wanted = seqs.get(items_that_fit(&sizes, bytes, from_end)).unwrap_or_default();
    items(conn, node, wanted).await
}
