//! Cursor-based paging, the same for every list.
//!
//! No specification; features map XEP-0059 onto it. Cursors are keys, not offsets, so that rows inserted or removed
//! between two pages neither duplicate nor hide others.
//!
//! Not implemented: paging backwards.

/// A page request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Return only items after this key; 0 starts at the beginning, because keys start at 1.
    pub after: u64,
    /// Maximum number of items; 0 returns an empty page that reports whether there are more.
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
    /// The `after` of the next page; absent on the last page.
    pub next: Option<u64>,
}

impl<T> Paged<T> {
    /// Builds a page from up to `page.limit + 1` items; the extra one shows that there are more.
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
    fn a_page_reports_whether_there_is_more() {
        let cut = |n: u64, limit| Paged::from_rows((1..=n).collect(), Page::after(0, limit), |k| *k);
        assert_eq!(cut(3, 2), Paged { items: vec![1, 2], next: Some(2) });
        assert_eq!(cut(2, 2), Paged { items: vec![1, 2], next: None });
        assert_eq!(cut(0, 2), Paged { items: vec![], next: None });
        assert_eq!(cut(1, 0), Paged { items: vec![], next: Some(0) });
    }
}
