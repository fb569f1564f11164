//! Sessions of a plan, flattened: steps that nest become jumps, expressions are compiled once for all users.
//!
//! Trap: what a loop or a transaction needs to remember is a frame of the user; every op that pushes one is matched by one
//! that pops it, and an aborted session drops them all.

use anyhow::{Result, ensure};
use regex_lite::Regex;

use crate::plan::{Ack, Activity, Condition, Match, Pattern, Security, Session, Step, Text, Time};

/// Position in a program.
pub(crate) type Pc = u16;

/// One thing to do.
pub(crate) enum Op {
    /// Something without a structure of its own.
    Step(&'static Step),
    /// The whole login is measured from here.
    LoginBegin,
    Connect,
    StartTls,
    Authenticate {
        mechanisms: &'static [String],
        credentials: Option<&'static (Text, Text)>,
    },
    Bind {
        resource: Option<&'static Text>,
        /// Only where the login before it was one of SASL in the place of XEP-0078.
        unless_bound: bool,
    },
    Raw(Box<RawOp>),
    WaitFor {
        pattern: Compiled,
        timeout_ms: u64,
    },
    /// Pushes a frame with the turns that are left.
    LoopBegin {
        times: Option<u32>,
        first: i64,
        counter: Option<&'static str>,
        end: Pc,
    },
    /// Goes to `begin` again if turns are left, pops otherwise.
    LoopEnd {
        begin: Pc,
        increment: i64,
        counter: Option<&'static str>,
    },
    /// Goes to `exit` unless the condition holds.
    Unless {
        condition: &'static Condition,
        exit: Pc,
    },
    /// Pushes a frame; the variable gets the first value, or the loop is left out.
    EachBegin {
        variable: &'static str,
        list: &'static str,
        end: Pc,
    },
    EachEnd {
        variable: &'static str,
        list: &'static str,
        begin: Pc,
    },
    Jump(Pc),
    TransactionBegin,
    TransactionEnd(u16),
    Meanwhile {
        duration: Option<Time>,
        activities: &'static [Activity],
        raws: Vec<Option<RawOp>>,
    },
}

/// Raw text with its compiled conditions.
pub(crate) struct RawOp {
    pub(crate) xml: &'static Text,
    pub(crate) wait: RawWait,
    pub(crate) matches: Vec<(Regex, &'static Match)>,
    pub(crate) captures: Vec<(&'static str, Regex)>,
    /// The text begins like a request, so its answer is measured as one.
    pub(crate) request: bool,
    /// It asks for the fields of a login of XEP-0078 (section 3.1), which only some servers still know.
    pub(crate) legacy: bool,
}

/// What raw text waits for.
pub(crate) enum RawWait {
    None,
    Any,
    /// The answer with the `id` of what was sent; any stanza if that has none.
    Answer,
    All,
    Match(Compiled),
}

/// A pattern, ready to be used.
pub(crate) enum Compiled {
    Stanza { name: Option<&'static str>, kind: Option<&'static str>, namespace: Option<&'static str> },
    Contains(&'static Text),
    Regex(Regex),
}

/// A session, flattened.
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    pub(crate) accept_subscriptions: bool,
    /// Some step chooses from the contacts of the roster, so they are kept.
    pub(crate) contacts: bool,
}

impl Program {
    /// Flattens a session.
    ///
    /// # Errors
    /// A regular expression that is none, or more than 65 000 steps.
    pub(crate) fn new(session: &'static Session, security: Security) -> Result<Self> {
        let mut compiler = Compiler { ops: Vec::new(), security, contacts: false };
        compiler.steps(&session.steps)?;
        ensure!(
            compiler.ops.len() < usize::from(Pc::MAX),
            "the session {} has more than 65 000 steps",
            session.name
        );
        Ok(Self {
            ops: compiler.ops,
            accept_subscriptions: session.accept_subscriptions,
            contacts: compiler.contacts,
        })
    }
}

struct Compiler {
    ops: Vec<Op>,
    security: Security,
    contacts: bool,
}

impl Compiler {
    fn here(&self) -> Pc {
        self.ops.len().min(usize::from(Pc::MAX)) as Pc
    }

    fn steps(&mut self, steps: &'static [Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &'static Step) -> Result<()> {
        match step {
            Step::Connect => self.ops.push(Op::Connect),
            Step::StartTls => self.ops.push(Op::StartTls),
            Step::Authenticate { mechanisms, credentials } => {
                self.ops.push(Op::Authenticate { mechanisms, credentials: credentials.as_ref() });
            }
            Step::Bind { resource } => {
                self.ops.push(Op::Bind { resource: resource.as_ref(), unless_bound: false });
            }
            Step::LegacyAuthenticate { resource, .. } => {
                self.ops.push(Op::Step(step));
                self.ops.push(Op::Bind { resource: Some(resource), unless_bound: true });
            }
            Step::Login { mechanisms, resource } => {
                self.ops.extend([Op::LoginBegin, Op::Connect]);
                if self.security == Security::Starttls {
                    self.ops.push(Op::StartTls);
                }
                self.ops.push(Op::Authenticate { mechanisms, credentials: None });
                self.ops.push(Op::Bind { resource: resource.as_ref(), unless_bound: false });
            }
            Step::Raw { .. } => {
                let raw = raw(step)?;
                self.ops.extend(raw.map(|raw| Op::Raw(Box::new(raw))));
            }
            Step::WaitFor { what, timeout_ms } => {
                self.ops.push(Op::WaitFor { pattern: compile(what)?, timeout_ms: *timeout_ms });
            }
            Step::Repeat { times, counter, first, increment, steps } => {
                let begin = self.here();
                let counter = counter.as_deref();
                self.ops.push(Op::LoopBegin { times: *times, first: *first, counter, end: 0 });
                self.steps(steps)?;
                self.ops.push(Op::LoopEnd { begin: begin + 1, increment: *increment, counter });
                self.leave(begin);
            }
            Step::While { condition, after, max, steps } => {
                let begin = self.here();
                self.ops.push(Op::LoopBegin { times: Some(*max), first: 0, counter: None, end: 0 });
                if !after {
                    self.ops.push(Op::Unless { condition, exit: 0 });
                }
                self.steps(steps)?;
                if *after {
                    self.ops.push(Op::Unless { condition, exit: 0 });
                }
                let test = if *after { self.here() - 1 } else { begin + 1 };
                self.ops.push(Op::LoopEnd { begin: begin + 1, increment: 1, counter: None });
                // Whoever leaves by the condition pops the frame as well.
                let exit = self.here() + 1;
                self.ops.push(Op::Jump(exit + 1));
                self.ops.push(Op::LoopEnd { begin: Pc::MAX, increment: 0, counter: None });
                self.exit(test, exit);
                self.leave(begin);
            }
            Step::If { condition, steps } => {
                let test = self.here();
                self.ops.push(Op::Unless { condition, exit: 0 });
                self.steps(steps)?;
                let end = self.here();
                self.exit(test, end);
            }
            Step::ForEach { variable, list, steps } => {
                let begin = self.here();
                self.ops.push(Op::EachBegin { variable, list, end: 0 });
                self.steps(steps)?;
                self.ops.push(Op::EachEnd { variable, list, begin: begin + 1 });
                self.leave(begin);
            }
            Step::Transaction { index, steps } => {
                self.ops.push(Op::TransactionBegin);
                self.steps(steps)?;
                self.ops.push(Op::TransactionEnd(*index));
            }
            Step::Meanwhile { duration, activities } => {
                for activity in activities {
                    self.note(&activity.step);
                }
                let raws = activities.iter().map(|activity| raw(&activity.step)).collect::<Result<_>>()?;
                self.ops.push(Op::Meanwhile { duration: *duration, activities, raws });
            }
            other => {
                self.note(other);
                self.ops.push(Op::Step(other));
            }
        }
        Ok(())
    }

    fn note(&mut self, step: &Step) {
        let step = if let Step::NoWait(inner) = step { inner } else { step };
        use crate::plan::Destination::{Contact, OnlineContact};
        let to = match step {
            Step::Message { to, .. } | Step::RosterSet { to, .. } => Some(to),
            Step::Presence { to, .. } | Step::Ping { to } => to.as_ref(),
            _ => None,
        };
        self.contacts |= matches!(to, Some(Contact | OnlineContact));
    }

    /// The loop that begins at `begin` ends here.
    fn leave(&mut self, begin: Pc) {
        let here = self.here();
        match &mut self.ops[usize::from(begin)] {
            Op::LoopBegin { end, .. } | Op::EachBegin { end, .. } => *end = here,
            _ => {}
        }
    }

    fn exit(&mut self, test: Pc, to: Pc) {
        if let Op::Unless { exit, .. } = &mut self.ops[usize::from(test)] {
            *exit = to;
        }
    }
}

/// Compiles a raw step; `None` for others.
fn raw(step: &'static Step) -> Result<Option<RawOp>> {
    let Step::Raw { xml, ack, checks } = step else { return Ok(None) };
    let wait = match ack {
        Ack::None => RawWait::None,
        Ack::Any => RawWait::Any,
        Ack::Answer | Ack::Delivery => RawWait::Answer,
        Ack::All => RawWait::All,
        Ack::Match(pattern) => RawWait::Match(compile(pattern)?),
    };
    let request = matches!(xml.0.first(), Some(crate::plan::Piece::Literal(text)) if text.trim_start().starts_with("<iq"));
    let legacy = |piece: &crate::plan::Piece| matches!(piece, crate::plan::Piece::Literal(text) if text.contains("<query xmlns='jabber:iq:auth'>"));
    let legacy =
        request && checks.matches.is_empty() && checks.captures.is_empty() && xml.0.iter().any(legacy);
    Ok(Some(RawOp {
        legacy,
        xml,
        wait,
        matches: checks
            .matches
            .iter()
            .map(|check| Ok((regex(&check.regex)?, check)))
            .collect::<Result<_>>()?,
        captures: checks
            .captures
            .iter()
            .map(|(variable, pattern)| Ok((variable.as_str(), regex(pattern)?)))
            .collect::<Result<_>>()?,
        request,
    }))
}

fn compile(pattern: &'static Pattern) -> Result<Compiled> {
    Ok(match pattern {
        Pattern::Stanza { name, kind, namespace } => {
            Compiled::Stanza { name: name.as_deref(), kind: kind.as_deref(), namespace: namespace.as_deref() }
        }
        Pattern::Contains(text) => Compiled::Contains(text),
        Pattern::Regex(pattern) => Compiled::Regex(regex(pattern)?),
    })
}

fn regex(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| anyhow::anyhow!("{pattern:?} is no regular expression: {error}"))
}
