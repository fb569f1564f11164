//! Ad-Hoc Commands: XEP-0050 1.3.0, the interface of XMPP clients to the host's commands.
//!
//! Commands are declared with [`throng_commands`]. Their forms follow from the declarations (`form`), and the
//! values that a client has submitted are stored for ten minutes (`sessions`). Commands are listed and executed at
//! the domain and at the bare address of every user who may use them. A command whose fields all fit one stage
//! completes with the second request; a client that knows the fields may submit them with the first.
//!
//! A command that fails because of a value in its form still completes, with a note that gives the reason (section
//! 3.3: "if a command completes but fails"). Stanza errors are for requests that violate this protocol (section 4.4,
//! including a missing required field) and for the conditions of XEP-0133, section 5.
//!
//! Not implemented: announcing commands by message (section 2.3); languages other than English, so `bad-locale` is
//! never sent: clients put their stream's language on everything, and an English answer serves them better than none.
//!
//! # Pitfalls
//!
//! A session id proves nothing about its sender. It is valid only together with the requester's full address, the
//! requested address and the node.

mod form;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use feature_api::disco::{DiscoIdentity, DiscoInfo, DiscoItem, DiscoNode, DiscoQuery};
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use stanza::payload::data_form::DataForm;
use stanza::{StanzaCondition, StanzaError};
use throng_commands::{
    Caller, Command, CommandEntry, CommandError, CommandErrorKind, CommandInput, FieldNaming, RawArguments,
    commands_of, may_use, run_command,
};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::{Effects, Host, Node};
use xml::Ns;

use self::sessions::{CommandSession, CommandSessions, SessionBinding};

/// Ad-Hoc Commands.
pub static FEATURE: Feature = Feature {
    name: "adhoc",
    summary: "Ad-hoc commands of the server for clients.",
    specs: &[Spec {
        name: "XEP-0050",
        title: "Ad-Hoc Commands",
        version: "1.3.0",
        not_implemented: "section 2.3: announcement of commands; languages other than English",
    }],
    disco: &[DiscoFeature::Server(Ns::Commands.as_str()), DiscoFeature::Account(Ns::Commands.as_str())],
    iq: &[SERVER, OWN_ACCOUNT],
    build,
    ..Feature::EMPTY
};

const SERVER: IqKey = IqKey::set(IqTarget::Server, Ns::Commands, "command");
const OWN_ACCOUNT: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Commands, "command");
/// Prefix of the command nodes that XEP-0133 defines.
const ADMIN: &str = "http://jabber.org/protocol/admin#";

fn build(builder: &mut FeatureBuilder<'_>) {
    let sessions = builder.shared_state(CommandSessions::new);
    for key in [SERVER, OWN_ACCOUNT] {
        let sessions = sessions.clone();
        builder.iq(key, move |request: &mut IqRequest<'_>| {
            answer(&sessions, request).unwrap_or_else(|error| IqFlow::error(error.without_request()))
        });
    }
    builder.disco_node(CommandNodes);
}

/// Requested action (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Execute,
    Next,
    Prev,
    Complete,
    Cancel,
}

impl Action {
    fn parse(text: &str) -> Option<Action> {
        Some(match text {
            "execute" => Action::Execute,
            "next" => Action::Next,
            "prev" => Action::Prev,
            "complete" => Action::Complete,
            "cancel" => Action::Cancel,
            _ => return None,
        })
    }
}

/// An error of section 4.4 with its specific condition.
fn adhoc_error(condition: StanzaCondition, name: &'static str) -> StanzaError {
    StanzaError::new(condition).application_condition(Ns::Commands, name)
}

/// A command's error. Unusable values have the specific condition of section 4.4.
fn command_error(error: &CommandError) -> StanzaError {
    match error.kind {
        CommandErrorKind::Invalid => error.stanza().application_condition(Ns::Commands, "bad-payload"),
        _ => error.stanza(),
    }
}

/// Whether the command failed because of a value.
fn is_value_error(error: &CommandError) -> bool {
    matches!(
        error.kind,
        CommandErrorKind::Invalid | CommandErrorKind::NotAcceptable | CommandErrorKind::NotFound
    )
}

/// A command in progress, with everything that a reply needs.
struct CommandExecution {
    sessions: Arc<CommandSessions>,
    node: Arc<Node>,
    host: Arc<Host>,
    entry: CommandEntry,
    binding: SessionBinding,
    id: String,
}

