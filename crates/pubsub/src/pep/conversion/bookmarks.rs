//! Bookmarks of rooms: as items (XEP-0402 1.2.0, section 5.3), as a list in one item (XEP-0048 1.2, section 3), and the same list
//! in private XML (XEP-0411 1.1.0, section 3).
//!
//! The list is written anew when items have changed, with what it has besides rooms; items that differ are published and retracted
//! when a list has changed, with their extensions, which lists cannot have.
//!
//! Which places agreed after the last conversion, and on what, is stored ([`AgreedPlaces`]). If one of them has changed since, the others
//! follow it. Otherwise the bookmarks are merged: what only an older client, an import, a place that was not private, or another
//! client at the same time has stored must not be lost.
//!
//! # Pitfalls
//!
//! Bookmarks are private: a node to which others have access, also by an affiliation, is not written (XEP-0411, section 5).

use std::collections::BTreeMap;

use feature_api::account_data::{PrivateXmlOutcome, SharedPrivateXml};
use store::{AccountKvLimits, PubSubItemHead, StoreError};

use super::bookmark_formats::{BookmarkItem, BookmarkList, BookmarkMap};
use super::{BOOKMARKS, Conversion, ConversionError, ConvertedNode, STORAGE};

/// Bookmarks that are converted; those of accounts with more are not.
const MAX_BOOKMARKS: usize = 1_000;
/// Items that are read at once.
const PAGE: usize = 50;
/// Bytes of all bookmarks.
const MAX_BYTES: usize = 1 << 20;
/// Items of one request, unless the option is lower.
const BATCH: usize = 20;
/// Id of the item with all bookmarks.
const CURRENT: &str = "current";
/// Key of [`AgreedPlaces`].
const AGREED: &str = "throng:bookmarks-agreed";

/// Configuration of both nodes: XEP-0223, section 4, and XEP-0402, section 3.3.
const PRIVATE: &[(&str, &str)] = &[("pubsub#access_model", "whitelist"), ("pubsub#persist_items", "true")];
const PRIVATE_ITEMS: &[(&str, &str)] = &[
    ("pubsub#access_model", "whitelist"),
    ("pubsub#persist_items", "true"),
    ("pubsub#max_items", "max"),
    ("pubsub#send_last_published_item", "never"),
];

/// Where bookmarks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BookmarkPlace {
    Items,
    Storage,
    PrivateXml,
}

impl BookmarkPlace {
    /// All, and their letters. Of merged bookmarks, the first place decides.
    const ALL: [(BookmarkPlace, char); 3] =
        [(BookmarkPlace::Items, 'i'), (BookmarkPlace::Storage, 's'), (BookmarkPlace::PrivateXml, 'x')];
}

/// The places with the same bookmarks after the last conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AgreedPlaces {
    /// Their letters.
    places: String,
    /// Of the bookmarks.
    digest: u64,
}

impl AgreedPlaces {
    fn read(text: &str) -> Option<AgreedPlaces> {
        let (places, digest) = text.split_once(' ')?;
        Some(AgreedPlaces { places: places.to_owned(), digest: u64::from_str_radix(digest, 16).ok()? })
    }

    fn text(&self) -> String {
        format!("{} {:016x}", self.places, self.digest)
    }
}

