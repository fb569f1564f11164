//! Application of the command line's values to a plan.
//!
//! Values that a plan refers to by word (connections, accounts) are applied earlier, while it is read.

use super::{
    Activity, LoadPlan, MessageBody, PlanOverrides, PlanStep, PlanTls, PubSubStep, RoomStep,
    TransportSecurity,
};

/// Applies the overrides. Times are wall-clock times; scale the plan before.
pub(crate) fn apply(plan: &mut LoadPlan, arguments: &PlanOverrides) {
    let target = &mut plan.target;
    if !arguments.addresses.is_empty() {
        target.addresses.clone_from(&arguments.addresses);
    }
    if !arguments.sources.is_empty() {
        target.sources.clone_from(&arguments.sources);
    }
    if let Some(endpoint) = &arguments.endpoint {
        target.security = endpoint.security;
        target.web.transport = endpoint.transport;
        target.web.host.clone_from(&endpoint.host);
        if !endpoint.path.is_empty() {
            target.web.path.clone_from(&endpoint.path);
        }
    } else if !arguments.addresses.is_empty() {
        // The plan's settings for another server do not apply to this one.
        target.web.host.clear();
    }
    target.web.sockets = arguments.sockets.or(target.web.sockets);
    match arguments.security {
        // HTTP has no STARTTLS to negotiate: the URL decides whether there is TLS.
        Some(TransportSecurity::Auto) if target.web.transport.is_web() => {}
        Some(security) => target.security = security,
        None => {}
    }
    if target.web.transport.is_web() && target.security == TransportSecurity::Auto {
        target.security = TransportSecurity::None;
    }
    if let Some(tls) = &arguments.tls {
        let own = std::mem::take(&mut target.tls);
        target.tls = PlanTls {
            ca_pem: tls.ca_pem.clone().or(own.ca_pem),
            certificate_pem: tls.certificate_pem.clone().or(own.certificate_pem),
            key_pem: tls.key_pem.clone().or(own.key_pem),
            resume: tls.resume || own.resume,
            only_tls12: tls.only_tls12 || own.only_tls12,
        };
    }
    let options = &mut plan.options;
    options.duration_ms = arguments.duration_ms.or(options.duration_ms);
    options.hold_ms = arguments.hold_ms.or(options.hold_ms);
    options.acceptable_ms = arguments.acceptable_ms.unwrap_or(options.acceptable_ms);
    options.seed = arguments.seed.unwrap_or(options.seed);
    options.keep_going |= arguments.keep_going;
    options.failover |= arguments.failover;
    options.fail_on.extend(arguments.fail_on.iter().cloned());
    if let Some(rate) = arguments.arrival_rate {
        for phase in plan.phases.iter_mut().filter(|phase| phase.rate > 0.0) {
            phase.rate = rate;
        }
    }
    let security = plan.target.security;
    for session in &mut plan.sessions {
        over(&mut session.steps, arguments);
        if arguments.failover {
            managed(&mut session.steps);
        }
        if arguments.register {
            registered(&mut session.steps, security);
        }
    }
}

