//! Bookmarks of rooms: as items (XEP-0402 1.2.0, section 5.3), as a list in one item (XEP-0048 1.2, section 3), and the same list
//! in private XML (XEP-0411 1.1.0, section 3).
//!
//! The list is written anew when items have changed, with what it has besides rooms; items are published and retracted one by
//! one when a list has changed, with their extensions, which lists cannot have.
//!
//! # Pitfalls
//!
//! Bookmarks are private: nodes that others may read are not written (XEP-0411, section 5).

use std::collections::BTreeMap;

use feature_api::account_data::SharedPrivateXml;
use jid::Jid;
use store::StoreError;
use throng_core::limits::STANZA_LIMITS;
use throng_core::shared_stanza;
use xml::{Ns, TreeNode, Writer};

use super::{BOOKMARKS, Conversion, ConvertedNode, OwnRequests, STORAGE};

/// Bookmarks that are converted; those of accounts with more are not.
const MAX_BOOKMARKS: usize = 1_000;
/// Items that are read at once.
const PAGE: usize = 50;
/// Bytes of all bookmarks.
const MAX_BYTES: usize = 1 << 20;
/// Items of one request.
const BATCH: usize = 20;
/// Id of the item with all bookmarks.
const CURRENT: &str = "current";

/// Configuration of both nodes: XEP-0223, section 4, and XEP-0402, section 3.3.
const PRIVATE: &[(&str, &str)] = &[("pubsub#access_model", "whitelist"), ("pubsub#persist_items", "true")];
const PRIVATE_ITEMS: &[(&str, &str)] = &[
    ("pubsub#access_model", "whitelist"),
    ("pubsub#persist_items", "true"),
    ("pubsub#max_items", "max"),
    ("pubsub#send_last_published_item", "never"),
];

/// A bookmark of a room, without extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bookmark {
    name: Option<String>,
    is_joined: bool,
    nick: Option<String>,
    password: Option<String>,
}

/// Bookmarks by the address of their room.
type BookmarkMap = BTreeMap<String, Bookmark>;

/// A list of bookmarks.
#[derive(Debug, Default)]
struct BookmarkList {
    rooms: BookmarkMap,
    /// Everything that is no bookmark of a room.
    others: Vec<u8>,
}

/// A bookmark in an item.
struct BookmarkItem {
    /// The id of the item: another spelling of the address, perhaps.
    id: String,
    bookmark: Bookmark,
    /// The element with extensions.
    extensions: Vec<u8>,
}

impl Bookmark {
    fn read(conference: TreeNode<'_>, ns: Ns) -> Bookmark {
        let text = |name| {
            let child = conference.child(name, ns)?;
            Some(child.text().into_owned()).filter(|text| !text.is_empty())
        };
        Bookmark {
            name: conference.attr("name").map(|name| name.into_owned()).filter(|name| !name.is_empty()),
            is_joined: conference.attr("autojoin").is_some_and(|value| matches!(&*value, "true" | "1")),
            nick: text("nick"),
            password: text("password"),
        }
    }

    /// Writes attributes and content of an open element.
    fn write(&self, w: &mut Writer<'_>) {
        w.attr_opt("name", self.name.as_deref());
        w.attr_opt("autojoin", self.is_joined.then_some("true"));
        for (name, text) in [("nick", &self.nick), ("password", &self.password)] {
            if let Some(text) = text {
                w.text_element(name, text);
            }
        }
    }
}

/// The address of a room.
fn room(text: &str) -> Option<String> {
    let room = Jid::parse(text).ok().filter(|room| room.is_bare() && room.local().is_some())?;
    Some(room.as_str().to_owned())
}

impl BookmarkList {
    /// Reads `<storage/>`; `None` if it is something else.
    fn read(storage: &[u8]) -> Option<BookmarkList> {
        let tree = shared_stanza::tree(storage).ok()?;
        if !tree.root().is("storage", Ns::Bookmarks) {
            return None;
        }
        let mut list = BookmarkList::default();
        for child in tree.root().child_elements() {
            let jid = child.attr("jid").and_then(|jid| room(&jid));
            match jid.filter(|_| child.is("conference", Ns::Bookmarks)) {
                // Of several, the first one counts.
                Some(jid) => {
                    list.rooms.entry(jid).or_insert_with(|| Bookmark::read(child, Ns::Bookmarks));
                }
                None => list.others.extend_from_slice(&child.to_standalone(&STANZA_LIMITS).ok()?),
            }
        }
        Some(list)
    }

