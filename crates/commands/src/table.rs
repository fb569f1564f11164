//! The commands of a host, by name and by node, and their registration.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::HostExtensions;
use feature_api::HostError;
use feature_api::feature::FeatureDeclaration;
use feature_api::feature::{Feature, FeatureBuilder};
use throng_core::Host;

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
#[derive(Default)]
pub struct Commands {
    list: Vec<CommandEntry>,
    names: BTreeMap<&'static str, usize>,
    nodes: BTreeMap<&'static str, usize>,
}

impl Commands {
    /// Adds a command. Error: the feature that already owns its name or its node.
    fn add(&mut self, entry: CommandEntry) -> Result<(), &'static str> {
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

static NO_COMMANDS: Commands = Commands { list: Vec::new(), names: BTreeMap::new(), nodes: BTreeMap::new() };

/// The commands of a host.
pub fn commands_of(host: &Host) -> &Commands {
    host.extensions.get().unwrap_or(&NO_COMMANDS)
}

/// The commands that a feature declares.
pub fn declared_commands(feature: &Feature) -> impl Iterator<Item = &'static Command> + use<> {
    feature.declarations.iter().filter_map(|one| (*one as &dyn Any).downcast_ref())
}

impl FeatureDeclaration for Command {
    fn check(&self, feature: &'static Feature, registered: &HostExtensions) -> Result<(), HostError> {
        let difference = if declared_commands(feature).filter(|other| other.name == self.name).count() > 1 {
            format!("declares the command {} twice; remove one", self.name)
        } else if registered.get().and_then(|all: &Commands| all.by_name(self.name)).is_none() {
            format!("declares the command {}; register it in `build`", self.name)
        } else {
            return Ok(());
        };
        Err(HostError::Undeclared(feature.name, difference))
    }
}

/// Registers handlers of declared commands while a host is built.
pub trait RegisterCommands {
    /// The handler of a declared command.
    fn command(&mut self, command: &'static Command, run: impl CommandHandler + 'static);

    /// Like [`RegisterCommands::command`], for a command whose form shows present values.
    fn command_with(
        &mut self,
        command: &'static Command,
        present: impl CurrentValuesReader + 'static,
        run: impl CommandHandler + 'static,
    );
}

impl RegisterCommands for FeatureBuilder<'_> {
    fn command(&mut self, command: &'static Command, run: impl CommandHandler + 'static) {
        let owner = self.feature.name;
        register(self, CommandEntry { command, owner, run: Arc::new(run), current_values: None });
    }

    fn command_with(
        &mut self,
        command: &'static Command,
        present: impl CurrentValuesReader + 'static,
        run: impl CommandHandler + 'static,
    ) {
        let owner = self.feature.name;
        let current_values = Some(Arc::new(present) as Arc<dyn CurrentValuesReader>);
        register(self, CommandEntry { command, owner, run: Arc::new(run), current_values });
    }
}

fn register(builder: &mut FeatureBuilder<'_>, entry: CommandEntry) {
    let (owner, name) = (entry.owner, entry.command.name);
    if !declared_commands(builder.feature).any(|declared| declared.name == name) {
        let difference = format!("registers the command {name}; add it to `declarations` of the feature");
        builder.fail(HostError::Undeclared(owner, difference));
    }
    match builder.extension::<Commands>().add(entry) {
        Ok(()) => {}
        Err(first) if first == owner => {
            let difference = format!("registers the command {name} twice; remove one");
            builder.fail(HostError::Undeclared(owner, difference));
        }
        Err(first) => {
            builder.fail(HostError::DuplicateProvider(first, owner, format!("the command {name}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CommandCall, CommandFuture, CommandOutput};
    use super::*;
    use feature_api::EnabledFeature;
    use feature_api::feature::FeatureOptions;
    use throng_core::NodeLimits;

    static PING: Command = Command { name: "ping", node: "ping", ..Command::EMPTY };
    static PONG: Command = Command { name: "pong", node: "pong", ..Command::EMPTY };

    fn nothing(_: CommandCall) -> CommandFuture {
        Box::pin(std::future::ready(Ok(CommandOutput::default())))
    }

    fn build(features: &[&'static Feature]) -> Result<Host, String> {
        let enabled: Vec<EnabledFeature> = features
            .iter()
            .map(|feature| EnabledFeature { feature, options: FeatureOptions::default() })
            .collect();
        feature_api::build_host("example.com", &enabled, &NodeLimits::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn commands_must_be_declared_and_registered_once() {
        const ONE: Feature = Feature {
            name: "one",
            declarations: &[&PING],
            build: |builder| builder.command(&PING, nothing),
            ..Feature::EMPTY
        };
        static GOOD: Feature = ONE;
        static OTHER: Feature = Feature { name: "other", ..ONE };
        static UNDECLARED: Feature = Feature { declarations: &[], ..ONE };
        static UNREGISTERED: Feature = Feature { declarations: &[&PING, &PONG], ..ONE };
        static DECLARED_TWICE: Feature = Feature { declarations: &[&PING, &PING], ..ONE };
        static REGISTERED_TWICE: Feature =
            Feature { build: |builder| (0..2).for_each(|_| builder.command(&PING, nothing)), ..ONE };
        let host = build(&[&GOOD]).unwrap();
        assert_eq!(commands_of(&host).by_node("ping").unwrap().owner, "one");
        assert_eq!(commands_of(&build(&[]).unwrap()).iter().count(), 0);
        for (features, message) in [
            (
                &[&UNDECLARED][..],
                "the feature one registers the command ping; add it to `declarations` of the feature",
            ),
            (&[&UNREGISTERED], "the feature one declares the command pong; register it in `build`"),
            (&[&DECLARED_TWICE], "the feature one declares the command ping twice; remove one"),
            (&[&REGISTERED_TWICE], "the feature one registers the command ping twice; remove one"),
            (
                &[&GOOD, &OTHER],
                "one and other both provide the command ping; disable one of them under [modules]",
            ),
        ] {
            assert_eq!(build(features).unwrap_err(), message);
        }
    }
}
