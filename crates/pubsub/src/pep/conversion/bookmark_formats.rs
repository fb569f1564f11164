//! Bookmarks of rooms as they are stored: a list (XEP-0048 1.2, section 2), and an item for each (XEP-0402 1.2.0, section 2).

use std::collections::BTreeMap;

use jid::Jid;
use throng_core::limits::STANZA_LIMITS;
use throng_core::shared_stanza;
use xml::{Ns, TreeNode, Writer};

/// A bookmark of a room, without extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bookmark {
    pub(super) name: Option<String>,
    pub(super) is_joined: bool,
    pub(super) nick: Option<String>,
    pub(super) password: Option<String>,
}

/// Bookmarks by the address of their room.
pub(super) type BookmarkMap = BTreeMap<String, Bookmark>;

/// A list of bookmarks.
#[derive(Debug, Default)]
pub(super) struct BookmarkList {
    pub(super) rooms: BookmarkMap,
    /// Each element that is no bookmark of a room.
    pub(super) others: Vec<Vec<u8>>,
}

/// A bookmark in an item.
pub(super) struct BookmarkItem {
    /// The id of the item: another spelling of the address, perhaps.
    pub(super) id: String,
    pub(super) bookmark: Bookmark,
    /// The element with extensions.
    pub(super) extensions: Vec<u8>,
}

impl Bookmark {
    pub(super) fn read(conference: TreeNode<'_>, ns: Ns) -> Bookmark {
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
    pub(super) fn write(&self, w: &mut Writer<'_>) {
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
    pub(super) fn read(storage: &[u8]) -> Option<BookmarkList> {
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
                None => list.others.push(child.to_standalone(&STANZA_LIMITS).ok()?.into_owned()),
            }
        }
        Some(list)
    }

    pub(super) fn write(rooms: &BookmarkMap, others: &[Vec<u8>]) -> Vec<u8> {
        let bytes: usize = others.iter().map(Vec::len).sum();
        let mut out = Vec::with_capacity(64 + bytes + rooms.len() * 128);
        let mut w = Writer::new(&mut out);
        w.start_ns("storage", Ns::Bookmarks);
        for (jid, bookmark) in rooms {
            w.start("conference").attr("jid", jid);
            bookmark.write(&mut w);
            w.end();
        }
        for other in others {
            w.raw(other);
        }
        w.end();
        out
    }
}

impl BookmarkItem {
    pub(super) fn read(id: &str, payload: &[u8]) -> Option<(String, BookmarkItem)> {
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

    pub(super) fn write(bookmark: &Bookmark, extensions: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(192 + extensions.len());
        let mut w = Writer::new(&mut out);
        w.start_ns("conference", Ns::Bookmarks1);
        bookmark.write(&mut w);
        w.raw(extensions).end();
        out
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
        let others = String::from_utf8(read.others.concat()).unwrap();
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
