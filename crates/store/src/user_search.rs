//! User search (XEP-0055 1.3) over any number of accounts, in pages for XEP-0059 1.0.
//!
//! Terms are prefixes. Texts and terms are first folded into keys ([`search_key`]): case is ignored, accents are not,
//! and there are no wildcards. Results are ordered by one key: that of the longest term's field, of the user name
//! without a term, and the smallest matching key for a term over all fields. A backend can therefore read one index in
//! order and stop after a page. [`SearchPlan`] is this decision, shared by all backends.
//!
//! Not implemented: words in the middle of a text, and fields beyond the six of XEP-0055.
//!
//! # Pitfalls
//!
//! A cursor belongs to its query. With another query it denotes a position in a different order.

use std::fmt;

use jid::{Jid, JidRef};
use unicode_normalization::UnicodeNormalization;

use crate::{AddressId, SearchableProfile, StoreError, StoreErrorKind, StoreFuture};

/// Maximum value of a count.
pub const MAX_COUNT: u64 = 10_000;

/// Maximum number of users on one page.
pub const MAX_PAGE_SIZE: u32 = 1000;

/// Maximum key length in characters; texts and terms are truncated to it.
pub const MAX_KEY_CHARS: usize = 64;

/// Greater than any key.
const MAX_KEY_CHAR: char = '\u{10ffff}';

/// Search terms: prefixes that must all match. Without any term all accounts match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserQuery {
    /// The user name, the local part of the address.
    pub user: Option<String>,
    /// The formatted name.
    pub name: Option<String>,
    /// The given name.
    pub first: Option<String>,
    /// The family name.
    pub last: Option<String>,
    /// The nickname.
    pub nick: Option<String>,
    /// The email address.
    pub email: Option<String>,
    /// Any of the above.
    pub any: Option<String>,
}

/// Position of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Starts at the first user.
    First,
    /// Starts after the user with this cursor.
    After(String),
    /// Ends before the user with this cursor.
    Before(String),
    /// Ends at the last user.
    Last,
    /// Starts at the user with this index, counted from 0. From [`MAX_COUNT`] on the page is empty.
    Index(u32),
}

/// A page request. Users on a page are in ascending order for every [`Seek`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchPageRequest {
    /// Position of the page.
    pub seek: Seek,
    /// Maximum number of users; capped at [`MAX_PAGE_SIZE`].
    pub limit: u32,
}

/// A matching user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundUser {
    /// The bare address.
    pub jid: Jid,
    /// Texts from the vCard; all empty without one.
    pub shown: SearchableProfile,
    /// Position of this user in the order of this query, as text valid in XML. Stays valid after the user is removed.
    pub cursor: String,
}

/// A page of users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserSearchPage {
    /// In ascending order.
    pub users: Vec<FoundUser>,
    /// Whether there are more: before these for `Before` and `Last`, after them otherwise.
    pub more: bool,
}

storage_need! {
    /// User search.
    pub trait UserSearch in user_search {
        /// One page of the matching users of a domain. Fails with `NotFound` if the cursor is invalid, and with `TooBroad`
        /// if too many rows would have to be skipped.
        fn search(&self, domain: &str, query: &UserQuery, page: SearchPageRequest) -> StoreFuture<'_, UserSearchPage>;

        /// Number of matching users, counted up to [`MAX_COUNT`].
        fn count(&self, domain: &str, query: &UserQuery) -> StoreFuture<'_, u64>;

        /// Number of matching users before this cursor, counted up to [`MAX_COUNT`]. Fails like `search`.
        fn index(&self, domain: &str, query: &UserQuery, cursor: &str) -> StoreFuture<'_, u64>;
    }
}

/// A searchable field. The discriminants are indices into arrays of six.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchField {
    /// The local part.
    User = 0,
    /// The formatted name.
    Name = 1,
    /// The given name.
    First = 2,
    /// The family name.
    Last = 3,
    /// The nickname.
    Nick = 4,
    /// The email address.
    Email = 5,
}

impl SearchField {
    /// All fields. Of equally long terms the later field determines the order, because its texts tend to be rarer.
    pub const ALL: [SearchField; 6] = [
        SearchField::User,
        SearchField::Name,
        SearchField::First,
        SearchField::Last,
        SearchField::Nick,
        SearchField::Email,
    ];
}

