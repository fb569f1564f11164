//! The commands of a host, by name and by node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Command, CommandHandler, CurrentValuesReader};

/// A command with its handler.
#[derive(Clone)]
pub struct CommandEntry {
    /// The declaration.
    pub command: &'static Command,
    /// The feature that owns it.
    pub owner: &'static str,
    /// The handler.
    pub run: Arc<dyn CommandHandler>,
    /// Reads the present values of its fields.
    pub current_values: Option<Arc<dyn CurrentValuesReader>>,
}

/// All commands of a host, in registry order.
#[derive(Clone, Default)]
pub struct Commands {
    list: Vec<CommandEntry>,
    names: BTreeMap<&'static str, usize>,
    nodes: BTreeMap<&'static str, usize>,
}

impl Commands {
    /// Adds a command.
    ///
    /// # Errors
    /// The feature that already owns its name or its node.
    pub fn add(&mut self, entry: CommandEntry) -> Result<(), &'static str> {
        let taken = self.names.get(entry.command.name).or_else(|| self.nodes.get(entry.command.node));
        if let Some(at) = taken {
            return Err(self.list[*at].owner);
        }
        self.names.insert(entry.command.name, self.list.len());
        self.nodes.insert(entry.command.node, self.list.len());
        self.list.push(entry);
        Ok(())
    }

    /// The command with this name.
    pub fn by_name(&self, name: &str) -> Option<&CommandEntry> {
        self.names.get(name).map(|at| &self.list[*at])
    }

    /// The command with this node.
    pub fn by_node(&self, node: &str) -> Option<&CommandEntry> {
        self.nodes.get(node).map(|at| &self.list[*at])
    }

    /// All commands.
    pub fn iter(&self) -> impl Iterator<Item = &CommandEntry> + '_ {
        self.list.iter()
    }
}