/// Tells whether bookmarks have changed: FNV-1a of the list.
fn digest(rooms: &BookmarkMap) -> u64 {
    let list = BookmarkList::write(rooms, &[]);
    list.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A list as it is stored.
struct StoredBookmarkList {
    bytes: Option<Vec<u8>>,
    /// What it contains, if it can be read.
    list: Option<BookmarkList>,
}

impl StoredBookmarkList {
    fn new(bytes: Option<Vec<u8>>) -> StoredBookmarkList {
        let list = bytes.as_deref().and_then(BookmarkList::read);
        StoredBookmarkList { bytes, list }
    }

    fn rooms(&self) -> Option<&BookmarkMap> {
        self.list.as_ref().map(|list| &list.rooms)
    }

    fn others(&self) -> &[Vec<u8>] {
        self.list.as_ref().map(|list| list.others.as_slice()).unwrap_or_default()
    }
}

/// The bookmarks of an account in all places.
struct StoredBookmarks {
    storage_node: Option<ConvertedNode>,
    storage: StoredBookmarkList,
    has_private_xml: bool,
    private_xml: StoredBookmarkList,
    items_node: Option<ConvertedNode>,
    items: BTreeMap<String, BookmarkItem>,
}

impl StoredBookmarks {
    /// The rooms of a place; `None`: there is nothing that can be read.
    fn rooms(&self, place: BookmarkPlace) -> Option<BookmarkMap> {
        match place {
            BookmarkPlace::Storage => self.storage.rooms().cloned(),
            BookmarkPlace::PrivateXml => self.private_xml.rooms().cloned(),
            BookmarkPlace::Items => {
                let rooms = self.items.iter().map(|(jid, item)| (jid.clone(), item.bookmark.clone()));
                Some(rooms.collect())
            }
        }
    }

    fn list(&self, place: BookmarkPlace) -> Option<&StoredBookmarkList> {
        match place {
            BookmarkPlace::Storage => Some(&self.storage),
            BookmarkPlace::PrivateXml => Some(&self.private_xml),
            BookmarkPlace::Items => None,
        }
    }

    /// Whether a conversion may write this number of bookmarks to a place.
    fn is_writable(&self, place: BookmarkPlace, count: usize) -> bool {
        let of_node = |node: &Option<ConvertedNode>, count: usize| {
            node.as_ref().is_none_or(|node| node.is_private && count <= node.item_limit)
        };
        match place {
            BookmarkPlace::Storage => of_node(&self.storage_node, 1),
            BookmarkPlace::PrivateXml => self.has_private_xml,
            BookmarkPlace::Items => of_node(&self.items_node, count),
        }
    }

    /// The bookmarks of all places that a conversion may write, and of its source, which decides.
    fn merged(&self, source: Option<BookmarkPlace>) -> BookmarkMap {
        let writable = BookmarkPlace::ALL.iter().map(|(place, _)| *place);
        let writable = writable.filter(|place| self.is_writable(*place, 0));
        let mut merged = BookmarkMap::new();
        for place in source.into_iter().chain(writable) {
            for (jid, bookmark) in self.rooms(place).unwrap_or_default() {
                merged.entry(jid).or_insert(bookmark);
            }
        }
        merged
    }

    fn is_empty(&self) -> bool {
        let is_empty = |list: &StoredBookmarkList| {
            list.list.as_ref().is_none_or(|list| list.rooms.is_empty() && list.others.is_empty())
        };
        self.items.is_empty() && is_empty(&self.storage) && is_empty(&self.private_xml)
    }
}

/// What a conversion wants.
struct WantedBookmarks {
    /// The place whose change is converted; `None`: a first conversion.
    source: Option<BookmarkPlace>,
    /// The places that agree afterwards.
    agreed: AgreedPlaces,
    /// Only the source has changed: what it does not have is removed.
    only_source_changed: bool,
    rooms: BookmarkMap,
    others: Vec<Vec<u8>>,
    /// The list, as it is written.
    list_payload: Vec<u8>,
}

impl WantedBookmarks {
    fn new(
        stored: &StoredBookmarks,
        source: Option<BookmarkPlace>,
        before: Option<&AgreedPlaces>,
    ) -> Option<WantedBookmarks> {
        let merged = stored.merged(source);
        let is_writable = |place| stored.is_writable(place, merged.len());
        let places = BookmarkPlace::ALL.iter().filter(|(place, _)| is_writable(*place));
        let places: String = places.map(|(_, letter)| *letter).collect();
        let digest_of = |place| digest(&stored.rooms(place).unwrap_or_default());
        let of_source = source.map(digest_of);
        // Some clients change several places at once.
        let is_unchanged = |before: &AgreedPlaces| {
            let mut agreed = BookmarkPlace::ALL.iter().filter(|(_, letter)| places.contains(*letter));
            agreed.all(|(place, letter)| {
                let now = digest_of(*place);
                before.places.contains(*letter) && (now == before.digest || Some(now) == of_source)
            })
        };
        let letter = BookmarkPlace::ALL.iter().find(|(place, _)| Some(*place) == source);
        let only_source_changed =
            letter.is_some_and(|(_, letter)| places.contains(*letter)) && before.is_some_and(is_unchanged);
        let rooms = if only_source_changed { stored.rooms(source?)? } else { merged };
        let lists = [source, Some(BookmarkPlace::Storage), Some(BookmarkPlace::PrivateXml)];
        let mut lists = lists.into_iter().flatten().filter_map(|place| stored.list(place));
        let others = match only_source_changed {
            true => {
                lists.find(|list| list.list.is_some()).map(|list| list.others().to_vec()).unwrap_or_default()
            }
            false => lists.flat_map(StoredBookmarkList::others).fold(Vec::new(), |mut all, other| {
                if !all.contains(other) {
                    all.push(other.clone());
                }
                all
            }),
        };
        // A list that is as it should be is copied as it is.
        let is_wanted = |list: &&BookmarkList| list.rooms == rooms && list.others == others;
        let from_source = source.and_then(|source| stored.list(source));
        let as_it_is = from_source.filter(|stored| stored.list.as_ref().filter(is_wanted).is_some());
        let as_it_is = as_it_is.and_then(|stored| stored.bytes.clone());
        let list_payload = as_it_is.unwrap_or_else(|| BookmarkList::write(&rooms, &others));
        let agreed = AgreedPlaces { places, digest: digest(&rooms) };
        Some(WantedBookmarks { source, agreed, only_source_changed, rooms, others, list_payload })
    }

    /// Whether a list must be written.
    fn differs(&self, place: BookmarkPlace, stored: &StoredBookmarkList) -> bool {
        let is_of_list = self.source.is_some_and(|source| source != BookmarkPlace::Items);
        match &stored.list {
            _ if self.only_source_changed && self.source == Some(place) => false,
            // Lists are copied as they are.
            Some(_) if self.only_source_changed && is_of_list => {
                stored.bytes.as_ref() != Some(&self.list_payload)
            }
            Some(list) if self.only_source_changed => list.rooms != self.rooms,
            Some(list) => list.rooms != self.rooms || list.others != self.others,
            None => !self.rooms.is_empty() || !self.others.is_empty(),
        }
    }
}

impl Conversion<'_> {
    /// The places that agreed after the last conversion.
    async fn agreed_places(&self) -> Result<Option<AgreedPlaces>, StoreError> {
        let stored = self.node.stores.account_kv.get(self.account.as_ref(), AGREED).await?;
        Ok(stored.and_then(|text| AgreedPlaces::read(&String::from_utf8(text).ok()?)))
    }

    /// Remembers which places agree.
    async fn set_agreed(
        &self,
        before: Option<&AgreedPlaces>,
        agreed: Option<&AgreedPlaces>,
    ) -> Result<(), StoreError> {
        let (account_kv, account) = (&self.node.stores.account_kv, self.account.as_ref());
        match agreed {
            _ if agreed == before => {}
            None => drop(account_kv.remove(account, AGREED).await?),
            // What others store there does not count, so there is room, unless there is no account.
            Some(agreed) => {
                let value = vec![(AGREED.to_owned(), agreed.text().into_bytes())];
                account_kv.put(account, value, AccountKvLimits::UNLIMITED).await?;
            }
        }
        self.queue.set_converted(&self.account, agreed.is_some());
        Ok(())
    }

    /// The bookmarks in all places; `None` if there are too many items.
    async fn stored_bookmarks(&self) -> Result<Option<StoredBookmarks>, StoreError> {
        let storage_node = self.load(STORAGE).await?;
        let storage = match &storage_node {
            Some(of) => self.last_item(STORAGE, of).await?.map(|item| item.payload),
            None => None,
        };
        let private: Option<&SharedPrivateXml> = self.host.extensions.get();
        let private_xml = match private {
            Some(SharedPrivateXml(private)) => {
                private.get(self.node.clone(), self.account.clone(), "storage", STORAGE).await?
            }
            None => None,
        };
        let items_node = self.load(BOOKMARKS).await?;
        let Some(items) = self.bookmark_items(items_node.as_ref()).await? else { return Ok(None) };
        Ok(Some(StoredBookmarks {
            storage_node,
            storage: StoredBookmarkList::new(storage),
            has_private_xml: private.is_some(),
            private_xml: StoredBookmarkList::new(private_xml),
            items_node,
            items,
        }))
    }

    /// The bookmarks in items; `None` if there are too many.
    async fn bookmark_items(
        &self,
        of: Option<&ConvertedNode>,
    ) -> Result<Option<BTreeMap<String, BookmarkItem>>, StoreError> {
        let heads = of.map(|of| of.items.as_slice()).unwrap_or_default();
        let (mut found, mut bytes) = (BTreeMap::new(), 0);
        if heads.len() > MAX_BOOKMARKS {
            return Ok(None);
        }
        for page in heads.chunks(PAGE) {
            for item in self.items(BOOKMARKS, page.iter().map(|head| head.seq).collect()).await? {
                bytes += item.payload.len();
                if bytes > MAX_BYTES {
                    return Ok(None);
                }
                found.extend(BookmarkItem::read(&item.head.id, &item.payload));
            }
        }
        Ok(Some(found))
    }

    /// Bookmarks have changed in one place, or may never have been converted.
    pub(super) async fn convert_bookmarks(
        &self,
        source: Option<BookmarkPlace>,
    ) -> Result<(), ConversionError> {
        let before = self.agreed_places().await?;
        if source.is_none() && before.is_some() {
            self.queue.set_converted(&self.account, true);
            return Ok(());
        }
        let before = before.as_ref();
        let Some(stored) = self.stored_bookmarks().await? else {
            return Ok(self.set_agreed(before, None).await?);
        };
        let has_source = source.is_none_or(|source| stored.rooms(source).is_some());
        if !has_source || before.is_none() && stored.is_empty() {
            return Ok(());
        }
        let wanted = WantedBookmarks::new(&stored, source, before);
        let Some(wanted) = wanted.filter(|wanted| wanted.rooms.len() <= MAX_BOOKMARKS) else {
            return Ok(self.set_agreed(before, None).await?);
        };
        self.check_newest()?;
        let (mut is_changed, mut refused) = (false, None);
        for (place, _) in BookmarkPlace::ALL.iter().filter(|(_, one)| wanted.agreed.places.contains(*one)) {
            match self.write_place(*place, &stored, &wanted).await {
                Ok(()) => {}
                Err(ConversionError::Changed) => is_changed = true,
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            // What a place has not received must not be removed from the others by its next change.
            self.set_agreed(before, None).await?;
            return Err(error);
        }
        // A place that has changed meanwhile differs from the others, so that these are merged.
        if is_changed {
            return Err(ConversionError::Changed);
        }
        Ok(self.set_agreed(before, Some(&wanted.agreed)).await?)
    }

    async fn write_place(
        &self,
        place: BookmarkPlace,
        stored: &StoredBookmarks,
        wanted: &WantedBookmarks,
    ) -> Result<(), ConversionError> {
        match place {
            BookmarkPlace::Items => self.write_items(stored, wanted).await,
            BookmarkPlace::Storage if wanted.differs(place, &stored.storage) => {
                if stored.storage_node.is_none() {
                    self.create(STORAGE, PRIVATE).await?;
                }
                let last_item = stored.storage_node.as_ref().and_then(ConvertedNode::last_item);
                let item = (CURRENT.to_owned(), wanted.list_payload.clone());
                self.publish(STORAGE, last_item, [item]).await
            }
            BookmarkPlace::PrivateXml if wanted.differs(place, &stored.private_xml) => {
                self.write_private_xml(stored.private_xml.bytes.clone(), wanted.list_payload.clone()).await
            }
            BookmarkPlace::Storage | BookmarkPlace::PrivateXml => Ok(()),
        }
    }

    async fn write_private_xml(&self, before: Option<Vec<u8>>, list: Vec<u8>) -> Result<(), ConversionError> {
        let Some(SharedPrivateXml(private)) = self.host.extensions.get() else { return Ok(()) };
        match private.replace(self.node.clone(), self.account.clone(), before, list).await? {
            PrivateXmlOutcome::Stored => Ok(()),
            PrivateXmlOutcome::Changed => Err(ConversionError::Changed),
            PrivateXmlOutcome::Refused => Err(ConversionError::Refused("private XML", "resource-constraint")),
        }
    }

    /// Changes the items that differ.
    async fn write_items(
        &self,
        stored: &StoredBookmarks,
        wanted: &WantedBookmarks,
    ) -> Result<(), ConversionError> {
        let changed = wanted.rooms.iter().filter_map(|(jid, bookmark)| match stored.items.get(jid) {
            Some(item) if item.bookmark == *bookmark => None,
            Some(item) => Some((item.id.clone(), BookmarkItem::write(bookmark, &item.extensions))),
            None => Some((jid.clone(), BookmarkItem::write(bookmark, &[]))),
        });
        let changed: Vec<(String, Vec<u8>)> = changed.collect();
        let removed = stored.items.iter().filter(|(jid, _)| !wanted.rooms.contains_key(*jid));
        let removed: Vec<String> = removed.map(|(_, item)| item.id.clone()).collect();
        if stored.items_node.is_none() && !changed.is_empty() {
            self.create(BOOKMARKS, PRIVATE_ITEMS).await?;
        }
        let batch = BATCH.min(self.nodes.options().limits.batch_items).max(1);
        let heads = stored.items_node.as_ref().map(|node| node.items.as_slice()).unwrap_or_default();
        let mut left: Vec<&PubSubItemHead> = heads.iter().collect();
        // Before the others are published: the node keeps a bounded number.
        for ids in removed.chunks(batch) {
            self.retract(BOOKMARKS, left.last().map(|head| head.seq), ids.to_vec()).await?;
            left.retain(|head| !ids.iter().any(|id| **id == *head.id));
        }
        let mut last_item = left.last().map(|head| head.seq);
        for items in changed.chunks(batch) {
            self.publish(BOOKMARKS, last_item, items.to_vec()).await?;
            last_item = Some(last_item.unwrap_or(0) + items.len() as u64);
        }
        Ok(())
    }
}
