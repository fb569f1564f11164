//! Substitutions of Tsung scenarios: `%%_name%%` and `%%module:function%%` in values.
//!
//! They apply only if the request has `subst="true"`. Supported functions are those that identify the user.
//!
//! Not implemented: every other Erlang function.
//!
//! # Pitfalls
//!
//! `ts_user_server:get_unique_id` returns the same number each time a user calls it, so it is the user's own number
//! here and not a new one.

use super::reader::{TsungReader, XmlNode};
use super::session_flow::SessionFlow;
use crate::plan::{TemplatePart, TextTemplate};

/// Tsung's predefined variable: the number of the user.
pub(super) const USER_ID: &str = "tsung_userid";

impl TsungReader<'_> {
    /// Template of a value, with variables if substitution is enabled.
    pub(super) fn text(
        &mut self,
        node: XmlNode<'_>,
        flow: &mut SessionFlow,
        value: &str,
        subst: bool,
    ) -> TextTemplate {
        if !subst {
            if value.contains("%%_") {
                self.note(
                    node,
                    format!("\"{}\" is sent literally: the request has no subst=\"true\"", short(value)),
                );
            }
            return TextTemplate::literal(value);
        }
        let mut pieces = Vec::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once("%%") {
            if !before.is_empty() {
                pieces.push(TemplatePart::Literal(before.to_owned()));
            }
            let Some((inner, tail)) = after.split_once("%%") else {
                self.error(
                    node,
                    node.tag_name().name(),
                    format!("\"{}\": the closing %% is missing", short(value)),
                );
                return TextTemplate(pieces);
            };
            if let Some(piece) = self.piece(node, flow, inner) {
                pieces.push(piece);
            }
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(TemplatePart::Literal(rest.to_owned()));
        }
        TextTemplate(pieces)
    }

    fn piece(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, inner: &str) -> Option<TemplatePart> {
        if let Some(name) = inner.strip_prefix('_') {
            if name == USER_ID {
                return Some(TemplatePart::Number);
            }
            let line = self.line(node);
            flow.uses(name, line);
            return Some(TemplatePart::Variable(name.to_owned()));
        }
        let piece = function(inner);
        if piece.is_none() {
            let text = format!("%%{inner}%%: this version does not run Erlang functions");
            self.error(node, node.tag_name().name(), text);
        }
        piece
    }
}

/// Result of an Erlang function that can be evaluated without Erlang.
pub(super) fn function(name: &str) -> Option<TemplatePart> {
    match name {
        "ts_user_server:get_unique_id" => Some(TemplatePart::Number),
        "ts_user_server:get_really_unique_id" => Some(TemplatePart::Unique),
        "ts_jabber:userid" => Some(TemplatePart::User),
        _ => None,
    }
}

/// Start of a value, for messages.
pub(super) fn short(value: &str) -> String {
    const MOST: usize = 60;
    match value.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}
