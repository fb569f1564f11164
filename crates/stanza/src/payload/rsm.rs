//! Result set management, page requests and page metadata: XEP-0059 1.0, section 2.
//!
//! Not implemented: the lists themselves; a feature maps [`PagePosition`] onto its storage.
//!
//! # Pitfalls
//!
//! An empty `<before/>` requests the last page, and `<max>0</max>` only the count. A `max` above the server's maximum
//! is not an error; the page is just shorter.

use xml::{Ns, TreeNode, Writer};

use crate::{StanzaCondition, StanzaError};

/// Longest item id that is accepted, in bytes; servers do not issue longer ones. An id may contain an address, which has up to 3071 bytes
/// (RFC 7622, section 3.1).
pub const MAX_ID_BYTES: usize = 4096;

/// Position of a page in the list.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum PagePosition {
    /// The first page.
    #[default]
    First,
    /// After this item (section 2.2).
    After(String),
    /// Before this item (section 2.3).
    Before(String),
    /// The last page (section 2.5).
    Last,
    /// From the item at this index, counted from 0 (section 2.6).
    Index(u32),
}

/// A page request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RsmRequest {
    /// Maximum number of items on the page; `None` leaves it to the server.
    pub max: Option<u32>,
    /// Position of the page.
    pub position: PagePosition,
}

/// Metadata of a returned page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RsmResponse<'a> {
    /// Ids of the first and the last item of the page; `None` for an empty page.
    pub first_and_last: Option<(&'a str, &'a str)>,
    /// Index of the first item, from 0, if known.
    pub index: Option<u64>,
    /// Number of items in the whole list, if known; may be approximate.
    pub count: Option<u64>,
}

impl RsmRequest {
    /// Reads the `<set/>` among the children of `parent`; `None` if there is none.
    ///
    /// # Errors
    /// `bad-request`: an invalid number, an id of more than [`MAX_ID_BYTES`], more than one position.
    pub fn from_parent(parent: TreeNode<'_>) -> Result<Option<RsmRequest>, StanzaError> {
        parent.child("set", Ns::Rsm).map(RsmRequest::read).transpose()
    }

    /// Reads `<set/>`.
    ///
    /// # Errors
    /// See [`RsmRequest::from_parent`].
    pub fn read(set: TreeNode<'_>) -> Result<RsmRequest, StanzaError> {
        let mut request = RsmRequest::default();
        let mut places = 0;
        for child in set.child_elements().filter(|c| c.ns() == Some(Ns::Rsm)) {
            let text = child.text();
            let place = match child.name() {
                "max" => {
                    request.max = Some(number(&text)?);
                    continue;
                }
                "after" if text.is_empty() => PagePosition::First,
                "after" => PagePosition::After(id(&text)?),
                "before" if text.is_empty() => PagePosition::Last,
                "before" => PagePosition::Before(id(&text)?),
                "index" => PagePosition::Index(number(&text)?),
                _ => continue,
            };
            places += 1;
            request.position = place;
        }
        if places > 1 {
            return Err(bad_request("a page has one place: after, before or index"));
        }
        Ok(request)
    }

    /// Page size: the requested maximum, capped at `most`.
    pub fn page_size(&self, most: u32) -> u32 {
        self.max.unwrap_or(most).min(most)
    }
}

impl RsmResponse<'_> {
    /// Writes `<set/>`.
    pub fn write(&self, w: &mut Writer<'_>) {
        w.start_ns("set", Ns::Rsm);
        if let Some((first, last)) = self.first_and_last {
            w.start("first");
            if let Some(index) = self.index {
                w.attr("index", &index.to_string());
            }
            w.text(first).end();
            w.text_element("last", last);
        }
        if let Some(count) = self.count {
            w.text_element("count", &count.to_string());
        }
        w.end();
    }
}

fn bad_request(text: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::BadRequest).text(text)
}

/// Parses a number; one too large for a `u32` saturates, because no list is that long.
fn number(text: &str) -> Result<u32, StanzaError> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad_request("a number of a result set is not a number"));
    }
    Ok(text.parse().unwrap_or(u32::MAX))
}

fn id(text: &str) -> Result<String, StanzaError> {
    if text.len() > MAX_ID_BYTES {
        return Err(bad_request("the id of an item is too long"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use xml::{Limits, NamespaceContext, Tree};

    fn read(inner: &str) -> Result<RsmRequest, StanzaError> {
        let text =
            format!("<query xmlns='u:v'><set xmlns='http://jabber.org/protocol/rsm'>{inner}</set></query>");
        let scope = NamespaceContext::client();
        let tree = Tree::parse(text.as_bytes(), &scope, &Limits::DEFAULT).unwrap();
        RsmRequest::from_parent(tree.root()).map(Option::unwrap)
    }

    #[test]
    fn requests_of_sections_2_1_to_2_7() {
        let ten = |place| RsmRequest { max: Some(10), position: place };
        for (inner, request) in [
            ("", RsmRequest::default()),
            ("<max>10</max>", ten(PagePosition::First)),
            (
                "<max>10</max><after>peterpan@neverland.lit</after>",
                ten(PagePosition::After("peterpan@neverland.lit".into())),
            ),
            (
                "<max>10</max><before>peter@pixyland.org</before>",
                ten(PagePosition::Before("peter@pixyland.org".into())),
            ),
            ("<max>10</max><before/>", ten(PagePosition::Last)),
            ("<max>10</max><after/>", ten(PagePosition::First)),
            ("<index>371</index><max>10</max>", ten(PagePosition::Index(371))),
            ("<max> 0 </max>", RsmRequest { max: Some(0), position: PagePosition::First }),
            (
                "<max>99999999999999999999</max>",
                RsmRequest { max: Some(u32::MAX), position: PagePosition::First },
            ),
            ("<max xmlns='u:x'>x</max>", RsmRequest::default()),
        ] {
            assert_eq!(read(inner).unwrap(), request, "{inner}");
        }
        assert_eq!(ten(PagePosition::First).page_size(5), 5);
        assert_eq!(RsmRequest::default().page_size(50), 50);
    }

    #[test]
    fn nonsense_is_a_bad_request() {
        let long = format!("<after>{}</after>", "x".repeat(MAX_ID_BYTES + 1));
        for inner in [
            "<max/>",
            "<max>-1</max>",
            "<max>ten</max>",
            "<index>+1</index>",
            "<before>a</before><after>b</after>",
            &long,
        ] {
            assert_eq!(read(inner).unwrap_err().condition, StanzaCondition::BadRequest, "{inner}");
        }
    }

    #[test]
    fn answers_name_the_ends_of_the_page() {
        let written = |answer: RsmResponse<'_>| {
            let mut out = Vec::new();
            answer.write(&mut Writer::new(&mut out));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            written(RsmResponse { first_and_last: Some(("a<b", "c")), index: Some(10), count: Some(800) }),
            "<set xmlns='http://jabber.org/protocol/rsm'><first index='10'>a&lt;b</first><last>c</last>\
             <count>800</count></set>"
        );
        assert_eq!(
            written(RsmResponse { count: Some(790), ..RsmResponse::default() }),
            "<set xmlns='http://jabber.org/protocol/rsm'><count>790</count></set>"
        );
    }
}