/// The keys with a given prefix.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The smallest such key.
    pub from: String,
    /// Upper bound, greater than all of them.
    pub to: String,
}

impl KeyRange {
    /// All keys, the empty one included.
    pub fn all() -> KeyRange {
        KeyRange { from: String::new(), to: MAX_KEY_CHAR.into() }
    }

    fn with_prefix(term: String) -> KeyRange {
        let mut to = term.clone();
        let last = to.pop().and_then(|last| char::from_u32(last as u32 + 1).or(Some('\u{e000}')));
        to.push(last.unwrap_or(MAX_KEY_CHAR));
        KeyRange { from: term, to }
    }

    /// Whether the key is in the range.
    pub fn contains(&self, key: &str) -> bool {
        self.from.as_str() <= key && key < self.to.as_str()
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.from, self.to)
    }
}

/// Execution plan of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchPlan {
    /// Required ranges of the keys of the six fields.
    pub fields: [KeyRange; 6],
    /// At least one of these must match too.
    pub any: Option<[KeyRange; 6]>,
    /// Field whose key determines the order, without `any`.
    pub sort_field: SearchField,
}

impl UserQuery {
    /// The plan for this query.
    pub fn plan(&self) -> SearchPlan {
        let terms = [&self.user, &self.name, &self.first, &self.last, &self.nick, &self.email];
        let key = |field: SearchField, term: &str| match field {
            SearchField::User => username_search_key(term),
            _ => search_key(term),
        };
        let term = |field: SearchField, term: Option<&String>| {
            term.map(|term| key(field, term)).filter(|term| !term.is_empty())
        };
        let mut plan = SearchPlan {
            fields: std::array::from_fn(|_| KeyRange::all()),
            any: None,
            sort_field: SearchField::User,
        };
        let mut longest = 0;
        for field in SearchField::ALL {
            let Some(term) = term(field, terms[field as usize].as_ref()) else { continue };
            let length = term.chars().count();
            if length >= longest {
                (longest, plan.sort_field) = (length, field);
            }
            plan.fields[field as usize] = KeyRange::with_prefix(term);
        }
        if term(SearchField::Name, self.any.as_ref()).is_some() {
            let any = self.any.as_deref().unwrap_or_default();
            plan.any = Some(SearchField::ALL.map(|field| KeyRange::with_prefix(key(field, any))));
        }
        plan
    }
}

impl SearchPlan {
    /// The sort key of an account with these six keys, or `None` if it does not match.
    pub fn sort_key<'a>(&self, keys: &[&'a str; 6]) -> Option<&'a str> {
        if !self.fields.iter().zip(keys).all(|(range, key)| range.contains(key)) {
            return None;
        }
        match &self.any {
            None => Some(keys[self.sort_field as usize]),
            Some(any) => {
                any.iter().zip(keys).filter(|(range, key)| range.contains(key)).map(|(_, key)| *key).min()
            }
        }
    }
}

/// The key of a text: ignores case, collapses white space into one space, equates composed and decomposed accents, at
/// most [`MAX_KEY_CHARS`].
pub fn search_key(text: &str) -> String {
    let mut folded = String::new();
    let mut gap = false;
    for char in text.chars().take(MAX_KEY_CHARS * 4) {
        if char.is_whitespace() || char.is_control() || char == MAX_KEY_CHAR {
            gap = !folded.is_empty();
            continue;
        }
        if std::mem::take(&mut gap) {
            folded.push(' ');
        }
        // To upper case and back, so that ß matches ss and both small sigmas are equal.
        folded.extend(char.to_uppercase().flat_map(char::to_lowercase));
    }
    let mut key: String = folded.nfc().take(MAX_KEY_CHARS).collect();
    key.truncate(key.trim_end().len());
    key
}

/// The key of a user name, or of a prefix of one: as an address would normalise it.
pub fn username_search_key(text: &str) -> String {
    let text = text.trim();
    match jid::prepare_local(text) {
        Ok(local) => local.into_owned(),
        Err(_) => search_key(text),
    }
}

/// The six keys of an account.
pub fn account_search_keys(user: &str, shown: &SearchableProfile) -> [String; 6] {
    [
        user.to_owned(),
        search_key(&shown.name),
        search_key(&shown.first),
        search_key(&shown.last),
        search_key(&shown.nick),
        search_key(&shown.email),
    ]
}

