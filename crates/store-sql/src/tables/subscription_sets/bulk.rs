//! Members that are added to sets of one side, many at a time.
//!
//! Sets that have no chunk yet, as those of a bulk in the order of their numbers, are written without reading.

use store::number_chunk::{Growth, divide};
use store::subscription_sets::SidedSet;
use store::{StoreError, SubscriptionSide};

use super::chunk_table::{ChunkRows, change};
use super::keys::{keys_between, keys_of};
use super::lock;
use crate::dialect::{Arg, DbConnection};

/// Members that are changed together in sets that have some.
const CHANGED_AT_ONCE: usize = 16_384;

pub(super) async fn add(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    sets: &[SidedSet],
) -> Result<(), StoreError> {
    lock(conn).await?;
    let numbers = || sets.iter().map(|set| set.number);
    let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else { return Ok(()) };
    // A set that is named twice must be read the second time.
    let are_new = sets.is_sorted_by(|one, next| one.number < next.number)
        && is_empty(conn, side, keys_between(first, last)).await?;
    let mut rows = ChunkRows::default();
    for set in sets {
        if are_new || is_empty(conn, side, keys_of(set.number)).await? {
            rows.push(*keys_of(set.number).start(), divide(&set.members, Growth::Anywhere));
        } else {
            for part in set.members.chunks(CHANGED_AT_ONCE) {
                let changes: Vec<_> = part.iter().map(|member| (set.number, *member, true)).collect();
                change(conn, side, &changes).await?;
            }
        }
        if !are_new {
            std::mem::take(&mut rows).write(conn, side).await?;
        }
    }
    rows.write(conn, side).await
}

/// Whether there is no chunk with a key of a range.
async fn is_empty(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    keys: std::ops::RangeInclusive<u64>,
) -> Result<bool, StoreError> {
    let context = conn.context.clone();
    let args = [Arg::number(*keys.start()), Arg::number(*keys.end())];
    let sql = context.sql.subscription_sets.side(side).any();
    Ok(conn.fetch_optional(sql, &args).await?.is_none())
}
