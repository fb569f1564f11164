//! What is known while a session is read from its first request to its last.
//!
//! Left out: nothing is run; where two ways lead to a place (`if`), only what both agree on is known.
//!
//! Trap: a variable that is read before it is set has the value `undefined` in Tsung, so it is set to that at the beginning.

use hashbrown::{HashMap, HashSet};

use crate::plan::TextTemplate;

/// Whether the stream is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamKnowledge {
    /// Nothing was sent yet, or `close` was.
    #[default]
    Closed,
    /// It is open, and whoever opens it again after TLS or SASL finds that done.
    Open,
    /// It depends on what happened.
    Unknown,
}

/// What is known at a place of a session.
#[derive(Debug, Default)]
pub(super) struct SessionFlow {
    pub(super) stream: StreamKnowledge,
    /// Elements around this place.
    pub(super) depth: usize,
    /// A first request came by.
    pub(super) started: bool,
    /// The regular expression of the last request that had one; Tsung keeps it for `ack="parse"`.
    pub(super) regexp: Option<String>,
    /// Name and password in place of the account's.
    pub(super) credentials: Option<(TextTemplate, TextTemplate)>,
    /// Variables that something sets.
    pub(super) set: HashSet<String>,
    /// Variables that something reads before anything sets them, with the line of the first place.
    pub(super) early: Vec<(String, u32)>,
    /// Table and column from which variables were last set.
    pub(super) rows: HashMap<String, (u16, u16)>,
    /// The table whose line is the account, and the variable with the name.
    pub(super) account_row: Option<(u16, String)>,
    /// `xmpp_authenticate` said who logs in.
    pub(super) given: bool,
    /// A contact was added to the roster before this place.
    pub(super) contact: bool,
    /// A message was sent before this place.
    pub(super) message: bool,
    /// The session logs in as nobody in particular.
    pub(super) anonymous: bool,
    /// The session logs in with an account.
    pub(super) login: bool,
}

impl SessionFlow {
    /// Notes that a variable is read.
    pub(super) fn uses(&mut self, name: &str, line: u32) {
        if !self.set.contains(name) && !self.early.iter().any(|(early, _)| early == name) {
            self.early.push((name.to_owned(), line));
        }
    }
}
