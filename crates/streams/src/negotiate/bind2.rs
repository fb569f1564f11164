//! Bind 2: XEP-0386 (1.1.0), as part of SASL2.
//!
//! The resource is `tag/name` or `name` (section 4.2.1). The name is made from the user agent's id with the server's
//! secret, so a client that tells its id gets the same resource each time, and nobody learns the id from it. A new
//! session of the same client ends the one before.
//!
//! What may stand inside the request are elements of features: the host's inline table says which
//! (`throng_core::nonza`); and `<enable/>` of stream management.
//!
//! Left out: `<metadata/>` of the archive (XEP-0313), and for the same reason waiting messages are not cleared (section
//! 4.2: they are in the archive) but delivered.
//!
//! The trap: the client is told of a resource that could not be bound by the bare address in `<success/>`, nothing else
//! (there is no element for it); the features then offer binding as in RFC 6120.

use std::sync::Arc;

use ::sasl::ClientId;
use stanza::{StreamCondition, StreamError};
use throng_core::stream_elements::Bind2InlineCtx;
use throng_core::{Host, Principal, Session};
use xml::{NamespaceContext, Ns, Tree, Writer};

use crate::c2s::{C2sConnection, ConnectionPhase};
use crate::stream_management;

/// The module's name in the configuration.
pub(super) const MODULE: &str = "bind2";

/// `<bind/>`.
pub(crate) struct BindRequest {
    tag: Option<String>,
    /// What else it holds, each name of a namespace once.
    inline: Vec<(Ns, String, Vec<u8>)>,
}

impl BindRequest {
    pub(super) fn read(bind: xml::TreeNode<'_>) -> BindRequest {
        let tag = bind.child("tag", Ns::Bind2).map(|tag| tag.text().trim().to_owned());
        let mut inline: Vec<(Ns, String, Vec<u8>)> = Vec::new();
        for child in bind.child_elements() {
            let Some(ns) = child.ns().filter(|ns| *ns != Ns::Bind2) else { continue };
            if inline.iter().any(|(n, name, _)| *n == ns && name == child.name()) {
                continue;
            }
            if let Some(bytes) = standalone_element(child) {
                inline.push((ns, child.name().to_owned(), bytes));
            }
        }
        BindRequest { tag: tag.filter(|tag| !tag.is_empty()), inline }
    }
}

/// An element as handlers get it: by itself. One that leans on prefixes from outside would lose them, and is left out.
pub(super) fn standalone_element(element: xml::TreeNode<'_>) -> Option<Vec<u8>> {
    let scope = NamespaceContext::client();
    let tree = Tree::parse(element.raw(), &scope, &xml::Limits::CEILING).ok()?;
    element.ns().filter(|ns| tree.root().is(element.name(), *ns))?;
    Some(element.raw().to_vec())
}

/// What may be asked for: `<bind/>` for `<inline/>` of SASL2 (section 4.1).
pub(super) fn feature(w: &mut Writer<'_>, host: &Host) {
    if host.options(MODULE).is_none() {
        return;
    }
    w.start("bind").ns(Ns::Bind2);
    let managed = host.stream_management.is_some().then_some(Ns::Sm3);
    let mut vars = host.elements.bind2_inline_namespaces().chain(managed).peekable();
    if vars.peek().is_some() {
        w.start("inline");
        for var in vars {
            w.start("feature").attr("var", var.as_str()).end();
        }
        w.end();
    }
    w.end();
}

impl C2sConnection {
    /// Section 4.2: binds, does what was asked for along with it, and writes `<bound/>`.
    pub(super) fn bind2(
        &mut self,
        request: &BindRequest,
        principal: Principal,
        user_agent: Option<&str>,
        answer: &mut Vec<u8>,
    ) -> Option<Arc<Session>> {
        let service = self.context.clone();
        let node = &service.node;
        let link = self.outbox.clone();
        let ConnectionPhase::Negotiating(state) = &mut self.phase else { return None };
        state.host.as_ref().filter(|host| host.options(MODULE).is_some())?;
        let name = match user_agent {
            Some(id) => ClientId::new(id).display_name(&service.token_key, principal.jid.as_str()),
            None => base::id::random_id(),
        };
        let longest = usize::from(node.limits().resourcepart_bytes);
        let tagged = request.tag.as_ref().map(|tag| format!("{tag}/{name}"));
        // A tag that makes no resource is only a tag.
        let valid = |r: &String| r.len() <= longest && principal.jid.with_resource(r).is_ok();
        let resource = tagged.filter(valid).unwrap_or_else(|| name.clone());
        let jid = principal.jid.clone();
        let session = match node.bind(principal, Some(&resource), &link) {
            Ok(session) => session,
            Err(error) => {
                tracing::debug!(%jid, condition = ?error.condition, "no resource for Bind 2");
                return None;
            }
        };
        if user_agent.is_some() {
            // The same client with another tag has another resource, but is the same client.
            let suffix = format!("/{name}");
            for old in session.account.sessions() {
                let same = old.resource() == name || old.resource().ends_with(&suffix);
                if same && old.resource() != session.resource() {
                    let error = StreamError::new(StreamCondition::Conflict);
                    old.outbox.close(error.text("this client has connected anew"));
                    node.end_session(&old);
                }
            }
        }
        let mut inner = Vec::new();
        for (ns, name, bytes) in &request.inline {
            if matches!((ns, name.as_str()), (Ns::Sm3 | Ns::Sm2, "enable"))
                && session.account.host().stream_management.is_some()
                && let Ok(tree) = Tree::parse(bytes, &NamespaceContext::client(), &xml::Limits::CEILING)
            {
                inner.extend(stream_management::enable(&session, tree.root()));
            } else if let Some(handler) = session.account.host().elements.bind2_inline(*ns, name) {
                handler(&mut Bind2InlineCtx { node, session: &session, bytes, answer: &mut inner });
            }
        }
        Writer::new(answer).start("bound").ns(Ns::Bind2).raw(&inner).end();
        Some(session)
    }
}