    fn write(rooms: &BookmarkMap, others: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + others.len() + rooms.len() * 128);
        let mut w = Writer::new(&mut out);
        w.start_ns("storage", Ns::Bookmarks);
        for (jid, bookmark) in rooms {
            w.start("conference").attr("jid", jid);
            bookmark.write(&mut w);
            w.end();
        }
        w.raw(others).end();
        out
    }
}

impl BookmarkItem {
    fn read(id: &str, payload: &[u8]) -> Option<(String, BookmarkItem)> {
        let tree = shared_stanza::tree(payload).ok()?;
        let root = tree.root();
        if !root.is("conference", Ns::Bookmarks1) {
            return None;
        }
        let extensions = root.child("extensions", Ns::Bookmarks1);
        let extensions =
            extensions.and_then(|one| Some(one.to_standalone(&STANZA_LIMITS).ok()?.into_owned()));
        let bookmark = Bookmark::read(root, Ns::Bookmarks1);
        let extensions = extensions.unwrap_or_default();
        Some((room(id)?, BookmarkItem { id: id.to_owned(), bookmark, extensions }))
    }

    fn write(bookmark: &Bookmark, extensions: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(192 + extensions.len());
        let mut w = Writer::new(&mut out);
        w.start_ns("conference", Ns::Bookmarks1);
        bookmark.write(&mut w);
        w.raw(extensions).end();
        out
    }
}

/// Whether a conversion may write to a node.
fn is_private(of: Option<&ConvertedNode>) -> bool {
    of.is_none_or(|of| of.access_model == "whitelist")
}

impl Conversion {
    /// The list in the item, if there is one.
    async fn storage_item(&self, of: Option<&ConvertedNode>) -> Result<Option<Vec<u8>>, StoreError> {
        let item = match of {
            Some(of) => self.last_item(STORAGE, of).await?,
            None => None,
        };
        Ok(item.map(|item| item.payload))
    }

    /// The list in private XML, if there is one.
    async fn private_list(&self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.host.extensions.get() {
            Some(SharedPrivateXml(private)) => {
                private.get(self.node.clone(), self.account.clone(), "storage", STORAGE).await
            }
            None => Ok(None),
        }
    }