/// Encodes a cursor.
pub fn encode_cursor(id: AddressId, key: &str) -> String {
    format!("{} {key}", id.get())
}

/// Decodes a cursor: the key and the id of the account.
///
/// # Errors
/// `NotFound` if it is not a cursor.
pub fn decode_cursor(cursor: &str) -> Result<(String, AddressId), StoreError> {
    let parts = cursor
        .split_once(' ')
        .and_then(|(id, key)| Some((key.to_owned(), AddressId::new(id.parse().ok()?)?)));
    parts.ok_or_else(|| StoreError::new(StoreErrorKind::NotFound, "this position is not in the list"))
}

/// The local part of an account's address; empty if it has none.
pub fn local_part(jid: JidRef<'_>) -> &str {
    jid.local().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(term: &str) -> KeyRange {
        KeyRange::with_prefix(term.to_owned())
    }

    #[test]
    fn keys_fold_case_but_keep_accents() {
        for (text, key) in [
            ("Romeo  Montague\n", "romeo montague"),
            ("Änne", "änne"),
            ("A\u{308}nne", "änne"),
            ("Straße", "strasse"),
            ("ΟΔΟΣ", "οδοσ"),
            ("οδος", "οδοσ"),
            ("İ", "i\u{307}"),
            ("ſ", "s"),
            ("𐐀", "𐐨"),
            (" \u{0}\t", ""),
            ("%_*\\", "%_*\\"),
            ("\u{10ffff}x", "x"),
        ] {
            assert_eq!(search_key(text), key, "{text:?}");
            assert_eq!(search_key(&search_key(text)), key, "{text:?} again");
        }
        assert_eq!(search_key(&"x".repeat(100_000)).len(), MAX_KEY_CHARS);
        assert_eq!(search_key(&format!("{} y", "x".repeat(63))).len(), 63, "no space is left at the cut");
    }

    #[test]
    fn a_range_contains_exactly_the_keys_with_the_prefix() {
        let texts = [
            "",
            "a",
            "a\u{10fffe}",
            "ab",
            "b",
            "\u{d7ff}",
            "\u{d7ff}z",
            "\u{e000}",
            "\u{10fffe}",
            "😀",
            "😁",
        ];
        for term in ["a", "ab", "\u{d7ff}", "\u{10fffe}", "😀"] {
            for text in texts {
                assert_eq!(range(term).contains(text), text.starts_with(term), "{term:?} {text:?}");
            }
        }
        assert!(texts.iter().all(|text| KeyRange::all().contains(text)));
    }

    #[test]
    fn results_are_sorted_by_the_field_of_the_longest_term() {
        let text = |text: &str| Some(text.to_owned());
        let query =
            UserQuery { user: text("ro"), first: text("Rom"), email: text(" "), ..UserQuery::default() };
        let plan = query.plan();
        assert_eq!(plan.sort_field, SearchField::First);
        assert_eq!(plan.fields[SearchField::Email as usize], KeyRange::all(), "an empty term is none");
        assert_eq!(plan.sort_key(&["romeo", "", "romeo x", "", "", ""]), Some("romeo x"));
        assert_eq!(plan.sort_key(&["julia", "", "romeo x", "", "", ""]), None);
        assert_eq!(UserQuery::default().plan().sort_key(&["", "z", "", "", "", ""]), Some(""));
    }

    #[test]
    fn a_search_over_all_fields_uses_the_smallest_matching_key() {
        let query = UserQuery { any: Some("Ro".into()), ..UserQuery::default() };
        assert_eq!(query.plan().sort_key(&["romeo", "aaa", "rob", "", "", "roz"]), Some("rob"));
        assert_eq!(query.plan().sort_key(&["juliet", "aaa", "", "", "", ""]), None);
    }

    #[test]
    fn cursors_decode_to_what_was_encoded() {
        let id = AddressId::new(7).unwrap();
        for key in ["", "a", "a b", "日本 語"] {
            assert_eq!(decode_cursor(&encode_cursor(id, key)).unwrap(), (key.to_owned(), id));
        }
        for wrong in ["", "x", "0 a", "a b", "99999999999 a"] {
            assert_eq!(decode_cursor(wrong).unwrap_err().kind, StoreErrorKind::NotFound, "{wrong:?}");
        }
    }
}
