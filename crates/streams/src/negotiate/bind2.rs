//! Bind 2: XEP-0386 (1.1.0), within SASL2.
//!
//! The resource is `tag/name` or `name` (section 4.2.1). The name is derived from the user agent's id with the server's
//! secret, so a client that sends its id gets the same resource each time, and the resource does not reveal the id. A
//! new session of the same client ends the previous one, on any node.
//!
//! The request may contain elements of features, which the host's inline table lists (`feature_api::stream_elements`),
//! and `<enable/>` of stream management.
//!
//! Not implemented: `<metadata/>` of the archive (XEP-0313). For the same reason waiting messages are not cleared
//! (section 4.2: they are in the archive) but delivered.
//!
//! # Pitfalls
//!
//! A resource that could not be bound shows only in the bare address in `<success/>` (there is no element for it); the
//! features then offer binding as in RFC 6120.

use std::sync::Arc;

use ::sasl::ClientId;
use feature_api::stream_elements::{Bind2InlineCtx, StreamElements};
use stanza::{StreamCondition, StreamError};
use throng_core::{Host, Principal, Session};
use xml::{NamespaceContext, Ns, Tree, Writer};

use crate::c2s::{C2sConnection, ConnectionPhase};
use crate::stream_management;

/// Module name in the configuration.
pub(super) const MODULE: &str = "bind2";

/// Parsed `<bind/>`.
pub(crate) struct BindRequest {
    tag: Option<String>,
    /// Inline elements; each name in a namespace once.
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

/// A standalone copy of an element, as handlers expect it. `None` if it depends on namespace prefixes declared outside.
pub(super) fn standalone_element(element: xml::TreeNode<'_>) -> Option<Vec<u8>> {
    let scope = NamespaceContext::client();
    let tree = Tree::parse(element.raw(), &scope, &xml::Limits::CEILING).ok()?;
    element.ns().filter(|ns| tree.root().is(element.name(), *ns))?;
    Some(element.raw().to_vec())
}

/// Writes `<bind/>` for `<inline/>` of SASL2 (section 4.1).
pub(super) fn feature(w: &mut Writer<'_>, host: &Host) {
    if host.options(MODULE).is_none() {
        return;
    }
    w.start("bind").ns(Ns::Bind2);
    let managed = stream_management::config(host).is_some().then_some(Ns::Sm3);
    let mut vars = StreamElements::of(host).bind2_inline_namespaces().chain(managed).peekable();
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
    /// Binds, handles the inline requests and writes `<bound/>` (section 4.2).
    pub(super) fn bind2(
        &mut self,
        request: &BindRequest,
        principal: Principal,
        user_agent: Option<&str>,
        answer: &mut Vec<u8>,
    ) -> Option<Arc<Session>> {
        let context = self.context.clone();
        let node = &context.node;
        let outbox = self.outbox.clone();
        let ConnectionPhase::Negotiating(state) = &mut self.phase else { return None };
        state.host.as_ref().filter(|host| host.options(MODULE).is_some())?;
        let name = match user_agent {
            Some(id) => ClientId::new(id).display_name(&context.token_key, principal.jid.as_str()),
            None => base::id::random_id(),
        };
        let longest = usize::from(node.limits().resourcepart_bytes);
        let tagged = request.tag.as_ref().map(|tag| format!("{tag}/{name}"));
        // A tag that makes no valid resource is ignored.
        let valid = |r: &String| r.len() <= longest && principal.jid.with_resource(r).is_ok();
        let resource = tagged.filter(valid).unwrap_or_else(|| name.clone());
        let jid = principal.jid.clone();
        let session = match node.bind(principal, Some(&resource), &outbox) {
            Ok(session) => session,
            Err(error) => {
                tracing::debug!(%jid, condition = error.condition.as_str(), "no resource bound by Bind 2");
                return None;
            }
        };
        if user_agent.is_some() {
            // With another tag the same client has another resource.
            let suffix = format!("/{name}");
            for old in session.account.sessions() {
                let same = old.resource() == name || old.resource().ends_with(&suffix);
                if same && old.resource() != session.resource() {
                    let error = StreamError::new(StreamCondition::Conflict);
                    old.outbox.close(error.text("replaced by a new connection of the same client"));
                    node.end_session(&old);
                }
            }
            if let Some(peers) = node.peers() {
                peers.end_sessions_of_client(node, &session, &name);
            }
        }
        let mut inner = Vec::new();
        for (ns, name, bytes) in &request.inline {
            if matches!((ns, name.as_str()), (Ns::Sm3 | Ns::Sm2, "enable"))
                && stream_management::config(&session.account.host()).is_some()
                && let Ok(tree) = Tree::parse(bytes, &NamespaceContext::client(), &xml::Limits::CEILING)
            {
                inner.extend(stream_management::enable(&session, tree.root()));
            } else if let Some(handler) = StreamElements::of(&session.account.host()).bind2_inline(*ns, name)
            {
                handler(&mut Bind2InlineCtx { node, session: &session, bytes, answer: &mut inner });
            }
        }
        Writer::new(answer).start("bound").ns(Ns::Bind2).raw(&inner).end();
        Some(session)
    }
}
