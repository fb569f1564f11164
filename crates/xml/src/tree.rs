//! Flat read-only tree over the bytes of one element, for random access.
//!
//! Not implemented: modification. A changed element is written with the [`Writer`](crate::Writer).
//!
//! # Pitfalls
//!
//! A node costs 64 bytes, so a hostile element costs about twenty times its size while the tree lives. Build a tree
//! only of elements whose content is needed.

use std::borrow::Cow;
use std::ops::Range;

use crate::event::BoundPrefixes;
use crate::{
    Attr, CheckedText, Error, Event, Limits, Namespace, NamespaceContext, Ns, Reader, StartTag, Text, escape,
    narrowing,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeKind {
    Element { empty: bool, plain: bool },
    Text { cdata: bool, plain: bool },
}

struct NodeData<'a> {
    /// Local name, or raw text.
    name: &'a str,
    ns: Namespace<'a>,
    at: u32,
    /// End of the start tag.
    tag_end: u32,
    end: u32,
    /// Index after the last descendant.
    next: u32,
    /// Length of prefix and colon in bytes.
    prefix_len: u16,
    kind: NodeKind,
}

const _: () = assert!(size_of::<NodeData<'_>>() <= 64);

/// Attribute prefixes of one element; few elements have any.
struct AttributePrefixes {
    item: u32,
    bound: BoundPrefixes,
}

/// One element as a flat vector of nodes in document order, borrowed from its bytes.
pub struct Tree<'a> {
    text: &'a str,
    scope: &'a NamespaceContext,
    nodes: Vec<NodeData<'a>>,
    prefixes: Vec<AttributePrefixes>,
    portable: bool,
}

impl<'a> Tree<'a> {
    /// Reads and validates exactly one complete element.
    pub fn parse(bytes: &'a [u8], scope: &'a NamespaceContext, limits: &Limits) -> Result<Tree<'a>, Error> {
        let mut reader = Reader::over(CheckedText::new(bytes, limits)?, scope, limits);
        let mut items: Vec<NodeData<'a>> = Vec::with_capacity(8);
        let mut prefixes = Vec::new();
        let mut open: Vec<u32> = Vec::with_capacity(4);
        let mut text = "";
        while let Some(event) = reader.next()? {
            let index = narrowing::offset_u32(items.len());
            match event {
                Event::Start(start) => {
                    text = start.text;
                    if start.bound_prefixes.count > 0 {
                        prefixes.push(AttributePrefixes { item: index, bound: start.bound_prefixes });
                    }
                    items.push(NodeData {
                        name: start.name,
                        ns: start.ns,
                        at: narrowing::offset_u32(start.tag.start),
                        tag_end: narrowing::offset_u32(start.tag.end),
                        end: 0,
                        next: 0,
                        prefix_len: start.prefix.map_or(0, |p| narrowing::name_len_u16(p.len() + 1)),
                        kind: NodeKind::Element { empty: start.empty, plain: start.plain },
                    });
                    open.push(index);
                }
                Event::Text(piece) => {
                    let end = narrowing::offset_u32(reader.position());
                    items.push(NodeData {
                        name: piece.raw,
                        ns: Namespace::NONE,
                        at: narrowing::offset_u32(piece.at),
                        tag_end: end,
                        end,
                        next: index + 1,
                        prefix_len: 0,
                        kind: NodeKind::Text { cdata: piece.cdata, plain: piece.plain },
                    });
                }
                Event::End => {
                    if let Some(item) = open.pop().and_then(|i| items.get_mut(i as usize)) {
                        item.next = index;
                        item.end = narrowing::offset_u32(reader.position());
                    }
                }
            }
        }
        Ok(Tree { text, scope, nodes: items, prefixes, portable: reader.is_self_contained() })
    }

    /// The root element.
    pub fn root(&self) -> TreeNode<'_> {
        TreeNode { tree: self, index: 0 }
    }

    /// See [`Reader::is_self_contained`].
    pub const fn is_self_contained(&self) -> bool {
        self.portable
    }

    /// Number of elements and pieces of text.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

