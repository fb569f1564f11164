//! Importer of Tsung scenario files as plans.
//!
//! Reads the XML of Tsung 1.7 and 1.8 (`tsung-1.0.dtd`) as far as it concerns XMPP, unchanged: document type, entities
//! (also of other files) and comments included. Features that a plan cannot express are either ignored and reported
//! ([`ImportNote`]) or refused by name ([`PlanError`]), always with the line and before the first connection;
//! `docs/tsung.md` has the complete table. Streams use TCP, BOSH or WebSocket, according to the servers' type.
//! Semantics and default values are those of Tsung's own reader and client, not of its manual where the two differ.
//!
//! Not implemented: every protocol but XMPP, and of XMPP: digest logins of XEP-0078 (whose sessions are skipped if
//! others remain).
//!
//! # Pitfalls
//!
//! Tsung reopens the stream with a second `connect` after TLS and SASL; the steps of a plan do that implicitly, so such
//! a `connect` produces no step. An IQ with `ack="local"` waits for its own response here, whereas Tsung accepts any
//! packet.

mod accounts;
mod arguments;
mod checks;
mod dynvars;
mod load;
mod names;
mod network;
mod options;
mod pubsub_request;
mod reader;
mod request;
mod room_request;
mod session;
mod session_flow;
mod source;
mod text;

use std::fmt;
use std::io;

use reader::TsungReader;
use source::ScenarioSource;

use crate::plan::{LoadPlan, PlanError, PlanOverrides};

/// Part of a scenario that is ignored, or handled differently.
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

/// Whether the text is a Tsung scenario: XML with the root element `tsung`. Checks nothing else.
pub fn is_scenario(text: &str) -> bool {
    source::root_name(text) == Some("tsung")
}

/// Reads a scenario. `name` is the name of the run, `files` reads the files named by the scenario (CSV, certificates,
/// external entities). Returns the plan and notes on ignored parts, or all errors in order of lines.
pub fn read(
    text: &str,
    name: &str,
    arguments: &PlanOverrides,
    files: &mut dyn FnMut(&str) -> io::Result<String>,
) -> Result<(LoadPlan, Vec<ImportNote>), Vec<PlanError>> {
    let source = ScenarioSource::new(text, files).map_err(|error| vec![error])?;
    let document = source.parse().map_err(|error| vec![error])?;
    let mut reader = TsungReader::new(&source, files);
    let plan = reader.scenario(document.root_element(), name, arguments);
    reader.finish(plan)
}
