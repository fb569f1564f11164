//! Parser of scenario files. Each error is one sentence with its line.

use super::expected_element::ExpectedElement;
use super::{ReceiveOrder, Scenario, ScenarioClient, ScenarioError, ScenarioStep, StepAction};

/// Parses a scenario.
///
/// # Errors
/// The first error in the file.
pub fn parse(name: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let mut scenario = Scenario {
        name: name.to_owned(),
        title: String::new(),
        features: Vec::new(),
        ignores: Vec::new(),
        administrators: Vec::new(),
        clients: Vec::new(),
        friends: Vec::new(),
        steps: Vec::new(),
    };
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line)).peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = |message: String| ScenarioError { scenario: name.to_owned(), line: number, message };
        if line.starts_with(char::is_whitespace) {
            return Err(fail("XML stands below a line that ends in a colon".to_owned()));
        }
        let line = line.trim_end();
        if head(&mut scenario, line).map_err(fail)? {
            continue;
        }
        let block = line.strip_suffix(':');
        let mut xml = String::new();
        if block.is_some() {
            while let Some((_, inside)) =
                lines.next_if(|(_, l)| l.trim().is_empty() || l.starts_with([' ', '\t']))
            {
                xml.push_str(inside.trim());
                xml.push('\n');
            }
        }
        let what =
            step(&scenario, block.unwrap_or(line), block.map(|_| xml.trim().to_owned())).map_err(fail)?;
        scenario.steps.push(ScenarioStep { line: number, action: what });
    }
    let fail = |message: &str| {
        Err(ScenarioError { scenario: name.to_owned(), line: 1, message: message.to_owned() })
    };
    if scenario.title.is_empty() {
        return fail("the scenario has no title; begin it with \"title: …\"");
    }
    if let Some(user) =
        scenario.administrators.iter().find(|a| !scenario.clients.iter().any(|c| c.user == **a))
    {
        return fail(&format!("no client is of the administrator {user}"));
    }
    if scenario.steps.is_empty() {
        return fail("nothing happens in the scenario");
    }
    Ok(scenario)
}

/// Parses a header line; false if it is none.
fn head(scenario: &mut Scenario, line: &str) -> Result<bool, String> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if let Some(title) = line.strip_prefix("title:") {
        scenario.title = title.trim().to_owned();
    } else if let Some(list) = line.strip_prefix("features:") {
        scenario.features = words(list);
    } else if let Some(list) = line.strip_prefix("ignores:") {
        scenario.ignores = words(list);
    } else if let Some(list) = line.strip_prefix("administrators:") {
        scenario.administrators = words(list);
    } else if let Some(rest) = line.strip_prefix("client ") {
        let client = client(rest)?;
        if scenario.clients.iter().any(|c| c.name == client.name) {
            return Err(format!("there are two clients of the name {}", client.name));
        }
        scenario.clients.push(client);
    } else if let Some(rest) = line.strip_prefix("friends ") {
        let [one, other] = words(rest).try_into().map_err(|_| "write \"friends USER USER\"".to_owned())?;
        for user in [&one, &other] {
            if !scenario.clients.iter().any(|c| c.user == *user) {
                return Err(format!("no client is of the user {user}"));
            }
        }
        scenario.friends.push((one, other));
    } else {
        return Ok(false);
    }
    if scenario.steps.is_empty() {
        Ok(true)
    } else {
        Err("this line belongs above the first step".to_owned())
    }
}

fn client(text: &str) -> Result<ScenarioClient, String> {
    let (text, password) = match text.split_once(" with password ") {
        Some((text, password)) => (text, Some(password.trim().to_owned())),
        None => (text, None),
    };
    let (text, node) = match text.rsplit_once(" on node ") {
        Some((text, number)) => (text, Some(node_index(number.trim())?)),
        None => (text, None),
    };
    let parts = text.split_once(" is ").and_then(|(name, address)| Some((name, address.split_once('/')?)));
    let Some((name, (user, resource))) = parts else {
        return Err("write \"client NAME is USER/RESOURCE\"".to_owned());
    };
    let own = |text: &str| text.trim().to_owned();
    if user.contains('@') {
        return Err(format!("write \"{}\" without its domain: scenarios run on any", user.trim()));
    }
    if name.trim().contains(|c: char| !c.is_ascii_alphanumeric()) {
        return Err(format!("\"{}\" is no name; use letters and digits", name.trim()));
    }
    Ok(ScenarioClient { name: own(name), user: own(user), resource: own(resource), node, password })
}

fn node_index(number: &str) -> Result<usize, String> {
    let parsed: Option<usize> = number.parse().ok();
    parsed
        .and_then(|number| number.checked_sub(1))
        .ok_or_else(|| format!("\"{number}\" is no number of a node; the first is 1"))
}