/// An element of a tree, or a piece of text.
#[derive(Clone, Copy)]
pub struct TreeNode<'t> {
    tree: &'t Tree<'t>,
    index: usize,
}

impl<'t> TreeNode<'t> {
    fn item(&self) -> &'t NodeData<'t> {
        // Indices are created only here, from the tree's own nodes.
        &self.tree.nodes[self.index]
    }

    /// Whether it is an element.
    pub fn is_element(&self) -> bool {
        matches!(self.item().kind, NodeKind::Element { .. })
    }

    /// Local name; empty for text.
    pub fn name(&self) -> &'t str {
        if self.is_element() { self.item().name } else { "" }
    }

    /// Number of the namespace, if it is a known one.
    pub fn ns(&self) -> Option<Ns> {
        self.item().ns.id
    }

    /// Namespace name as written; empty for none.
    pub fn ns_text(&self) -> &'t str {
        self.item().ns.text
    }

    /// The namespace.
    pub fn namespace(&self) -> Namespace<'t> {
        self.item().ns
    }

    /// Whether it is the element of this name in this namespace.
    pub fn is(&self, name: &str, ns: Ns) -> bool {
        self.ns() == Some(ns) && self.name() == name
    }

    /// The start tag, with its attributes; `None` for text.
    pub fn start_tag(&self) -> Option<StartTag<'t>> {
        let item = self.item();
        let NodeKind::Element { empty, plain } = item.kind else { return None };
        let at = item.at as usize;
        let mut start = StartTag {
            name: item.name,
            prefix: (item.prefix_len > 0)
                .then(|| self.tree.text.get(at + 1..at + usize::from(item.prefix_len)))
                .flatten(),
            ns: item.ns,
            empty,
            tag: at..item.tag_end as usize,
            text: self.tree.text,
            scope: self.tree.scope,
            bound_prefixes: Default::default(),
            plain,
        };
        if let Ok(i) = self.tree.prefixes.binary_search_by_key(&self.index, |p| p.item as usize) {
            start.bound_prefixes = self.tree.prefixes[i].bound;
        }
        Some(start)
    }

    /// The value of the attribute of this name in no namespace.
    pub fn attr(&self, name: &str) -> Option<Cow<'t, str>> {
        Some(self.start_tag()?.attr(name)?.value())
    }

    /// The attributes in document order, without namespace declarations.
    pub fn attrs(&self) -> impl Iterator<Item = Attr<'t>> + use<'t> {
        let start = self.start_tag();
        let mut at = None;
        // Each call parses the tag from the end of the last attribute; the iterator owns its tag.
        std::iter::from_fn(move || {
            let start = start.as_ref()?;
            let mut attrs = start.attrs();
            if let Some(at) = at {
                attrs.resume_at(at);
            }
            let attr = attrs.next()?;
            at = Some(attr.value_range.end + 1);
            Some(attr)
        })
    }

    /// The value of `xml:lang` on this element itself.
    pub fn lang(&self) -> Option<Cow<'t, str>> {
        self.start_tag()?.lang()
    }

    /// Child elements and text.
    pub fn children(&self) -> impl Iterator<Item = TreeNode<'t>> + use<'t> {
        let tree = self.tree;
        let end = self.item().next as usize;
        let mut index = self.index + 1;
        std::iter::from_fn(move || {
            if index >= end {
                return None;
            }
            let node = TreeNode { tree, index };
            index = node.item().next as usize;
            Some(node)
        })
    }

    /// Child elements.
    pub fn child_elements(&self) -> impl Iterator<Item = TreeNode<'t>> + use<'t> {
        self.children().filter(TreeNode::is_element)
    }

    /// The first child element of this name and namespace.
    pub fn child(&self, name: &str, ns: Ns) -> Option<TreeNode<'t>> {
        self.child_elements().find(|c| c.is(name, ns))
    }

    /// The text directly inside, references expanded; for a text node, its own. Allocates only if necessary.
    pub fn text(&self) -> Cow<'t, str> {
        let item = self.item();
        if let NodeKind::Text { cdata, plain } = item.kind {
            return Text { raw: item.name, at: item.at as usize, cdata, plain }.unescape();
        }
        let mut pieces = self.children().filter(|c| !c.is_element());
        let Some(first) = pieces.next() else { return Cow::Borrowed("") };
        let mut text = first.text();
        for piece in pieces {
            text.to_mut().push_str(&piece.text());
        }
        text
    }

    /// The bytes from `<` to the last `>`; for text, the text as written without CDATA brackets.
    pub fn raw(&self) -> &'t [u8] {
        let item = self.item();
        if self.is_element() {
            self.tree.text.as_bytes().get(self.range()).unwrap_or_default()
        } else {
            item.name.as_bytes()
        }
    }

    /// The element as a standalone document that can be stored without its context: namespaces inherited from enclosing
    /// elements are declared on it. Allocates only if necessary.
    ///
    /// # Errors
    /// When the result would exceed the limits.
    pub fn to_standalone(&self, limits: &Limits) -> Result<Cow<'t, [u8]>, Error> {
        let nothing = NamespaceContext::empty();
        if Tree::parse(self.raw(), &nothing, limits).is_ok_and(|t| t.root().ns_text() == self.ns_text()) {
            return Ok(Cow::Borrowed(self.raw()));
        }
        // In portable form only default namespaces are inherited, and elements keep their order.
        let place = self.tree.nodes[..self.index]
            .iter()
            .filter(|i| matches!(i.kind, NodeKind::Element { .. }))
            .count();
        let mut portable = Vec::with_capacity(self.tree.text.len());
        crate::normalise(self.tree.text.as_bytes(), self.tree.scope, limits, &mut portable)?;
        let client = NamespaceContext::client();
        let tree = Tree::parse(&portable, &client, limits)?;
        let index = tree
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, i)| matches!(i.kind, NodeKind::Element { .. }))
            .nth(place);
        let Some((index, _)) = index else { return Err(Error::NotWellFormed("no element")) };
        let node = TreeNode { tree: &tree, index };
        let mut alone = node.raw().to_vec();
        let is_same = |bytes: &[u8]| {
            Tree::parse(bytes, &nothing, limits).is_ok_and(|t| t.root().ns_text() == node.ns_text())
        };
        if !is_same(&alone) {
            // The raw value contains at most one kind of quote; escaping it could make it longer than allowed.
            let mut declaration = b" xmlns".to_vec();
            escape::raw_attr_value(node.ns_text(), &mut declaration);
            let at = 1 + node.name().len();
            alone.splice(at..at, declaration);
            // The caller stores the result, so anything that cannot be read again must not be returned.
            if !is_same(&alone) {
                return Err(Error::TooManyAttributes);
            }
        }
        Ok(Cow::Owned(alone))
    }

    /// Range of the node in the parsed bytes.
    pub fn range(&self) -> Range<usize> {
        self.item().at as usize..self.item().end as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<message to='a&amp;b' xml:lang='en'><body>Hi &lt;<![CDATA[&]]>!</body>\
        <x xmlns='jabber:x:data' type='form'><field var='v'/><field/></x><d:y xmlns:d='urn:d' d:k='1' k='2'/></message>";

    #[test]
    fn walks_attributes_children_and_text() {
        let scope = NamespaceContext::client();
        let tree = Tree::parse(TEXT.as_bytes(), &scope, &Limits::DEFAULT).unwrap();
        let root = tree.root();
        assert!(root.is("message", Ns::Client) && tree.is_self_contained());
        assert_eq!(root.attr("to").as_deref(), Some("a&b"));
        assert_eq!(root.lang().as_deref(), Some("en"));
        assert_eq!(root.attr("lang"), None, "xml:lang is not lang");
        assert_eq!(root.child("body", Ns::Client).unwrap().text(), "Hi <&!");
        let x = root.child("x", Ns::DataForms).unwrap();
        assert_eq!(x.child_elements().map(|c| c.attr("var").is_some()).collect::<Vec<_>>(), [true, false]);
        assert_eq!(x.child_elements().next().unwrap().raw(), b"<field var='v'/>");
        let y = root.child_elements().last().unwrap();
        assert_eq!((y.name(), y.ns(), y.ns_text()), ("y", None, "urn:d"));
        let attrs: Vec<_> =
            y.attrs().map(|a| (a.ns.text.to_owned(), a.name.to_owned(), a.raw.to_owned())).collect();
        assert_eq!(
            attrs,
            [("urn:d".into(), "k".into(), "1".into()), (String::new(), "k".into(), "2".into())]
        );
        assert_eq!(root.child("x", Ns::Client).map(|n| n.name()), None);
        assert_eq!(root.range(), 0..TEXT.len());
    }

    #[test]
    fn an_extracted_element_carries_the_declarations_it_uses() {
        let alone = |text: &str, path: &[usize]| {
            let scope = NamespaceContext::client();
            let tree = Tree::parse(text.as_bytes(), &scope, &Limits::DEFAULT).unwrap();
            let mut node = tree.root();
            for at in path {
                node = node.child_elements().nth(*at).unwrap();
            }
            let bytes = node.to_standalone(&Limits::DEFAULT).unwrap();
            let again = NamespaceContext::empty();
            let read = Tree::parse(&bytes, &again, &Limits::DEFAULT).unwrap();
            assert_eq!((read.root().name(), read.root().ns_text()), (node.name(), node.ns_text()), "{text}");
            (String::from_utf8(bytes.to_vec()).unwrap(), matches!(bytes, Cow::Borrowed(_)))
        };
        assert_eq!(alone("<iq><a xmlns='u:a'>1</a></iq>", &[0]), ("<a xmlns='u:a'>1</a>".into(), true));
        assert_eq!(
            alone("<iq><q xmlns='u:q'>x<b/>&gt;<c/></q></iq>", &[0, 1]),
            ("<c xmlns='u:q'/>".into(), false)
        );
        assert_eq!(
            alone("<iq xmlns:p='u:&apos;p'><q/><p:a p:k='1'>t<p:b/></p:a></iq>", &[1]).0,
            "<a xmlns='u:&apos;p' xmlns:p='u:&apos;p' p:k='1'>t<b/></a>"
        );
        assert_eq!(alone("<iq><p:q xmlns:p='u:p'><p:a/></p:q></iq>", &[0, 0]).0, "<a xmlns='u:p'/>");
        assert_eq!(alone("<iq><body>x</body></iq>", &[0]).0, "<body xmlns='jabber:client'>x</body>");
    }

    #[test]
    fn an_element_that_would_exceed_a_limit_alone_is_refused() {
        let name = "'".repeat(1000);
        let text = format!("<iq><p:a xmlns:p=\"{name}\"><p:b/></p:a></iq>");
        let scope = NamespaceContext::client();
        let tree = Tree::parse(text.as_bytes(), &scope, &Limits::DEFAULT).unwrap();
        let inner = tree.root().child_elements().next().unwrap().child_elements().next().unwrap();
        let alone = inner.to_standalone(&Limits::DEFAULT).unwrap();
        assert!(
            Tree::parse(&alone, &NamespaceContext::empty(), &Limits::DEFAULT).is_ok(),
            "quotes keep their length"
        );
        let attributes: String = (0..63).map(|i| format!(" a{i}=''")).collect();
        let text = format!("<iq xmlns:p='urn:p'><p:a><p:b p:x=''{attributes}/></p:a></iq>");
        let tree = Tree::parse(text.as_bytes(), &scope, &Limits::DEFAULT).unwrap();
        let inner = tree.root().child_elements().next().unwrap().child_elements().next().unwrap();
        assert!(inner.to_standalone(&Limits::DEFAULT).is_err());
        assert!(inner.to_standalone(&Limits::CEILING).is_ok());
    }

    #[test]
    fn a_bad_element_makes_no_tree() {
        assert!(Tree::parse(b"<a><b></a>", &NamespaceContext::client(), &Limits::DEFAULT).is_err());
        assert!(Tree::parse(b"", &NamespaceContext::client(), &Limits::DEFAULT).is_err());
    }
}
