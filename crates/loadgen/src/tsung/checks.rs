//! `match` and `dyn_variable` of Tsung scenarios: conditions on a response, and values captured from it.
//!
//! Not implemented: XPath, JSONPath, headers and PostgreSQL expressions, variables in the expression of a `match`,
//! jumps back over several requests, functions applied to the response (all refused by name).
//!
//! # Pitfalls
//!
//! `regexp` of `dyn_variable` uses the syntax from before Tsung 1.4, where groups are written `\(…\)`.

use super::reader::{TsungReader, XmlNode, attribute, elements};
use super::session_flow::SessionFlow;
use super::text::short;
use crate::plan::{MatchAction, ResponseChecks, ResponseMatch};

impl TsungReader<'_> {
    /// Reads the conditions of a request.
    pub(super) fn checks(&mut self, request: XmlNode<'_>, flow: &mut SessionFlow) -> ResponseChecks {
        let mut checks = ResponseChecks::default();
        for node in elements(request) {
            match node.tag_name().name() {
                "match" => {
                    self.known_attributes(node);
                    checks.matches.extend(self.matching_rule(node));
                }
                "dyn_variable" => {
                    self.known_attributes(node);
                    checks.captures.extend(self.capture(node, flow));
                }
                _ => {}
            }
        }
        checks
    }

    fn matching_rule(&mut self, node: XmlNode<'_>) -> Option<ResponseMatch> {
        let regex: String =
            node.descendants().filter(|inner| inner.is_text()).filter_map(|inner| inner.text()).collect();
        let regex = regex.trim_matches([' ', '\n']).to_owned();
        let words = ["continue", "log", "dump", "abort", "abort_test", "restart", "loop"];
        let action = match self.choice(node, "do", &words) {
            Some("log") => MatchAction::Log,
            Some("dump") => {
                self.note(
                    node,
                    "match do=\"dump\": the response is written to the log of the run, not to a \
                 separate file",
                );
                MatchAction::Log
            }
            Some("abort") => MatchAction::Abort,
            Some("abort_test") => MatchAction::AbortRun,
            Some("restart") => MatchAction::Restart,
            Some("loop") => MatchAction::Loop,
            _ => MatchAction::Continue,
        };
        let when = self.choice(node, "when", &["match", "nomatch"]) != Some("nomatch");
        if self.flag(node, "subst", false) && regex.contains("%%") {
            self.error(node, "match", "this version does not support variables in the expression of a match");
            return None;
        }
        if self.count(node, "loop_back").unwrap_or(0) != 0 {
            self.error(node, "match", "loop_back: this version repeats only the request itself");
        }
        for name in ["apply_to_content", "skip_headers"] {
            if attribute(node, name).is_some_and(|value| !["undefined", "no"].contains(&value)) {
                self.error(node, "match", format!("this version does not support {name}"));
            }
        }
        let loops = self.count(node, "max_loop").unwrap_or(20);
        let restarts = self.count(node, "max_restart").unwrap_or(3);
        let pause = self.count(node, "sleep_loop").unwrap_or(5);
        self.regex(node, &regex);
        Some(ResponseMatch {
            regex,
            when,
            action,
            max: match action {
                MatchAction::Loop => loops,
                MatchAction::Restart => restarts,
                _ => 0,
            },
            pause_ms: if action == MatchAction::Loop { u64::from(pause) * 1_000 } else { 0 },
            name: attribute(node, "name").filter(|name| !["", "-"].contains(name)).map(str::to_owned),
        })
    }

    fn capture(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow) -> Option<(String, String)> {
        let name = self.needed(node, "name")?.to_owned();
        flow.set.insert(name.clone());
        for kind in ["xpath", "jsonpath", "pgsql_expr", "header"] {
            if attribute(node, kind).is_some() {
                let text = format!(
                    "this version does not support {kind} in dyn_variable; use a regular expression (re)"
                );
                self.error(node, &format!("dyn_variable {name}"), text);
                return None;
            }
        }
        if attribute(node, "decode").is_some_and(|value| value != "false") {
            self.error(
                node,
                &format!("dyn_variable {name}"),
                "this version does not decode the stored value",
            );
        }
        let regex = match (node.attribute("re"), node.attribute("regexp")) {
            (Some(regex), _) => regex.to_owned(),
            (None, Some(old)) => modern(old),
            (None, None) => format!(r#"name=["']{name}["'] (?:[^>]* )?value=["']([^"']*)["']"#),
        };
        self.regex(node, &regex);
        Some((name, regex))
    }

    /// Reports an invalid regular expression.
    pub(super) fn regex(&mut self, node: XmlNode<'_>, regex: &str) {
        let key = node.tag_name().name();
        if regex.is_empty() {
            self.error(node, key, "has no regular expression");
        } else if let Err(error) = regex_lite::Regex::new(regex) {
            self.error(node, key, format!("the expression \"{}\" is invalid: {error}", short(regex)));
        }
    }
}

/// Converts `\(…\)` to `(…)`, and `(` to `\(`.
fn modern(old: &str) -> String {
    let mut new = String::with_capacity(old.len());
    let mut chars = old.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(bracket @ ('(' | ')')) => new.push(bracket),
                Some(other) => new.extend(['\\', other]),
                None => new.push('\\'),
            },
            '(' | ')' => new.extend(['\\', c]),
            c => new.push(c),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::modern;

    #[test]
    fn groups_of_the_old_syntax_become_groups() {
        assert_eq!(modern(r"<title>\(.*\)</title>"), "<title>(.*)</title>");
        assert_eq!(modern(r"f(x) \d"), r"f\(x\) \d");
    }
}