fn answer(sessions: &Arc<CommandSessions>, request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
    let to = request.to.unwrap_or_else(|| request.from.bare());
    if to.resource().is_some() {
        return Err(StanzaCondition::ServiceUnavailable.into());
    }
    let tree = request.tree()?;
    let command = tree.root().child("command", Ns::Commands).ok_or(StanzaCondition::BadRequest)?;
    let name = command
        .attr("node")
        .ok_or_else(|| StanzaError::new(StanzaCondition::BadRequest).text("a command requires a node"))?;
    let Some(entry) = commands_of(request.host).by_node(&name) else {
        return Err(StanzaError::new(match name.starts_with(ADMIN) {
            // XEP-0133, section 5.
            true => StanzaCondition::FeatureNotImplemented,
            false => StanzaCondition::ItemNotFound,
        }));
    };
    let caller = Caller::xmpp(request.from.to_jid());
    if !may_use(request.node, request.host, entry.command, &caller) {
        // Run it anyway: it is refused there, and the refusal is logged.
        let refused = run_command(request.node, request.host, entry, caller, CommandInput::default());
        return Ok(IqFlow::Wait(Box::pin(async move {
            let error = refused.await.err().unwrap_or_else(CommandError::forbidden);
            (Err(error.stanza()), Effects::default())
        })));
    }
    let action = command.attr("action");
    let action = Action::parse(action.as_deref().unwrap_or("execute"))
        .ok_or_else(|| adhoc_error(StanzaCondition::BadRequest, "malformed-action"))?;
    let form = command.child("x", Ns::DataForms);
    let given = form
        .map(|x| DataForm::read(x).map(form::submitted_values))
        .transpose()
        .map_err(|error| adhoc_error(StanzaCondition::BadRequest, "bad-payload").text(error.to_string()))?;
    let id = command.attr("sessionid");
    let pair = SessionBinding { from: request.from.to_jid(), to: to.to_jid(), command: entry.command };
    let now = request.node.seconds();
    let begun = match &id {
        None => None,
        Some(id) => Some(sessions.take(id, &pair, now)?),
    };
    let stage = CommandExecution {
        sessions: sessions.clone(),
        node: request.node.clone(),
        host: request.host.clone(),
        entry: entry.clone(),
        id: id.map_or_else(|| sessions.new_id(&pair), |id| id.into_owned()),
        binding: pair,
    };
    match begun {
        None => stage.start(action, given),
        Some(session) => stage.continue_session(action, session, given),
    }
}

impl CommandExecution {
    fn command(&self) -> &'static Command {
        self.entry.command
    }

    /// The first request (section 2.4.1).
    fn start(self, action: Action, given: Option<RawArguments>) -> Result<IqFlow, StanzaError> {
        if action != Action::Execute {
            return Err(adhoc_error(StanzaCondition::BadRequest, "bad-sessionid"));
        }
        let session = CommandSession { stage: 0, given: RawArguments::default() };
        match (self.command().stages(), given) {
            (0, _) => Ok(self.execute(session)),
            (1, Some(given)) => Ok(self.execute(CommandSession { given, ..session })),
            _ => self.show_form(session),
        }
    }

    /// A later request (sections 2.4.2 and 2.4.3). A refused request leaves the session unchanged.
    fn continue_session(
        self,
        action: Action,
        session: CommandSession,
        given: Option<RawArguments>,
    ) -> Result<IqFlow, StanzaError> {
        let last = session.stage + 1 >= self.command().stages();
        let action = match action {
            Action::Execute if last => Action::Complete,
            Action::Execute => Action::Next,
            action => action,
        };
        let refused = |session: CommandSession, error: StanzaError| {
            self.sessions.insert(&self.id, &self.binding, session, self.node.seconds());
            Err(error)
        };
        match action {
            Action::Cancel => {
                let payload = form::canceled(self.command(), &self.id);
                Ok(IqFlow::Reply(Ok(payload)))
            }
            Action::Prev if session.stage == 0 => {
                refused(session, adhoc_error(StanzaCondition::BadRequest, "bad-action"))
            }
            Action::Prev => {
                let stage = session.stage - 1;
                self.show_form(CommandSession { stage, ..session })
            }
            Action::Next if last => refused(session, adhoc_error(StanzaCondition::BadRequest, "bad-action")),
            Action::Complete if !last && !form::may_complete(self.command(), session.stage) => {
                refused(session, adhoc_error(StanzaCondition::BadRequest, "bad-action"))
            }
            _ => {
                let Some(given) = given else {
                    let error =
                        adhoc_error(StanzaCondition::BadRequest, "bad-payload").text("the form is missing");
                    return refused(session, error);
                };
                let lacks = form::lacks_required(self.command(), session.stage, &given);
                if (lacks || action == Action::Next)
                    && let Err(error) = self.command().parse_stage(&given, FieldNaming::Var, session.stage)
                {
                    return refused(session, command_error(&error));
                }
                let given = form::merge_values(self.command(), session.stage, session.given, given);
                match action {
                    Action::Next => self.show_form(CommandSession { stage: session.stage + 1, given }),
                    _ => Ok(self.execute(CommandSession { given, ..session })),
                }
            }
        }
    }

    /// Shows the form of a stage, with its current values.
    fn show_form(self, session: CommandSession) -> Result<IqFlow, StanzaError> {
        let Some(present) = self.entry.current_values.clone().filter(|_| session.given.0.is_empty()) else {
            let payload = form::stage_form(self.command(), &self.id, &session, &[]);
            self.sessions.insert(&self.id, &self.binding, session, self.node.seconds());
            return Ok(IqFlow::Reply(Ok(payload)));
        };
        let reading = present.read(&self.node, &self.host);
        Ok(IqFlow::Wait(Box::pin(async move {
            let answer = match reading.await {
                Err(error) => Err(command_error(&error)),
                Ok(values) => {
                    let payload = form::stage_form(self.command(), &self.id, &session, &values);
                    self.sessions.insert(&self.id, &self.binding, session, self.node.seconds());
                    Ok(payload)
                }
            };
            (answer, Effects::default())
        })))
    }

    /// All values are present: executes the command. After a failure for any other reason than a value the client may
    /// retry.
    fn execute(self, session: CommandSession) -> IqFlow {
        let input = match self.command().parse_input(&session.given, FieldNaming::Var) {
            Ok(input) => input,
            Err(error)
                if (0..self.command().stages())
                    .any(|n| form::lacks_required(self.command(), n, &session.given)) =>
            {
                return IqFlow::error(command_error(&error));
            }
            Err(error) => return IqFlow::Reply(Ok(form::failed(self.command(), &self.id, &error.text))),
        };
        let caller = Caller::xmpp(self.binding.from.clone());
        let running = run_command(&self.node, &self.host, &self.entry, caller, input);
        IqFlow::Wait(Box::pin(async move {
            let answer: IqAnswer = match running.await {
                Ok(output) => Ok(form::completed(self.command(), &self.id, &output)),
                Err(error) if is_value_error(&error) => {
                    Ok(form::failed(self.command(), &self.id, &error.text))
                }
                Err(error) => {
                    if self.command().stages() > 0 {
                        self.sessions.insert(&self.id, &self.binding, session, self.node.seconds());
                    }
                    Err(command_error(&error))
                }
            };
            (answer, Effects::default())
        }))
    }
}

