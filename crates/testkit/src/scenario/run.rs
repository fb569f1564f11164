//! Runner of scenarios.
//!
//! # Pitfalls
//!
//! Connections in memory run only while the scenario awaits, so a step that checks for *absence* calls
//! [`Run::wait_until_idle`] first.

use std::collections::BTreeMap;

use cluster::memory::Bus;

use super::connection::{
    LoginFailure, ScenarioConnection, ScenarioEvent, ScenarioIo, condition, encrypt, open_websocket,
};
use super::expected_element::{ExpectedElement, Variables, substitute};
use super::{ReceiveOrder, RemoteServer, Scenario, ScenarioError, ScenarioTarget, StepAction};

/// Runs the whole scenario.
///
/// # Errors
/// The first step that deviates.
pub async fn run(scenario: &Scenario, target: &ScenarioTarget) -> Result<(), ScenarioError> {
    let first = scenario.steps.first().map_or(1, |step| step.line);
    let fail =
        |line: usize, message: String| ScenarioError { scenario: scenario.name.clone(), line, message };
    let mut run = Run { scenario, target, connections: BTreeMap::new(), words: Variables::new(), syncs: 0 };
    run.prepare().await.map_err(|message| fail(first, format!("before the scenario: {message}")))?;
    for step in &scenario.steps {
        run.step(&step.action).await.map_err(|message| fail(step.line, message))?;
        // The next client may act on another node, which must know what this one did.
        if let ScenarioTarget::RemoteCluster(_) = target {
            target.settle().await.map_err(|message| fail(step.line, message))?;
        }
    }
    // Elements received but not expected are an error as well.
    let last = scenario.steps.last().map_or(1, |step| step.line);
    run.wait_until_idle().await.map_err(|message| fail(last, format!("after the scenario: {message}")))?;
    for (who, connection) in &run.connections {
        if let Some(shape) = connection.unread.front() {
            let name = &scenario.clients[*who].name;
            return Err(fail(last, format!("after the scenario {name} has still {}", show(shape))));
        }
    }
    Ok(())
}

struct Run<'a> {
    scenario: &'a Scenario,
    target: &'a ScenarioTarget,
    connections: BTreeMap<usize, ScenarioConnection>,
    words: Variables,
    syncs: u32,
}

