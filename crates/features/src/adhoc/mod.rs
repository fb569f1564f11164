//! Ad-Hoc Commands: XEP-0050 1.3.0, the door to the host's commands for XMPP clients.
//!
//! The commands themselves are declared elsewhere ([`throng_core::command`]); their forms follow from the declarations
//! (`form`), and what a client has said so far is kept for ten minutes (`sessions`). They are listed and carried out at the
//! domain and at the bare address of whoever may use them. A command whose fields all fit one stage is done with the second
//! request; a client that knows them may submit with the first.
//!
//! Left out: announcing commands by message (section 2.3); languages other than English, so `bad-locale` is never sent:
//! clients send their stream's language with everything, and an English answer serves them better than none.
//!
//! A command that fails on a value of its form is completed all the same, with a note that says why (section 3.3: "if a
//! command completes but fails"). Errors of stanzas are for requests that this protocol cannot take (section 4.4, a required
//! field that is missing among them) and for the conditions of XEP-0133 section 5.
//!
//! The trap: whoever sends a session id has proved nothing by it. It counts only together with the requester's full
//! address, the address that was asked, and the node.

mod form;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use stanza::payload::data_form::Form;
use stanza::{StanzaCondition, StanzaError};
use throng_core::command::{Caller, Command, CommandError, Entry, Given, Input, Key, Why};
use throng_core::disco::{DiscoInfo, DiscoNode, DiscoQuery, Identity, Item};
use throng_core::feature::{Builder, Disco, Feature, Spec};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, Target};
use throng_core::{Effects, Host, Node};
use xml::Ns;

use self::sessions::{Pair, Session, Sessions};

/// Ad-Hoc Commands.
pub static FEATURE: Feature = Feature {
    name: "adhoc",
    summary: "Lets clients use the server's commands.",
    specs: &[Spec {
        name: "XEP-0050",
        title: "Ad-Hoc Commands",
        version: "1.3.0",
        left_out: "section 2.3: announcing commands; languages other than English",
    }],
    disco: &[Disco::Server(Ns::Commands.as_str()), Disco::Account(Ns::Commands.as_str())],
    iq: &[SERVER, OWN],
    build,
    ..Feature::EMPTY
};

const SERVER: IqKey = IqKey::set(Target::Server, Ns::Commands, "command");
const OWN: IqKey = IqKey::set(Target::OwnAccount, Ns::Commands, "command");
/// Nodes that XEP-0133 gives out.
const ADMIN: &str = "http://jabber.org/protocol/admin#";

fn build(builder: &mut Builder<'_>) {
    let sessions = builder.kept(Sessions::new);
    for key in [SERVER, OWN] {
        let sessions = sessions.clone();
        builder.iq(key, move |request: &mut IqRequest<'_>| {
            answer(&sessions, request).unwrap_or_else(|error| IqFlow::error(error.without_request()))
        });
    }
    builder.disco_node(List);
}

/// What the client wants (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Execute,
    Next,
    Prev,
    Complete,
    Cancel,
}

