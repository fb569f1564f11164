//! PEP nodes with data for which there is a place: vCard4 (XEP-0292), avatars (XEP-0084) and nicknames (XEP-0172) become
//! a vCard (XEP-0054); bookmarks (XEP-0402) become private bookmarks (XEP-0048). The mappings are those of mod_vcard_legacy
//! and mod_bookmarks of Prosody.
//!
//! A node is the store `pep_NODE`, a list of items: the payload of each, with the item's id as the `key`. The store `pep`
//! has the configurations of the nodes.
//!
//! # Pitfalls
//!
//! A vCard is public. A node is by default visible to contacts only, and must not become public by an import.

use super::account::AccountRecords;
use crate::lua::{LuaTable, LuaValue};
use crate::{SourceElement, SourceNode};

pub(super) const CONFIGURATIONS: &str = "pep";
pub(super) const NODE_PREFIX: &str = "pep_";
pub(super) const VCARD: &str = "pep_urn:xmpp:vcard4";
pub(super) const AVATAR_METADATA: &str = "pep_urn:xmpp:avatar:metadata";
pub(super) const AVATAR_DATA: &str = "pep_urn:xmpp:avatar:data";
pub(super) const NICKNAME: &str = "pep_http://jabber.org/protocol/nick";
pub(super) const BOOKMARKS: &str = "pep_urn:xmpp:bookmarks:1";
pub(super) const OLD_BOOKMARKS: &str = "pep_urn:xmpp:bookmarks:0";
pub(super) const STORAGE_BOOKMARKS: &str = "pep_storage:bookmarks";

const BOOKMARKS_NAMESPACE: &str = "storage:bookmarks";

/// Bytes of the bookmarks of an account.
const MAX_BOOKMARK_BYTES: usize = 4 << 20;

/// Properties of a vCard4 that have the same name in a vCard, with the element that has their text.
const TEXT_PROPERTIES: [(&str, &str); 7] = [
    ("nickname", "text"),
    ("title", "text"),
    ("role", "text"),
    ("categories", "text"),
    ("note", "text"),
    ("url", "uri"),
    ("bday", "date"),
];

/// The parts of a name, in both formats.
const NAME_PARTS: [(&str, &str); 5] = [
    ("surname", "FAMILY"),
    ("given", "GIVEN"),
    ("additional", "MIDDLE"),
    ("prefix", "PREFIX"),
    ("suffix", "SUFFIX"),
];

/// The parts of an address, in both formats.
const ADDRESS_PARTS: [(&str, &str); 7] = [
    ("pobox", "POBOX"),
    ("ext", "EXTADD"),
    ("street", "STREET"),
    ("locality", "LOCALITY"),
    ("region", "REGION"),
    ("code", "PCODE"),
    ("country", "CTRY"),
];

/// Whether a private value is the bookmarks.
pub(super) fn is_bookmarks(value: &LuaValue) -> bool {
    let element = value.as_table().and_then(SourceElement::from_lua);
    element.is_some_and(|element| {
        element.name == "storage" && element.attribute("xmlns") == Some(BOOKMARKS_NAMESPACE)
    })
}