/// The list of commands, and each command, as nodes of XEP-0030 (XEP-0050, sections 2.1 and 2.2).
struct CommandNodes;

impl CommandNodes {
    fn entry<'a>(query: &DiscoQuery<'a>) -> Option<&'a CommandEntry> {
        commands_of(query.host).by_node(query.name)
    }

    fn is_permitted(query: &DiscoQuery<'_>, command: &Command) -> bool {
        may_use(query.node, query.host, command, &Caller::xmpp(query.from.to_jid()))
    }

    /// Other users' accounts have no commands, and neither have resources of the domain.
    fn is_own_target(query: &DiscoQuery<'_>) -> bool {
        query.target != IqTarget::Account && query.to.resource().is_none()
    }
}

impl DiscoNode for CommandNodes {
    fn contains(&self, host: &Host, name: &str) -> bool {
        name == Ns::Commands.as_str() || commands_of(host).by_node(name).is_some()
    }

    fn refusal(&self, query: &DiscoQuery<'_>) -> Option<StanzaError> {
        let entry = CommandNodes::is_own_target(query).then(|| CommandNodes::entry(query))??;
        (!CommandNodes::is_permitted(query, entry.command)).then(|| StanzaCondition::Forbidden.into())
    }

    fn info(&self, query: &DiscoQuery<'_>) -> Option<DiscoInfo> {
        if !CommandNodes::is_own_target(query) {
            return None;
        }
        let (kind, name, features) = if query.name == Ns::Commands.as_str() {
            ("command-list", "Commands", vec![Ns::DiscoItems.as_str()])
        } else {
            let command = CommandNodes::entry(query)?.command;
            ("command-node", command.title, vec![Ns::Commands.as_str(), Ns::DataForms.as_str()])
        };
        let identities = vec![DiscoIdentity { category: "automation", kind, name }];
        Some(DiscoInfo { identities, features, ..DiscoInfo::default() })
    }

    fn items(&self, query: &DiscoQuery<'_>) -> Option<Vec<DiscoItem>> {
        if !CommandNodes::is_own_target(query) {
            return None;
        }
        if query.name != Ns::Commands.as_str() {
            return CommandNodes::entry(query).map(|_| Vec::new());
        }
        let usable =
            commands_of(query.host).iter().filter(|entry| CommandNodes::is_permitted(query, entry.command));
        Some(
            usable
                .map(|entry| DiscoItem {
                    jid: query.to.as_str().to_owned(),
                    node: Some(entry.command.node.to_owned()),
                    name: entry.command.title.to_owned(),
                })
                .collect(),
        )
    }
}
