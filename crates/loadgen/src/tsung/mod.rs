//! Tsung scenario files become plans.
//!
//! Reads the XML of Tsung 1.7 and 1.8 (`tsung-1.0.dtd`) as far as it concerns XMPP, unchanged: document
//! type, entities (also of other files) and comments included. What a plan cannot hold is either ignored and said
//! ([`ImportNote`]) or refused by name ([`PlanError`]), always with its line and before the first connection; `docs/tsung.md` has
//! the whole table. Streams go over TCP, BOSH or WebSocket, as the servers' type says. Semantics and default values are those of Tsung's own reader and client, not of its manual where the
//! two differ. Left out: every protocol but XMPP, and of XMPP: MUC, PubSub, digest logins of XEP-0078 (whose sessions are left out where others remain).
//!
//! Trap: Tsung opens the stream again by a second `connect` after TLS and SASL; the steps of a plan do that by themselves,
//! so such a `connect` becomes no step. And an IQ with `ack="local"` waits for its own answer here, where Tsung takes any
//! packet for it.

mod accounts;
mod arguments;
mod checks;
mod dynvars;
mod load;
mod names;
mod network;
mod options;
mod reader;
mod request;
mod session;
mod session_flow;
mod source;
mod text;

use std::fmt;
use std::io;

use crate::plan::{LoadPlan, PlanError, PlanOverrides};
use reader::TsungReader;
use source::ScenarioSource;

/// Something in a scenario that this version reads over, or does in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportNote {
    /// Line of the file, from 1; `None` if it comes from the command line.
    pub line: Option<u32>,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for ImportNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Whether the text is a Tsung scenario: XML with the root element `tsung`. Looks no further than that.
pub fn is_scenario(text: &str) -> bool {
    source::root_name(text) == Some("tsung")
}

/// Reads a scenario. `name` is what the run is called, `files` reads the files that the scenario names (CSV, certificates,
/// external entities). Gives the plan and what was ignored, or everything that is wrong, in the order of lines.
pub fn read(
    text: &str,
    name: &str,
    arguments: &PlanOverrides,
    files: &mut dyn FnMut(&str) -> io::Result<String>,
) -> Result<(LoadPlan, Vec<ImportNote>), Vec<PlanError>> {
    let source = ScenarioSource::new(text, files).map_err(|mistake| vec![mistake])?;
    let document = source.parse().map_err(|mistake| vec![mistake])?;
    let mut reader = TsungReader::new(&source, files);
    let plan = reader.scenario(document.root_element(), name, arguments);
    reader.finish(plan)
}