    async fn put_private_list(&self, list: Vec<u8>) -> Result<(), StoreError> {
        let Some(SharedPrivateXml(private)) = self.host.extensions.get() else { return Ok(()) };
        if !private.put(self.node.clone(), self.account.clone(), list).await? {
            tracing::info!(account = %self.account, "private storage has no room for bookmarks");
        }
        Ok(())
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

    /// The list in the item has changed.
    pub(super) async fn convert_storage(&self) -> Result<(), StoreError> {
        let storage = self.load(STORAGE).await?;
        let Some(written) = self.storage_item(storage.as_ref()).await? else { return Ok(()) };
        let Some(list) = BookmarkList::read(&written) else { return Ok(()) };
        if self.private_list().await?.as_ref() != Some(&written) {
            self.put_private_list(written).await?;
        }
        let mut requests = self.requests();
        self.change_items(&list, &mut requests).await?;
        requests.send();
        Ok(())
    }

    /// Changes the items that differ from a list.
    async fn change_items(
        &self,
        list: &BookmarkList,
        requests: &mut OwnRequests<'_>,
    ) -> Result<(), StoreError> {
        let bookmarks = self.load(BOOKMARKS).await?;
        let Some(items) = self.bookmark_items(bookmarks.as_ref()).await? else { return Ok(()) };
        if !is_private(bookmarks.as_ref()) || list.rooms.len() > MAX_BOOKMARKS {
            return Ok(());
        }
        let changed = list.rooms.iter().filter_map(|(jid, bookmark)| match items.get(jid) {
            Some(item) if item.bookmark == *bookmark => None,
            Some(item) => Some((item.id.clone(), BookmarkItem::write(bookmark, &item.extensions))),
            None => Some((jid.clone(), BookmarkItem::write(bookmark, &[]))),
        });
        let changed: Vec<(String, Vec<u8>)> = changed.collect();
        if bookmarks.is_none() && !changed.is_empty() {
            requests.create(BOOKMARKS, PRIVATE_ITEMS);
        }
        for batch in changed.chunks(BATCH) {
            requests.publish(BOOKMARKS, batch.iter().map(|(id, payload)| (id.as_str(), payload.as_slice())));
        }
        for (_, item) in items.iter().filter(|(jid, _)| !list.rooms.contains_key(*jid)) {
            requests.retract(BOOKMARKS, &item.id);
        }
        Ok(())
    }

    /// Items have changed.
    pub(super) async fn convert_bookmarks(&self) -> Result<(), StoreError> {
        let bookmarks = self.load(BOOKMARKS).await?;
        let Some(items) = self.bookmark_items(bookmarks.as_ref()).await? else { return Ok(()) };
        let rooms: BookmarkMap = items.into_iter().map(|(jid, item)| (jid, item.bookmark)).collect();
        let storage = self.load(STORAGE).await?;
        let in_item = self.storage_item(storage.as_ref()).await?;
        let in_item = in_item.as_deref().and_then(BookmarkList::read);
        let in_private = self.private_list().await?;
        let in_private = in_private.as_deref().and_then(BookmarkList::read);
        let others = in_item.as_ref().or(in_private.as_ref()).map(|list| list.others.as_slice());
        let written = BookmarkList::write(&rooms, others.unwrap_or_default());
        let differs = |list: &Option<BookmarkList>| match list {
            Some(list) => list.rooms != rooms,
            None => !rooms.is_empty(),
        };
        if differs(&in_item) && is_private(storage.as_ref()) {
            let mut requests = self.requests();
            if storage.is_none() {
                requests.create(STORAGE, PRIVATE);
            }
            requests.publish(STORAGE, [(CURRENT, written.as_slice())]);
            requests.send();
        }
        if differs(&in_private) {
            self.put_private_list(written).await?;
        }
        Ok(())
    }

    /// Private XML has changed, or may never have been converted.
    pub(super) async fn convert_private_xml(&self, only_first: bool) -> Result<(), StoreError> {
        if only_first && (self.exists(STORAGE).await? || self.exists(BOOKMARKS).await?) {
            return Ok(());
        }
        let storage = self.load(STORAGE).await?;
        let Some(written) = self.private_list().await? else { return Ok(()) };
        let Some(list) = BookmarkList::read(&written) else { return Ok(()) };
        let is_known = self.storage_item(storage.as_ref()).await?.as_ref() == Some(&written);
        let mut requests = self.requests();
        if !is_known && is_private(storage.as_ref()) {
            if storage.is_none() {
                requests.create(STORAGE, PRIVATE);
            }
            requests.publish(STORAGE, [(CURRENT, written.as_slice())]);
        }
        self.change_items(&list, &mut requests).await?;
        requests.send();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xep_0048_section_2_a_list_is_read_and_written() {
        let list = "<storage xmlns='storage:bookmarks'>\
            <conference name='Council of Oberon' autojoin='true' jid='council@conference.underhill.org'>\
            <nick>Puck</nick></conference>\
            <url name='Complete Works of Shakespeare' url='http://the-tech.mit.edu/Shakespeare/'/>\
            <conference jid='no room'/><conference jid='COUNCIL@conference.underhill.org' name='again'/></storage>";
        let read = BookmarkList::read(list.as_bytes()).unwrap();
        let council = Bookmark {
            name: Some("Council of Oberon".to_owned()),
            is_joined: true,
            nick: Some("Puck".to_owned()),
            password: None,
        };
        assert_eq!(read.rooms, BTreeMap::from([("council@conference.underhill.org".to_owned(), council)]));
        let written = BookmarkList::write(&read.rooms, &read.others);
        let again = BookmarkList::read(&written).unwrap();
        assert_eq!((again.rooms, &again.others), (read.rooms, &read.others));
        let others = String::from_utf8(read.others).unwrap();
        assert!(others.contains("the-tech.mit.edu") && others.contains("no room"), "{others}");
        for other in ["<storage xmlns='other'/>", "<storage", ""] {
            assert!(BookmarkList::read(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn xep_0402_section_2_an_item_is_read_and_written_with_its_extensions() {
        let payload = "<conference xmlns='urn:xmpp:bookmarks:1' name='The Orchard' autojoin='1'><nick>JC</nick>\
            <extensions><state xmlns='http://myclient.example/bookmark/state' minimized='true'/></extensions></conference>";
        let (room, item) =
            BookmarkItem::read("orchard@conference.shakespeare.lit", payload.as_bytes()).unwrap();
        assert_eq!(room, "orchard@conference.shakespeare.lit");
        assert!(item.bookmark.is_joined);
        let written = BookmarkItem::write(&item.bookmark, &item.extensions);
        let (_, again) = BookmarkItem::read(&room, &written).unwrap();
        assert_eq!((again.bookmark, again.extensions), (item.bookmark, item.extensions));
        assert!(String::from_utf8(written).unwrap().contains("minimized='true'"));
        let minimal = BookmarkItem::read(&room, b"<conference xmlns='urn:xmpp:bookmarks:1'/>").unwrap();
        assert_eq!(minimal.1.bookmark, Bookmark::default());
        assert!(BookmarkItem::read("no room", payload.as_bytes()).is_none());
        assert!(BookmarkItem::read(&room, b"<conference xmlns='storage:bookmarks'/>").is_none());
    }
}