impl AccountRecords<'_> {
    /// The bookmarks of the nodes as a private value; `None` if there are none.
    pub(super) fn read_bookmarks(&mut self) -> Option<Vec<u8>> {
        let mut bookmarks: Vec<SourceElement> = Vec::new();
        let (mut bytes, mut wrong, mut dropped, mut extended) = (0, 0u64, 0u64, 0u64);
        for store in [BOOKMARKS, OLD_BOOKMARKS] {
            if !bookmarks.is_empty() {
                break;
            }
            self.each_item(store, |_, item| {
                let Some((room, conference)) = payload(&item, "conference") else {
                    wrong += 1;
                    return;
                };
                let bookmark = bookmark(room, &conference);
                extended += u64::from(conference.children.iter().any(|child| match child {
                    SourceNode::Element(child) => !matches!(child.name.as_str(), "nick" | "password"),
                    SourceNode::Text(_) => false,
                }));
                bytes += size(&bookmark);
                let known =
                    bookmarks.iter_mut().find(|known| known.attribute("jid") == bookmark.attribute("jid"));
                match known {
                    Some(known) => *known = bookmark,
                    None if bytes > MAX_BOOKMARK_BYTES => dropped += 1,
                    None => bookmarks.push(bookmark),
                }
            });
        }
        for (count, reason) in [
            (wrong, "items of the PEP node of bookmarks are not bookmarks"),
            (dropped, "bookmarks: they are too large"),
            (extended, "bookmarks have extensions, for which private bookmarks have no place"),
        ] {
            if count > 0 {
                self.skip(format!("{count} {reason}"));
            }
        }
        let storage = if bookmarks.is_empty() {
            self.last_item(STORAGE_BOOKMARKS, "storage")?
        } else {
            let mut storage = element("storage", bookmarks.into_iter().map(SourceNode::Element).collect());
            storage.attributes.push(("xmlns".to_owned(), BOOKMARKS_NAMESPACE.to_owned()));
            storage
        };
        let written = storage.to_xml("");
        if written.is_none() {
            self.skip("the bookmarks of the PEP node are not an element");
        }
        written
    }

    /// The vCard of the nodes; `None` if there is nothing that everybody may see.
    pub(super) fn read_profile(&mut self) -> Option<Vec<u8>> {
        let card = self.last_item(VCARD, "vcard");
        let nickname = if card.is_none() { self.last_item(NICKNAME, "nick") } else { None };
        let metadata = self.last_item(AVATAR_METADATA, "metadata");
        if card.is_none() && nickname.is_none() && metadata.is_none() {
            return None;
        }
        let configurations = self.table(CONFIGURATIONS);
        let is_public = |store: &str| {
            let node = store.strip_prefix("pep_").unwrap_or(store);
            let config = configurations.as_ref().and_then(|nodes| nodes.get(node)?.as_table()?.get("config"));
            config.and_then(|config| config.as_table()?.text("access_model")) == Some("open")
        };
        let mut fields = Vec::new();
        let mut hidden = Vec::new();
        match card {
            Some(card) if is_public(VCARD) => {
                let unknown = add_card(&card, &mut fields);
                if unknown > 0 {
                    self.skip(format!("{unknown} properties of the vCard4 have no place in a vCard"));
                }
            }
            Some(_) => hidden.push("vCard"),
            None => {}
        }
        match nickname {
            Some(nickname) if is_public(NICKNAME) => {
                add_text(&mut fields, "NICKNAME", Some(&text(&nickname)))
            }
            Some(_) => hidden.push("nickname"),
            None => {}
        }
        match metadata {
            Some(metadata) if is_public(AVATAR_METADATA) => {
                if let Some(photo) = self.read_photo(&metadata) {
                    fields.push(SourceNode::Element(photo));
                }
            }
            Some(_) => hidden.push("avatar"),
            None => {}
        }
        for content in hidden {
            self.skip(format!(
                "no vCard is made of the PEP node of the {content}: not everybody may see it, and a vCard is public"
            ));
        }
        if fields.is_empty() {
            return None;
        }
        let mut card = element("vCard", fields);
        card.attributes.push(("xmlns".to_owned(), "vcard-temp".to_owned()));
        let written = card.to_xml("");
        if written.is_none() {
            self.skip("the vCard4 cannot be written as a vCard");
        }
        written
    }

    /// The image that the metadata name.
    fn read_photo(&mut self, metadata: &SourceElement) -> Option<SourceElement> {
        let info = child(metadata, "info")?;
        let id = info.attribute("id")?.to_owned();
        let mut data = None;
        self.each_item(AVATAR_DATA, |_, item| {
            if let Some((key, found)) = payload(&item, "data")
                && key == id
            {
                data = Some(text(&found));
            }
        });
        let mut photo = Vec::new();
        add_text(&mut photo, "TYPE", info.attribute("type"));
        match (data, info.attribute("url")) {
            (Some(data), _) => add_text(&mut photo, "BINVAL", Some(&data)),
            (None, Some(url)) => add_text(&mut photo, "EXTVAL", Some(url)),
            (None, None) => {
                self.skip("the avatar: its image is missing");
                return None;
            }
        }
        Some(element("PHOTO", photo))
    }

    /// The payload of the last item of a node. An item without this payload is reported.
    fn last_item(&mut self, store: &str, name: &str) -> Option<SourceElement> {
        let mut last = None;
        self.each_item(store, |records, item| match payload(&item, name) {
            Some((_, payload)) => last = Some(payload),
            None => records.skip(format!("an item of {store} has no {name}")),
        });
        last
    }
}

/// The id of an item, and its payload if it has this name. The store has the payload without `<item/>`.
fn payload(item: &LuaValue, name: &str) -> Option<(String, SourceElement)> {
    let table: &LuaTable = item.as_table()?;
    let mut payload = SourceElement::from_lua(table)?;
    // The store adds this attribute to the root.
    payload.remove_attribute("stamp");
    let id = table.text("key").unwrap_or_default().to_owned();
    (payload.name == name).then_some((id, payload))
}

/// A bookmark of XEP-0048; its attributes and elements are the same.
fn bookmark(room: String, conference: &SourceElement) -> SourceElement {
    let mut children = Vec::new();
    for name in ["nick", "password"] {
        add_text(&mut children, name, child(conference, name).map(text).as_deref());
    }
    let mut bookmark = element("conference", children);
    bookmark.attributes.push(("jid".to_owned(), room));
    for name in ["name", "autojoin"] {
        if let Some(value) = conference.attribute(name) {
            bookmark.attributes.push((name.to_owned(), value.to_owned()));
        }
    }
    bookmark
}