fn step(scenario: &Scenario, line: &str, xml: Option<String>) -> Result<StepAction, String> {
    if let Some(seconds) = line.strip_suffix(" seconds pass") {
        return seconds
            .parse()
            .map(StepAction::Pass)
            .map_err(|_| format!("\"{seconds}\" is no number of seconds"));
    }
    let (name, does) = line.split_once(' ').unwrap_or((line, ""));
    let who = scenario.clients.iter().position(|c| c.name == name).ok_or_else(|| {
        let known: Vec<_> = scenario.clients.iter().map(|c| c.name.as_str()).collect();
        format!("no client has the name \"{name}\"; there are: {}", known.join(", "))
    })?;
    let block = |xml: Option<String>| {
        let xml = xml.ok_or_else(|| format!("\"{does}\" needs a colon and XML below"))?;
        let stanzas = ExpectedElement::read_all(&xml)?;
        if stanzas.is_empty() { Err("there is no XML below the colon".to_owned()) } else { Ok(xml) }
    };
    match does {
        "sends" => return block(xml).map(|xml| StepAction::Sends(who, xml)),
        "receives" => return block(xml).map(|xml| StepAction::Receives(who, xml, ReceiveOrder::Written)),
        "receives in any order" => {
            return block(xml).map(|xml| StepAction::Receives(who, xml, ReceiveOrder::Any));
        }
        "is offered" => return block(xml).map(|xml| StepAction::Offered(who, xml)),
        _ => {}
    }
    if xml.is_some() {
        return Err(format!("nothing stands below \"{does}\""));
    }
    Ok(match does {
        "connects" => StepAction::Connects(who),
        "authenticates" => StepAction::Authenticates(who),
        "opens a stream" => StepAction::Opens(who),
        "comes online" => StepAction::GoesOnline(who),
        "disconnects" => StepAction::Disconnects(who),
        "loses the connection" => StepAction::Loses(who),
        "is disconnected" => StepAction::Disconnected(who, None),
        "receives nothing" => StepAction::ReceivesNothing(who),
        "forgets what came" => StepAction::Forgets(who),
        _ => match does.rsplit_once(' ') {
            Some(("is disconnected by", condition)) => {
                StepAction::Disconnected(who, Some(condition.to_owned()))
            }
            Some(("is refused", condition)) => StepAction::Refused(who, condition.to_owned()),
            Some(("proves", word)) => StepAction::Proves(who, word.to_owned()),
            _ => return Err(format!("nobody knows how to act \"{does}\"")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "title: t\nclient romeo is romeo/orchard\n";

    fn wrong(text: &str) -> String {
        parse("p", text).expect_err("an error").to_string()
    }

    #[test]
    fn a_scenario_is_read() {
        let text = "# c\ntitle: A title\nfeatures: ping time\nclient a is romeo/x y with password p w\n\na connects\n\
                    a receives in any order:\n  <iq\n\n    id='1'/>\n  <iq id='2'/>\n3 seconds pass\na is disconnected by conflict\n";
        let scenario = parse("p", text).unwrap();
        assert_eq!(
            (scenario.title.as_str(), scenario.features.len(), scenario.needs_time()),
            ("A title", 2, true)
        );
        let want = ScenarioClient {
            name: "a".into(),
            user: "romeo".into(),
            resource: "x y".into(),
            node: None,
            password: Some("p w".into()),
        };
        assert_eq!(scenario.clients, [want]);
        assert_eq!(scenario.steps.iter().map(|s| s.line).collect::<Vec<_>>(), [6, 7, 12, 13]);
        assert!(
            matches!(&scenario.steps[1].action, StepAction::Receives(0, xml, ReceiveOrder::Any) if xml.contains("id='2'"))
        );
        assert!(matches!(&scenario.steps[3].action, StepAction::Disconnected(0, Some(c)) if c == "conflict"));
    }

    #[test]
    fn clients_are_spread_over_nodes_unless_the_scenario_places_them() {
        let text =
            "title: t\nclient a is romeo/x on node 2 with password p w\nclient b is romeo/y\nb connects\n";
        let scenario = parse("p", text).unwrap();
        let a = &scenario.clients[0];
        assert_eq!((a.resource.as_str(), a.node, a.password.as_deref()), ("x", Some(1), Some("p w")));
        let places = |count| [scenario.node_of(0, count), scenario.node_of(1, count)];
        assert_eq!((places(1), places(2), places(3)), ([0, 0], [1, 1], [1, 1]));
    }

    #[test]
    fn errors_name_their_line() {
        assert_eq!(wrong("romeo connects"), "p:1: no client has the name \"romeo\"; there are: ");
        assert_eq!(
            wrong(&format!("{HEAD}juliet connects")),
            "p:3: no client has the name \"juliet\"; there are: romeo"
        );
        assert_eq!(wrong(&format!("{HEAD}romeo dances")), "p:3: nobody knows how to act \"dances\"");
        assert_eq!(wrong(&format!("{HEAD}romeo sends")), "p:3: \"sends\" needs a colon and XML below");
        assert_eq!(wrong(&format!("{HEAD}romeo sends:\nx")), "p:3: there is no XML below the colon");
        assert!(wrong(&format!("{HEAD}romeo sends:\n <a")).starts_with("p:3: the XML below cannot be read"));
        assert_eq!(wrong(&format!("{HEAD}  <a/>")), "p:3: XML stands below a line that ends in a colon");
        assert_eq!(wrong(&format!("{HEAD}romeo connects:")), "p:3: nothing stands below \"connects\"");
        assert_eq!(
            wrong(&format!("{HEAD}client romeo is a/b")),
            "p:3: there are two clients of the name romeo"
        );
        assert_eq!(
            wrong(&format!("{HEAD}client b is a@c/b")),
            "p:3: write \"a\" without its domain: scenarios run on any".replace("\"a\"", "\"a@c\"")
        );
        assert_eq!(
            wrong(&format!("{HEAD}client b is c/d on node 0")),
            "p:3: \"0\" is no number of a node; the first is 1"
        );
        assert_eq!(wrong(&format!("{HEAD}friends romeo juliet")), "p:3: no client is of the user juliet");
        assert_eq!(
            wrong(&format!("{HEAD}romeo connects\ntitle: x")),
            "p:4: this line belongs above the first step"
        );
        assert_eq!(wrong(&format!("{HEAD}x seconds pass")), "p:3: \"x\" is no number of seconds");
        assert_eq!(wrong(HEAD), "p:1: nothing happens in the scenario");
        assert_eq!(
            wrong("client a is b/c\na connects"),
            "p:1: the scenario has no title; begin it with \"title: …\""
        );
    }
}