fn over(steps: &mut [PlanStep], arguments: &PlanOverrides) {
    for step in steps {
        match step {
            PlanStep::Login { mechanisms, .. }
            | PlanStep::FastLogin { mechanisms, .. }
            | PlanStep::Authenticate { mechanisms, .. }
                if !arguments.mechanisms.is_empty() =>
            {
                mechanisms.clone_from(&arguments.mechanisms);
            }
            PlanStep::Message { body: MessageBody::Size(bytes), .. } => {
                *bytes = arguments.message_size.unwrap_or(*bytes);
            }
            PlanStep::Room(RoomStep::Message { body: MessageBody::Size(bytes), .. })
            | PlanStep::PubSub(PubSubStep::Publish { body: MessageBody::Size(bytes), .. }) => {
                *bytes = arguments.message_size.unwrap_or(*bytes);
            }
            PlanStep::Bounce { in_flight, size, .. } => {
                *in_flight = arguments.in_flight.unwrap_or(*in_flight);
                *size = arguments.message_size.unwrap_or(*size);
            }
            PlanStep::Meanwhile { activities, .. } => {
                for Activity { every, step, .. } in activities {
                    let is_message = matches!(
                        step,
                        PlanStep::Message { .. }
                            | PlanStep::Room(RoomStep::Message { .. })
                            | PlanStep::PubSub(PubSubStep::Publish { .. })
                    );
                    if let (true, Some(wanted)) = (is_message, arguments.message_every) {
                        *every = wanted;
                    }
                    over(std::slice::from_mut(step), arguments);
                }
            }
            PlanStep::Repeat { steps, .. }
            | PlanStep::While { steps, .. }
            | PlanStep::If { steps, .. }
            | PlanStep::ForEach { steps, .. }
            | PlanStep::Transaction { steps, .. } => over(steps, arguments),
            _ => {}
        }
    }
}

/// Inserts the creation of the account before the first login of a session: on a separate connection, so that the login
/// is measured as if the account had existed.
fn registered(steps: &mut Vec<PlanStep>, security: TransportSecurity) {
    let at = steps.iter().position(contains_login);
    let Some(at) = at else { return };
    let mut before = vec![PlanStep::Connect];
    if security == TransportSecurity::Starttls {
        before.push(PlanStep::StartTls);
    }
    before.extend([PlanStep::Register, PlanStep::Disconnect]);
    steps.splice(at..at, before);
}

/// Adds stream management with resumption to each login.
fn managed(steps: &mut Vec<PlanStep>) {
    let mut at = 0;
    while at < steps.len() {
        let follows = matches!(steps.get(at + 1), Some(PlanStep::StreamManagement { .. }));
        match &mut steps[at] {
            PlanStep::FastLogin { manage, .. } => *manage = true,
            PlanStep::Login { .. } if !follows => {
                steps.insert(at + 1, PlanStep::StreamManagement { resume: true });
            }
            PlanStep::StreamManagement { resume } => *resume = true,
            PlanStep::Repeat { steps, .. }
            | PlanStep::While { steps, .. }
            | PlanStep::If { steps, .. }
            | PlanStep::ForEach { steps, .. }
            | PlanStep::Transaction { steps, .. } => managed(steps),
            _ => {}
        }
        at += 1;
    }
}

fn contains_login(step: &PlanStep) -> bool {
    match step {
        PlanStep::Login { .. } | PlanStep::FastLogin { .. } => true,
        PlanStep::Repeat { steps, .. }
        | PlanStep::While { steps, .. }
        | PlanStep::If { steps, .. }
        | PlanStep::ForEach { steps, .. }
        | PlanStep::Transaction { steps, .. } => steps.iter().any(contains_login),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::read_toml;

    #[test]
    fn failover_adds_stream_management_to_every_login() {
        let text = r#"
            [[phase]]
            rate = 1
            users = "connections"
            [[session]]
            steps = ["login", { repeat = { times = 2, steps = ["disconnect", "login", "stream_management"] } }, "presence"]
        "#;
        let overrides = PlanOverrides { failover: true, ..PlanOverrides::default() };
        let plan = read_toml(text, "x", &overrides).unwrap();
        assert!(plan.options.failover);
        let managed = PlanStep::StreamManagement { resume: true };
        let [PlanStep::Login { .. }, first, PlanStep::Repeat { steps, .. }, PlanStep::Presence { .. }] =
            plan.sessions[0].steps.as_slice()
        else {
            panic!("{:?}", plan.sessions[0].steps);
        };
        assert_eq!((first, steps.len(), steps.last()), (&managed, 3, Some(&managed)));
        assert!(!read_toml(text, "x", &PlanOverrides::default()).unwrap().options.failover);
    }
}
