//! Sessions of a plan, flattened: steps that nest become jumps, expressions are compiled once for all users.
//!
//! Trap: what a loop or a transaction needs to remember is a frame of the user; every op that pushes one is matched by one
//! that pops it, and an aborted session drops them all.

use anyhow::{Result, ensure};
use regex_lite::Regex;

use crate::plan::{
    AckMode, Activity, PlanStep, ResponseMatch, StanzaPattern, TextTemplate, TimeSpan, TransportSecurity,
    UserSession, VariableCondition,
};

/// Position in a program.
pub(crate) type Pc = u16;

/// One thing to do.
pub(crate) enum Instruction {
    /// Something without a structure of its own.
    Step(&'static PlanStep),
    /// The whole login is measured from here.
    LoginBegin,
    Connect,
    StartTls,
    Authenticate {
        mechanisms: &'static [String],
        credentials: Option<&'static (TextTemplate, TextTemplate)>,
    },
    Bind {
        resource: Option<&'static TextTemplate>,
        /// Only where the login before it was one of SASL in the place of XEP-0078.
        unless_bound: bool,
    },
    /// A login of SASL2, unless a token has done it together with the stream header.
    FastLogin {
        mechanisms: &'static [String],
        manage: bool,
    },
    /// Connects again and resumes the stream.
    Resume,
    Raw(Box<RawOp>),
    WaitFor {
        pattern: CompiledPattern,
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
        condition: &'static VariableCondition,
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
        duration: Option<TimeSpan>,
        activities: &'static [Activity],
        raws: Vec<Option<RawOp>>,
    },
}

/// Raw text with its compiled conditions.
pub(crate) struct RawOp {
    pub(crate) xml: &'static TextTemplate,
    pub(crate) wait: RawWait,
    pub(crate) matches: Vec<(Regex, &'static ResponseMatch)>,
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
    Match(CompiledPattern),
}

/// A pattern, ready to be used.
pub(crate) enum CompiledPattern {
    Stanza { name: Option<&'static str>, kind: Option<&'static str>, namespace: Option<&'static str> },
    Contains(&'static TextTemplate),
    Regex(Regex),
}

/// A session, flattened.
pub(crate) struct SessionProgram {
    pub(crate) ops: Vec<Instruction>,
    pub(crate) accept_subscriptions: bool,
    /// Some step chooses from the contacts of the roster, so they are kept.
    pub(crate) contacts: bool,
}

impl SessionProgram {
    /// Flattens a session.
    ///
    /// # Errors
    /// A regular expression that is none, or more than 65 000 steps.
    pub(crate) fn new(session: &'static UserSession, security: TransportSecurity) -> Result<Self> {
        let mut compiler = SessionCompiler { ops: Vec::new(), security, contacts: false };
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

struct SessionCompiler {
    ops: Vec<Instruction>,
    security: TransportSecurity,
    contacts: bool,
}

impl SessionCompiler {
    fn here(&self) -> Pc {
        self.ops.len().min(usize::from(Pc::MAX)) as Pc
    }

    fn steps(&mut self, steps: &'static [PlanStep]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &'static PlanStep) -> Result<()> {
        match step {
            PlanStep::Connect => self.ops.push(Instruction::Connect),
            PlanStep::StartTls => self.ops.push(Instruction::StartTls),
            PlanStep::Authenticate { mechanisms, credentials } => {
                self.ops.push(Instruction::Authenticate { mechanisms, credentials: credentials.as_ref() });
            }
            PlanStep::Bind { resource } => {
                self.ops.push(Instruction::Bind { resource: resource.as_ref(), unless_bound: false });
            }
            PlanStep::LegacyAuthenticate { resource, .. } => {
                self.ops.push(Instruction::Step(step));
                self.ops.push(Instruction::Bind { resource: Some(resource), unless_bound: true });
            }
            PlanStep::Login { mechanisms, resource } => {
                self.ops.extend([Instruction::LoginBegin, Instruction::Connect]);
                if self.security == TransportSecurity::Starttls {
                    self.ops.push(Instruction::StartTls);
                }
                self.ops.push(Instruction::Authenticate { mechanisms, credentials: None });
                self.ops.push(Instruction::Bind { resource: resource.as_ref(), unless_bound: false });
            }
            PlanStep::FastLogin { mechanisms, manage } => {
                self.ops.extend([Instruction::LoginBegin, Instruction::Connect]);
                if self.security == TransportSecurity::Starttls {
                    self.ops.push(Instruction::StartTls);
                }
                self.ops.push(Instruction::FastLogin { mechanisms, manage: *manage });
            }
            PlanStep::Resume => self.ops.push(Instruction::Resume),
            PlanStep::Raw { .. } => {
                let raw = raw(step)?;
                self.ops.extend(raw.map(|raw| Instruction::Raw(Box::new(raw))));
            }
            PlanStep::WaitFor { what, timeout_ms } => {
                self.ops.push(Instruction::WaitFor { pattern: compile(what)?, timeout_ms: *timeout_ms });
            }
            PlanStep::Repeat { times, counter, first, increment, steps } => {
                let begin = self.here();
                let counter = counter.as_deref();
                self.ops.push(Instruction::LoopBegin { times: *times, first: *first, counter, end: 0 });
                self.steps(steps)?;
                self.ops.push(Instruction::LoopEnd { begin: begin + 1, increment: *increment, counter });
                self.leave(begin);
            }
            PlanStep::While { condition, after, max, steps } => {
                let begin = self.here();
                self.ops.push(Instruction::LoopBegin { times: Some(*max), first: 0, counter: None, end: 0 });
                if !after {
                    self.ops.push(Instruction::Unless { condition, exit: 0 });
                }
                self.steps(steps)?;
                if *after {
                    self.ops.push(Instruction::Unless { condition, exit: 0 });
                }
                let test = if *after { self.here() - 1 } else { begin + 1 };
                self.ops.push(Instruction::LoopEnd { begin: begin + 1, increment: 1, counter: None });
                // Whoever leaves by the condition pops the frame as well.
                let exit = self.here() + 1;
                self.ops.push(Instruction::Jump(exit + 1));
                self.ops.push(Instruction::LoopEnd { begin: Pc::MAX, increment: 0, counter: None });
                self.exit(test, exit);
                self.leave(begin);
            }
            PlanStep::If { condition, steps } => {
                let test = self.here();
                self.ops.push(Instruction::Unless { condition, exit: 0 });
                self.steps(steps)?;
                let end = self.here();
                self.exit(test, end);
            }
            PlanStep::ForEach { variable, list, steps } => {
                let begin = self.here();
                self.ops.push(Instruction::EachBegin { variable, list, end: 0 });
                self.steps(steps)?;
                self.ops.push(Instruction::EachEnd { variable, list, begin: begin + 1 });
                self.leave(begin);
            }
            PlanStep::Transaction { index, steps } => {
                self.ops.push(Instruction::TransactionBegin);
                self.steps(steps)?;
                self.ops.push(Instruction::TransactionEnd(*index));
            }
            PlanStep::Meanwhile { duration, activities } => {
                for activity in activities {
                    self.note(&activity.step);
                }
                let raws = activities.iter().map(|activity| raw(&activity.step)).collect::<Result<_>>()?;
                self.ops.push(Instruction::Meanwhile { duration: *duration, activities, raws });
            }
            other => {
                self.note(other);
                self.ops.push(Instruction::Step(other));
            }
        }
        Ok(())
    }

    fn note(&mut self, step: &PlanStep) {
        let step = match step {
            PlanStep::NoWait(inner) | PlanStep::Delivered { presence: inner, .. } => inner,
            other => other,
        };
        use crate::plan::Destination::{Contact, Full, OnlineContact};
        let to = match step {
            PlanStep::Message { to, .. } | PlanStep::RosterSet { to, .. } => Some(to),
            PlanStep::Presence { to, .. } | PlanStep::Ping { to } => to.as_ref(),
            _ => None,
        };
        let to = match to {
            Some(Full(to, _)) => Some(&**to),
            to => to,
        };
        self.contacts |= matches!(to, Some(Contact | OnlineContact));
    }

    /// The loop that begins at `begin` ends here.
    fn leave(&mut self, begin: Pc) {
        let here = self.here();
        match &mut self.ops[usize::from(begin)] {
            Instruction::LoopBegin { end, .. } | Instruction::EachBegin { end, .. } => *end = here,
            _ => {}
        }
    }

    fn exit(&mut self, test: Pc, to: Pc) {
        if let Instruction::Unless { exit, .. } = &mut self.ops[usize::from(test)] {
            *exit = to;
        }
    }
}

/// Compiles a raw step; `None` for others.
fn raw(step: &'static PlanStep) -> Result<Option<RawOp>> {
    let PlanStep::Raw { xml, ack, checks } = step else { return Ok(None) };
    let wait = match ack {
        AckMode::None => RawWait::None,
        AckMode::Any => RawWait::Any,
        AckMode::Answer | AckMode::Delivery => RawWait::Answer,
        AckMode::All => RawWait::All,
        AckMode::Match(pattern) => RawWait::Match(compile(pattern)?),
    };
    let request = matches!(xml.0.first(), Some(crate::plan::TemplatePart::Literal(text)) if text.trim_start().starts_with("<iq"));
    let legacy = |piece: &crate::plan::TemplatePart| matches!(piece, crate::plan::TemplatePart::Literal(text) if text.contains("<query xmlns='jabber:iq:auth'>"));
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

fn compile(pattern: &'static StanzaPattern) -> Result<CompiledPattern> {
    Ok(match pattern {
        StanzaPattern::Stanza { name, kind, namespace } => CompiledPattern::Stanza {
            name: name.as_deref(),
            kind: kind.as_deref(),
            namespace: namespace.as_deref(),
        },
        StanzaPattern::Contains(text) => CompiledPattern::Contains(text),
        StanzaPattern::Regex(pattern) => CompiledPattern::Regex(regex(pattern)?),
    })
}

fn regex(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| anyhow::anyhow!("{pattern:?} is no regular expression: {error}"))
}
