//! Compiler from the sessions of a plan to flat programs: nested steps become jumps, expressions are compiled once for
//! all users.
//!
//! # Pitfalls
//!
//! Loop and transaction state is a control frame of the user. Every instruction that pushes one is matched by one that
//! pops it, and an aborted session drops them all.

use anyhow::{Result, ensure};
use regex_lite::Regex;

use crate::plan::{
    AckMode, Activity, PlanStep, ResponseMatch, StanzaPattern, TextTemplate, TimeSpan, TransportSecurity,
    UserSession, VariableCondition,
};

/// Position in a program.
pub(crate) type Pc = u16;

/// One instruction.
pub(crate) enum Instruction<'p> {
    /// A step without nested steps.
    Step(&'p PlanStep),
    /// Start of the measurement of the whole login.
    LoginBegin,
    Connect,
    StartTls,
    Authenticate {
        mechanisms: &'p [String],
        credentials: Option<&'p (TextTemplate, TextTemplate)>,
    },
    Bind {
        resource: Option<&'p TextTemplate>,
        /// Only after a login with SASL in place of XEP-0078.
        unless_bound: bool,
    },
    /// SASL2 login, unless a token has already done it together with the stream header.
    FastLogin {
        mechanisms: &'p [String],
        manage: bool,
    },
    /// Reconnects and resumes the stream.
    Resume,
    Raw(Box<RawOp<'p>>),
    WaitFor {
        pattern: CompiledPattern<'p>,
        timeout_ms: u64,
    },
    /// Pushes a frame with the remaining iterations.
    LoopBegin {
        times: Option<u32>,
        first: i64,
        counter: Option<&'p str>,
        end: Pc,
    },
    /// Jumps to `begin` if iterations are left, pops otherwise.
    LoopEnd {
        begin: Pc,
        increment: i64,
        counter: Option<&'p str>,
    },
    /// Jumps to `exit` unless the condition holds.
    Unless {
        condition: &'p VariableCondition,
        exit: Pc,
    },
    /// Pushes a frame and assigns the first value to the variable, or skips the loop.
    EachBegin {
        variable: &'p str,
        list: &'p str,
        end: Pc,
    },
    EachEnd {
        variable: &'p str,
        list: &'p str,
        begin: Pc,
    },
    Jump(Pc),
    TransactionBegin,
    TransactionEnd(u16),
    Meanwhile {
        duration: Option<TimeSpan>,
        activities: &'p [Activity],
        raws: Vec<Option<RawOp<'p>>>,
    },
}

/// Raw text with its compiled conditions.
pub(crate) struct RawOp<'p> {
    pub(crate) xml: &'p TextTemplate,
    pub(crate) wait: RawWait<'p>,
    pub(crate) matches: Vec<(Regex, &'p ResponseMatch)>,
    pub(crate) captures: Vec<(&'p str, Regex)>,
    /// The text starts like a request, so its response is measured as one.
    pub(crate) request: bool,
    /// It requests the fields of an XEP-0078 login (section 3.1), which only some servers still support.
    pub(crate) legacy: bool,
}

/// Stanza that raw text waits for.
pub(crate) enum RawWait<'p> {
    None,
    Any,
    /// The response with the `id` of what was sent; any stanza if that has none.
    Answer,
    All,
    /// The server's acknowledgement (XEP-0198).
    Acknowledged,
    Match(CompiledPattern<'p>),
}

/// A compiled pattern.
pub(crate) enum CompiledPattern<'p> {
    Stanza { name: Option<&'p str>, kind: Option<&'p str>, namespace: Option<&'p str> },
    Contains(&'p TextTemplate),
    Regex(Regex),
}

/// A compiled session.
pub(crate) struct SessionProgram<'p> {
    pub(crate) ops: Vec<Instruction<'p>>,
    pub(crate) accept_subscriptions: bool,
    /// Some step chooses from the roster's contacts, so they are kept.
    pub(crate) contacts: bool,
}

impl<'p> SessionProgram<'p> {
    /// Compiles a session.
    ///
    /// # Errors
    /// An invalid regular expression, or more than 65 000 steps.
    pub(crate) fn new(session: &'p UserSession, security: TransportSecurity) -> Result<Self> {
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

struct SessionCompiler<'p> {
    ops: Vec<Instruction<'p>>,
    security: TransportSecurity,
    contacts: bool,
}

impl<'p> SessionCompiler<'p> {
    fn here(&self) -> Pc {
        self.ops.len().min(usize::from(Pc::MAX)) as Pc
    }

    fn steps(&mut self, steps: &'p [PlanStep]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &'p PlanStep) -> Result<()> {
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
                // An exit by the condition pops the frame as well.
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

    /// Ends the loop that starts at `begin`.
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
fn raw<'p>(step: &'p PlanStep) -> Result<Option<RawOp<'p>>> {
    let PlanStep::Raw { xml, ack, checks } = step else { return Ok(None) };
    let wait = match ack {
        AckMode::None => RawWait::None,
        AckMode::Any => RawWait::Any,
        AckMode::Answer | AckMode::Delivery => RawWait::Answer,
        AckMode::All => RawWait::All,
        AckMode::Acknowledged => RawWait::Acknowledged,
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

fn compile<'p>(pattern: &'p StanzaPattern) -> Result<CompiledPattern<'p>> {
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
    Regex::new(pattern)
        .map_err(|error| anyhow::anyhow!("\"{pattern}\" is not a valid regular expression: {error}"))
}