impl Action {
    fn of(text: &str) -> Option<Action> {
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
fn specific(condition: StanzaCondition, name: &'static str) -> StanzaError {
    StanzaError::new(condition).application(Ns::Commands.as_str(), name)
}

/// A command's error; values that cannot be used have the specific condition of section 4.4.
fn translate(error: &CommandError) -> StanzaError {
    match error.why {
        Why::Invalid => error.stanza().application(Ns::Commands.as_str(), "bad-payload"),
        _ => error.stanza(),
    }
}

/// Whether it is a value that the command failed on.
fn is_about_a_value(error: &CommandError) -> bool {
    matches!(error.why, Why::Invalid | Why::NotAcceptable | Why::NotFound)
}

/// A command under way, with all that an answer needs.
struct Stage {
    sessions: Arc<Sessions>,
    node: Arc<Node>,
    host: Arc<Host>,
    entry: Entry,
    pair: Pair,
    id: String,
}

fn answer(sessions: &Arc<Sessions>, request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
    let to = request.to.unwrap_or_else(|| request.from.bare());
    if to.resource().is_some() {
        return Err(StanzaCondition::ServiceUnavailable.into());
    }
    let tree = request.tree()?;
    let command = tree.root().child("command", Ns::Commands).ok_or(StanzaCondition::BadRequest)?;
    let name = command
        .attr("node")
        .ok_or_else(|| StanzaError::new(StanzaCondition::BadRequest).text("a command has a node"))?;
    let Some(entry) = request.host.commands.at_node(&name) else {
        return Err(StanzaError::new(match name.starts_with(ADMIN) {
            // XEP-0133 section 5.
            true => StanzaCondition::FeatureNotImplemented,
            false => StanzaCondition::ItemNotFound,
        }));
    };
    let caller = Caller::xmpp(request.from.to_jid());
    if !request.node.may_use(request.host, entry.command, &caller) {
        // Carried out all the same: it is refused there, and logged.
        let refused = request.node.run_command(request.host, entry, caller, Input::default());
        return Ok(IqFlow::Wait(Box::pin(async move {
            let error = refused.await.err().unwrap_or_else(CommandError::forbidden);
            (Err(error.stanza()), Effects::default())
        })));
    }
    let action = command.attr("action");
    let action = Action::of(action.as_deref().unwrap_or("execute"))
        .ok_or_else(|| specific(StanzaCondition::BadRequest, "malformed-action"))?;
    let form = command.child("x", Ns::DataForms);
    let given = form
        .map(|x| Form::read(x).map(form::given))
        .transpose()
        .map_err(|error| specific(StanzaCondition::BadRequest, "bad-payload").text(error.to_string()))?;
    let id = command.attr("sessionid");
    let pair = Pair { from: request.from.to_jid(), to: to.to_jid(), command: entry.command };
    let now = request.node.seconds();
    let begun = match &id {
        None => None,
        Some(id) => Some(sessions.take(id, &pair, now)?),
    };
    let stage = Stage {
        sessions: sessions.clone(),
        node: request.node.clone(),
        host: request.host.clone(),
        entry: entry.clone(),
        id: id.map_or_else(|| sessions.id(&pair), |id| id.into_owned()),
        pair,
    };
    match begun {
        None => stage.begin(action, given),
        Some(session) => stage.go_on(action, session, given),
    }
}

impl Stage {
    fn command(&self) -> &'static Command {
        self.entry.command
    }

    /// The first request (section 2.4.1).
    fn begin(self, action: Action, given: Option<Given>) -> Result<IqFlow, StanzaError> {
        if action != Action::Execute {
            return Err(specific(StanzaCondition::BadRequest, "bad-sessionid"));
        }
        let session = Session { stage: 0, given: Given::default() };
        match (self.command().stages(), given) {
            (0, _) => Ok(self.run(session)),
            (1, Some(given)) => Ok(self.run(Session { given, ..session })),
            _ => self.show(session),
        }
    }

    /// A later request (sections 2.4.2 and 2.4.3). What is refused leaves the session as it was.
    fn go_on(self, action: Action, session: Session, given: Option<Given>) -> Result<IqFlow, StanzaError> {
        let last = session.stage + 1 >= self.command().stages();
        let action = match action {
            Action::Execute if last => Action::Complete,
            Action::Execute => Action::Next,
            action => action,
        };
        let refused = |session: Session, error: StanzaError| {
            self.sessions.put(&self.id, &self.pair, session, self.node.seconds());
            Err(error)
        };
        match action {
            Action::Cancel => {
                let payload = form::canceled(self.command(), &self.id);
                Ok(IqFlow::Reply(Ok(payload)))
            }
            Action::Prev if session.stage == 0 => {
                refused(session, specific(StanzaCondition::BadRequest, "bad-action"))
            }
            Action::Prev => {
                let stage = session.stage - 1;
                self.show(Session { stage, ..session })
            }
            Action::Next if last => refused(session, specific(StanzaCondition::BadRequest, "bad-action")),
            Action::Complete if !last && !form::may_complete(self.command(), session.stage) => {
                refused(session, specific(StanzaCondition::BadRequest, "bad-action"))
            }
            _ => {
                let Some(given) = given else {
                    let error =
                        specific(StanzaCondition::BadRequest, "bad-payload").text("the form is missing");
                    return refused(session, error);
                };
                let lacks = form::lacks(self.command(), session.stage, &given);
                if (lacks || action == Action::Next)
                    && let Err(error) = self.command().read_stage(&given, Key::Var, session.stage)
                {
                    return refused(session, translate(&error));
                }
                let given = form::merge(self.command(), session.stage, session.given, given);
                match action {
                    Action::Next => self.show(Session { stage: session.stage + 1, given }),
                    _ => Ok(self.run(Session { given, ..session })),
                }
            }
        }
    }

    /// Shows the form of a stage, with the values that are there.
    fn show(self, session: Session) -> Result<IqFlow, StanzaError> {
        let Some(present) = self.entry.present.clone().filter(|_| session.given.0.is_empty()) else {
            let payload = form::stage(self.command(), &self.id, &session, &[]);
            self.sessions.put(&self.id, &self.pair, session, self.node.seconds());
            return Ok(IqFlow::Reply(Ok(payload)));
        };
        let reading = present.read(&self.node, &self.host);
        Ok(IqFlow::Wait(Box::pin(async move {
            let answer = match reading.await {
                Err(error) => Err(translate(&error)),
                Ok(values) => {
                    let payload = form::stage(self.command(), &self.id, &session, &values);
                    self.sessions.put(&self.id, &self.pair, session, self.node.seconds());
                    Ok(payload)
                }
            };
            (answer, Effects::default())
        })))
    }

    /// All is said: carries the command out. If that fails for another reason than a value, the client may try again.
    fn run(self, session: Session) -> IqFlow {
        let input = match self.command().read(&session.given, Key::Var) {
            Ok(input) => input,
            Err(error)
                if (0..self.command().stages()).any(|n| form::lacks(self.command(), n, &session.given)) =>
            {
                return IqFlow::error(translate(&error));
            }
            Err(error) => return IqFlow::Reply(Ok(form::failed(self.command(), &self.id, &error.text))),
        };
        let caller = Caller::xmpp(self.pair.from.clone());
        let running = self.node.run_command(&self.host, &self.entry, caller, input);
        IqFlow::Wait(Box::pin(async move {
            let answer: IqAnswer = match running.await {
                Ok(output) => Ok(form::completed(self.command(), &self.id, &output)),
                Err(error) if is_about_a_value(&error) => {
                    Ok(form::failed(self.command(), &self.id, &error.text))
                }
                Err(error) => {
                    if self.command().stages() > 0 {
                        self.sessions.put(&self.id, &self.pair, session, self.node.seconds());
                    }
                    Err(translate(&error))
                }
            };
            (answer, Effects::default())
        }))
    }
}

/// The list of commands, and each of them, as nodes of XEP-0030 (sections 2.1 and 2.2).
struct List;

impl List {
    fn entry<'a>(query: &DiscoQuery<'a>) -> Option<&'a Entry> {
        query.host.commands.at_node(query.name)
    }
    fn may(query: &DiscoQuery<'_>, command: &Command) -> bool {
        query.node.may_use(query.host, command, &Caller::xmpp(query.from.to_jid()))
    }
    /// Others' accounts have no commands, and resources of the domain are nobody.
    fn here(query: &DiscoQuery<'_>) -> bool {
        query.target != Target::Account && query.to.resource().is_none()
    }
}