impl Run<'_> {
    fn domain(&self) -> String {
        match self.target {
            ScenarioTarget::Memory(server) => server.address("x").domain().to_owned(),
            ScenarioTarget::Cluster(servers) => servers.nodes[0].address("x").domain().to_owned(),
            ScenarioTarget::Remote(host) => host.domain.clone(),
            ScenarioTarget::RemoteCluster(cluster) => cluster.nodes[0].domain.clone(),
        }
    }

    async fn prepare(&mut self) -> Result<(), String> {
        let domain = self.domain();
        for (user, local, password) in self.scenario.accounts(self.target) {
            self.words.insert(user, format!("{local}@{domain}"));
            // The nodes share their store.
            if let Some([server, ..]) = self.target.nodes() {
                server.create_user_with_password(&local, &password).await;
            }
        }
        for client in &self.scenario.clients {
            let full = format!("{}/{}", self.words[&client.user], client.resource);
            self.words.insert(format!("{}.full", client.name), full);
        }
        self.words.insert("server".to_owned(), domain);
        for server in self.target.nodes().unwrap_or_default() {
            server.node.set_admins(self.scenario.administrators.iter().map(|user| server.address(user)));
        }
        for (one, other) in &self.scenario.friends {
            let of =
                |user: &str| self.scenario.clients.iter().position(|c| c.user == user).unwrap_or_default();
            let pair = [of(one), of(other)];
            for who in pair {
                self.connect(who).await.map_err(failure_text)?;
                self.connection(who)?.send("<presence/>").await?;
            }
            for (who, kind, whom) in [
                (pair[0], "subscribe", other),
                (pair[1], "subscribed", one),
                (pair[1], "subscribe", one),
                (pair[0], "subscribed", other),
            ] {
                self.wait_until_idle().await?;
                let to = self.words[whom].clone();
                self.connection(who)?.send(&format!("<presence type='{kind}' to='{to}'/>")).await?;
            }
            self.wait_until_idle().await?;
            for who in pair {
                self.leave(who).await?;
            }
        }
        Ok(())
    }

    fn connection(&mut self, who: usize) -> Result<&mut ScenarioConnection, String> {
        let name = &self.scenario.clients[who].name;
        self.connections.get_mut(&who).ok_or_else(|| format!("{name} is not connected"))
    }

    async fn connect(&mut self, who: usize) -> Result<(), LoginFailure> {
        let mut connection = self.authenticate(who).await?;
        let client = &self.scenario.clients[who];
        connection.bind(&client.resource).await?;
        self.words.insert(format!("{}.full", client.name), connection.full.clone());
        self.connections.insert(who, connection);
        Ok(())
    }

    async fn authenticate(&mut self, who: usize) -> Result<ScenarioConnection, LoginFailure> {
        let (io, local, password) = self.dial(who).await?;
        ScenarioConnection::login((io, self.bus()), &self.domain(), &local, &password).await
    }

    /// The network between the nodes of a cluster in memory.
    fn bus(&self) -> Option<Bus> {
        match self.target {
            ScenarioTarget::Cluster(servers) => Some(servers.bus.clone()),
            _ => None,
        }
    }

    /// Opens a stream without a login; the scenario does the login.
    async fn begin(&mut self, who: usize) -> Result<(), LoginFailure> {
        let (io, local, password) = self.dial(who).await?;
        let connection = ScenarioConnection::begin((io, self.bus()), &self.domain()).await?;
        let plain = sasl::encoding::encode_challenge(&sasl::client::plain(None, &local, &password));
        self.words.insert(format!("{}.plain", self.scenario.clients[who].name), plain);
        self.connections.insert(who, connection);
        Ok(())
    }

    /// Connects; returns the connection with the local part and the password of its client.
    async fn dial(&mut self, who: usize) -> Result<(Box<dyn ScenarioIo>, String, String), LoginFailure> {
        let client = &self.scenario.clients[who];
        if self.connections.contains_key(&who) {
            return Err(format!("{} is connected already", client.name).into());
        }
        let accounts = self.scenario.accounts(self.target);
        let (_, local, account) =
            accounts.iter().find(|(user, ..)| *user == client.user).ok_or("no account".to_owned())?;
        let password = client.password.as_ref().unwrap_or(account);
        let io: Box<dyn ScenarioIo> = match self.target {
            ScenarioTarget::Memory(server) => Box::new(server.dial()),
            ScenarioTarget::Cluster(servers) => {
                Box::new(servers.nodes[self.scenario.node_of(who, servers.nodes.len())].dial())
            }
            ScenarioTarget::Remote(host) => dial_remote(host).await?,
            ScenarioTarget::RemoteCluster(cluster) => {
                dial_remote(&cluster.nodes[self.scenario.node_of(who, cluster.nodes.len())]).await?
            }
        };
        Ok((io, local.clone(), password.clone()))
    }

    /// Computes `{NAME.proof}` of a stored token (XEP-0484, HT-SHA-256-NONE).
    fn prove(&mut self, who: usize, word: &str) -> Result<(), String> {
        let client = &self.scenario.clients[who];
        let token = self.words.get(word).ok_or_else(|| format!("{{{word}}} was not kept"))?;
        let local = self.words.get(&client.user).and_then(|bare| bare.split('@').next()).unwrap_or_default();
        let proof = sasl::encoding::encode_challenge(&sasl::client::hashed_token(local, token, &[]));
        self.words.insert(format!("{}.proof", client.name), proof);
        Ok(())
    }

    async fn leave(&mut self, who: usize) -> Result<(), String> {
        let mut connection = self.connections.remove(&who).ok_or("it is not connected")?;
        connection.send("</stream:stream>").await?;
        while !matches!(connection.receive().await?, ScenarioEvent::Closed) {}
        Ok(())
    }

    /// Waits until the server has completed everything that any client caused.
    async fn wait_until_idle(&mut self) -> Result<(), String> {
        // Twice: what the first round completes may have sent something to a client that was synced earlier.
        for _ in 0..2 {
            self.target.settle().await?;
            self.syncs += 1;
            let id = format!("scenario-sync-{}", self.syncs);
            // A client without a resource cannot send the request.
            for (who, connection) in self.connections.iter_mut().filter(|(_, connection)| connection.bound) {
                let name = &self.scenario.clients[*who].name;
                connection.sync(&id).await.map_err(|message| format!("{name}: {message}"))?;
            }
        }
        Ok(())
    }

    async fn step(&mut self, what: &StepAction) -> Result<(), String> {
        match what {
            StepAction::Connects(who) => self.connect(*who).await.map_err(failure_text),
            StepAction::Opens(who) => self.begin(*who).await.map_err(failure_text),
            StepAction::Proves(who, word) => self.prove(*who, word),
            StepAction::Refused(who, condition) => match self.connect(*who).await {
                Err(LoginFailure::Condition(found)) if found == *condition => Ok(()),
                Err(other) => Err(failure_text(other)),
                Ok(()) => Err("the login succeeds".to_owned()),
            },
            StepAction::Authenticates(who) => {
                let connection = self.authenticate(*who).await.map_err(failure_text)?;
                self.connections.insert(*who, connection);
                Ok(())
            }
            StepAction::GoesOnline(who) => {
                self.connect(*who).await.map_err(failure_text)?;
                let hello = "<iq type='get' id='online'><query xmlns='jabber:iq:roster'/></iq><presence/>";
                self.connection(*who)?.send(hello).await?;
                self.wait_until_idle().await?;
                self.connection(*who)?.unread.clear();
                Ok(())
            }
            StepAction::Offered(who, text) => {
                let offered = self.connection(*who)?.offered.clone();
                for want in ExpectedElement::read_all(text)? {
                    let found =
                        offered.children.iter().any(|c| want.matches(c, &mut self.words, &[]).is_ok());
                    if !found {
                        return Err(format!("{} is not among {}", show(&want), show(&offered)));
                    }
                }
                Ok(())
            }
            StepAction::Disconnects(who) => self.leave(*who).await,
            StepAction::Loses(who) => {
                self.connections.remove(who).ok_or("it is not connected")?;
                self.wait_until_idle().await
            }
            StepAction::Disconnected(who, condition) => self.disconnected(*who, condition.as_deref()).await,
            StepAction::Sends(who, text) => {
                let text = substitute(text, &self.words, true)?;
                self.connection(*who)?.send(&text).await
            }
            StepAction::Receives(who, text, order) => self.receives(*who, text, *order).await,
            StepAction::ReceivesNothing(who) => {
                self.wait_until_idle().await?;
                match self.connection(*who)?.unread.front() {
                    None => Ok(()),
                    Some(shape) => Err(format!("received {}", show(shape))),
                }
            }
            StepAction::Forgets(who) => {
                self.wait_until_idle().await?;
                self.connection(*who)?.unread.clear();
                Ok(())
            }
            StepAction::Pass(seconds) => match self.target {
                ScenarioTarget::Memory(server) => {
                    server.advance(*seconds).await;
                    Ok(())
                }
                ScenarioTarget::Cluster(servers) => {
                    servers.advance(*seconds).await;
                    Ok(())
                }
                ScenarioTarget::Remote(_) | ScenarioTarget::RemoteCluster(_) => {
                    Err("time passes only over memory".to_owned())
                }
            },
        }
    }

    async fn disconnected(&mut self, who: usize, wanted: Option<&str>) -> Result<(), String> {
        let mut connection = self.connections.remove(&who).ok_or("it is not connected")?;
        let mut found = None;
        loop {
            match connection.receive().await? {
                ScenarioEvent::Closed => break,
                ScenarioEvent::Element(shape) if shape.name == "error" => found = Some(condition(&shape)),
                ScenarioEvent::Element(shape) => {
                    return Err(format!("received {} instead of the end", show(&shape)));
                }
                ScenarioEvent::Header => return Err("received a stream header".to_owned()),
            }
        }
        if found.as_deref() == wanted {
            return Ok(());
        }
        let or = |c: Option<&str>| c.unwrap_or("no error").to_owned();
        Err(format!("ended with {} where {} is written", or(found.as_deref()), or(wanted)))
    }

    async fn next(&mut self, who: usize) -> Result<ExpectedElement, String> {
        let connection = self.connection(who)?;
        if let Some(shape) = connection.unread.pop_front() {
            return Ok(shape);
        }
        match connection.receive().await? {
            ScenarioEvent::Element(shape) => Ok(shape),
            _ => Err("the stream has ended".to_owned()),
        }
    }

    /// Normalises what another server may omit (RFC 6120, sections 8.1.1.1, 8.1.2.1 and 8.1.5): `to` the client itself,
    /// `from` its own account, the stream's language. Our own node must send them exactly.
    fn adapt_to_server(&self, who: usize, want: &ExpectedElement, got: &ExpectedElement) -> ExpectedElement {
        let mut got = got.clone();
        let ScenarioTarget::Remote(_) = self.target else { return got };
        if !want.attrs.contains_key("xml:lang") {
            got.attrs.remove("xml:lang");
        }
        let client = &self.scenario.clients[who];
        let own = [self.words.get(&client.user), self.words.get(&format!("{}.full", client.name))];
        for name in ["to", "from"] {
            let wanted = want.attrs.get(name).and_then(|text| substitute(text, &self.words, false).ok());
            if let Some(wanted) = wanted
                && own.contains(&Some(&wanted))
            {
                got.attrs.entry(name.to_owned()).or_insert(wanted);
            }
        }
        got
    }

    async fn receives(&mut self, who: usize, text: &str, order: ReceiveOrder) -> Result<(), String> {
        let mut wanted = ExpectedElement::read_all(text)?;
        while !wanted.is_empty() {
            let got = self
                .next(who)
                .await
                .map_err(|message| format!("{message}; {} is missing", show(&wanted[0])))?;
            let many = if order == ReceiveOrder::Written { 1 } else { wanted.len() };
            let mut why = Vec::new();
            let found = wanted[..many].iter().position(|want| {
                let got = self.adapt_to_server(who, want, &got);
                want.matches(&got, &mut self.words, &self.scenario.ignores)
                    .map_err(|reason| why.push(reason))
                    .is_ok()
            });
            match found {
                Some(at) => drop(wanted.remove(at)),
                None => return Err(format!("received {}\n  {}", show(&got), why.join("\n  "))),
            }
        }
        Ok(())
    }
}