/// Bytes of a bookmark.
fn size(bookmark: &SourceElement) -> usize {
    let attributes = bookmark.attributes.iter().map(|(name, value)| name.len() + value.len());
    let children = bookmark.children.iter().map(|child| match child {
        SourceNode::Element(element) => text(element).len(),
        SourceNode::Text(text) => text.len(),
    });
    size_of::<SourceElement>() + attributes.chain(children).sum::<usize>()
}

/// Adds the properties of a vCard4, and returns the number of those that have no place.
fn add_card(card: &SourceElement, fields: &mut Vec<SourceNode>) -> u64 {
    let mut unknown = 0;
    for property in elements(card) {
        let value = |name: &str| child(property, name).map(text).filter(|text| !text.is_empty());
        let name = property.name.as_str();
        match name {
            "fn" => add_text(fields, "FN", value("text").as_deref()),
            "n" => add_parts(fields, "N", property, &NAME_PARTS, None),
            "email" => add_labelled(fields, "EMAIL", property, "USERID", value("text")),
            "tel" => {
                let number = value("uri").or_else(|| value("text"));
                let number = number.map(|uri| uri.strip_prefix("tel:").unwrap_or(&uri).to_owned());
                add_labelled(fields, "TEL", property, "NUMBER", number);
            }
            "adr" => add_parts(fields, "ADR", property, &ADDRESS_PARTS, place(property)),
            "impp" => match value("uri") {
                Some(uri) if uri.starts_with("xmpp:") => {
                    add_text(fields, "JABBERID", uri.strip_prefix("xmpp:"));
                }
                _ => unknown += 1,
            },
            "org" => add_labelled(fields, "ORG", property, "ORGNAME", value("text")),
            _ => match TEXT_PROPERTIES.iter().find(|(known, _)| *known == name) {
                Some((_, kind)) => add_text(fields, &name.to_uppercase(), value(kind).as_deref()),
                None => unknown += 1,
            },
        }
    }
    unknown
}

/// A field with one part and, of an email address or a number, whether it is at home or at work.
fn add_labelled(
    fields: &mut Vec<SourceNode>,
    name: &str,
    property: &SourceElement,
    part: &str,
    value: Option<String>,
) {
    let Some(value) = value else { return };
    let mut parts = Vec::new();
    add_text(&mut parts, part, Some(&value));
    if name == "EMAIL" {
        parts.push(SourceNode::Element(element("INTERNET", Vec::new())));
    }
    parts.extend(place(property).map(|place| SourceNode::Element(element(place, Vec::new()))));
    fields.push(SourceNode::Element(element(name, parts)));
}

/// A field with several parts, unless all of them are empty.
fn add_parts(
    fields: &mut Vec<SourceNode>,
    name: &str,
    property: &SourceElement,
    known: &[(&str, &str)],
    place: Option<&str>,
) {
    let mut parts = Vec::new();
    for (from, to) in known {
        add_text(&mut parts, to, child(property, from).map(text).as_deref());
    }
    if !parts.is_empty() {
        parts.extend(place.map(|place| SourceNode::Element(element(place, Vec::new()))));
        fields.push(SourceNode::Element(element(name, parts)));
    }
}

/// Where an address or a number is.
fn place(property: &SourceElement) -> Option<&'static str> {
    let kind = child(child(child(property, "parameters")?, "type")?, "text").map(text)?;
    match kind.as_str() {
        "home" => Some("HOME"),
        "work" => Some("WORK"),
        _ => None,
    }
}

/// Adds an element with a text that is not empty.
fn add_text(fields: &mut Vec<SourceNode>, name: &str, value: Option<&str>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        fields.push(SourceNode::Element(element(name, vec![SourceNode::Text(value.to_owned())])));
    }
}

fn element(name: &str, children: Vec<SourceNode>) -> SourceElement {
    SourceElement { name: name.to_owned(), attributes: Vec::new(), children }
}

fn elements(parent: &SourceElement) -> impl Iterator<Item = &SourceElement> {
    parent.children.iter().filter_map(|child| match child {
        SourceNode::Element(element) => Some(element),
        SourceNode::Text(_) => None,
    })
}

fn child<'a>(parent: &'a SourceElement, name: &str) -> Option<&'a SourceElement> {
    elements(parent).find(|element| element.name == name)
}

fn text(element: &SourceElement) -> String {
    let texts = element.children.iter().filter_map(|child| match child {
        SourceNode::Text(text) => Some(text.as_str()),
        SourceNode::Element(_) => None,
    });
    texts.collect()
}
