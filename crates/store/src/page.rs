//! Paging, the same for every list: a cursor and a limit in, items and the next cursor out.
//!
//! No specification; XEP-0059 is mapped onto it by features. Cursors are keys, not offsets, so that rows added or removed
//! between two pages neither repeat nor hide others. Left out: going backwards, which no need asks for yet.

/// Which part of a list is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Only what stands behind this key; 0 means from the start, for keys begin at 1.
    pub after: u64,
    /// At most so many items; 0 is answered with an empty slice that says whether there is more.
    pub limit: u32,
}

impl Page {
    /// The first `limit` items.
    pub const fn first(limit: u32) -> Page {
        Page { after: 0, limit }
    }

    /// The first `limit` items whose key is greater than `after`.
    pub const fn after(after: u64, limit: u32) -> Page {
        Page { after, limit }
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paged<T> {
    /// The items in the order of their keys.
    pub items: Vec<T>,
    /// The `after` of the next page; absent when this was the last one.
    pub next: Option<u64>,
}

impl<T> Paged<T> {
    /// Cuts one page out of up to `page.limit + 1` items, the extra one telling that there is more.
    pub fn from_rows(mut items: Vec<T>, page: Page, key: impl Fn(&T) -> u64) -> Paged<T> {
        let limit = page.limit as usize;
        let next = (items.len() > limit).then(|| {
            items.truncate(limit);
            items.last().map_or(page.after, key)
        });
        Paged { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_knows_whether_there_is_more() {
        let cut = |n: u64, limit| Paged::from_rows((1..=n).collect(), Page::after(0, limit), |k| *k);
        assert_eq!(cut(3, 2), Paged { items: vec![1, 2], next: Some(2) });
        assert_eq!(cut(2, 2), Paged { items: vec![1, 2], next: None });
        assert_eq!(cut(0, 2), Paged { items: vec![], next: None });
        assert_eq!(cut(1, 0), Paged { items: vec![], next: Some(0) });
    }
}