async fn dial_remote(host: &RemoteServer) -> Result<Box<dyn ScenarioIo>, String> {
    let (plain, secure) = (host.address.strip_prefix("ws://"), host.address.strip_prefix("wss://"));
    let place = plain.or(secure).unwrap_or(&host.address);
    let address = place.split('/').next().unwrap_or_default();
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .map_err(|error| format!("{address} does not answer: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let mut io: Box<dyn ScenarioIo> = Box::new(stream);
    if secure.is_some() {
        io = encrypt(io, &host.domain).await?;
    }
    if plain.or(secure).is_some() { open_websocket(io, place).await } else { Ok(io) }
}

fn failure_text(refusal: LoginFailure) -> String {
    match refusal {
        LoginFailure::Condition(condition) => format!("the login is refused: {condition}"),
        LoginFailure::Broken(message) => message,
    }
}

/// Formats an element for error messages.
fn show(shape: &ExpectedElement) -> String {
    let mut out = format!("<{}", shape.name);
    if shape.ns != "jabber:client" {
        out.push_str(&format!(" xmlns='{}'", shape.ns));
    }
    for (name, value) in &shape.attrs {
        out.push_str(&format!(" {name}='{value}'"));
    }
    if shape.children.is_empty() && shape.text.is_empty() {
        return out + "/>";
    }
    out.push('>');
    out.push_str(&shape.text);
    shape.children.iter().for_each(|child| out.push_str(&show(child)));
    out + &format!("</{}>", shape.name)
}