impl DiscoNode for List {
    fn refusal(&self, query: &DiscoQuery<'_>) -> Option<StanzaError> {
        let entry = List::here(query).then(|| List::entry(query))??;
        (!List::may(query, entry.command)).then(|| StanzaCondition::Forbidden.into())
    }

    fn info(&self, query: &DiscoQuery<'_>) -> Option<DiscoInfo> {
        if !List::here(query) {
            return None;
        }
        let (kind, name, features) = if query.name == Ns::Commands.as_str() {
            ("command-list", "Commands", vec![Ns::DiscoItems.as_str()])
        } else {
            let command = List::entry(query)?.command;
            ("command-node", command.title, vec![Ns::Commands.as_str(), Ns::DataForms.as_str()])
        };
        let identities = vec![Identity { category: "automation", kind, name }];
        Some(DiscoInfo { identities, features, ..DiscoInfo::default() })
    }

    fn items(&self, query: &DiscoQuery<'_>) -> Option<Vec<Item>> {
        if !List::here(query) {
            return None;
        }
        if query.name != Ns::Commands.as_str() {
            return List::entry(query).map(|_| Vec::new());
        }
        let usable = query.host.commands.iter().filter(|entry| List::may(query, entry.command));
        Some(
            usable
                .map(|entry| Item {
                    jid: query.to.as_str().to_owned(),
                    node: Some(entry.command.node.to_owned()),
                    name: entry.command.title.to_owned(),
                })
                .collect(),
        )
    }
}
