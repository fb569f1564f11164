//! Load while a database fails: two users who exchange messages without an end, and senders to users that are offline, whose
//! acknowledged messages are compared with those that are delivered at the login.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use throng_e2e::text_client::{DOMAIN, TextClient};
use throng_e2e::wait;

/// Messages of a sender that are not answered yet, at most.
const WINDOW: u64 = 16;

/// Pause between two round trips, so that the test leaves the processors to the servers.
const PACE: Duration = Duration::from_millis(5);

/// What a thread of the load has done so far.
#[derive(Debug, Default)]
struct Progress {
    ended: AtomicBool,
    /// Round trips, or messages that were acknowledged.
    done: AtomicU64,
    /// Messages that were returned.
    refused: AtomicU64,
    slowest_millis: AtomicU64,
}

/// A thread of the load and its progress.
#[derive(Debug)]
struct Worker<T> {
    progress: Arc<Progress>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Worker<T> {
    fn start(work: impl FnOnce(&Progress) -> T + Send + 'static) -> Worker<T> {
        let progress = Arc::new(Progress::default());
        let own = progress.clone();
        Worker { progress, thread: thread::spawn(move || work(&own)) }
    }

    /// Waits until a number has grown by `more`.
    fn wait(&self, what: &str, number: fn(&Progress) -> &AtomicU64, more: u64) {
        let number = number(&self.progress);
        let goal = number.load(Ordering::Acquire) + more;
        wait(what, || {
            assert!(!self.thread.is_finished(), "the load ended");
            (number.load(Ordering::Acquire) >= goal).then_some(())
        });
    }

    fn end(self) -> T {
        self.progress.ended.store(true, Ordering::Release);
        self.thread.join().expect("no panic")
    }
}

/// Two users who are online and exchange messages.
#[derive(Debug)]
pub(crate) struct Chat(Worker<()>);

impl Chat {
    pub(crate) fn start(port: u16, users: [&'static str; 2]) -> Chat {
        Chat(Worker::start(move |progress| exchange(port, users, progress)))
    }

    /// Waits for further round trips, which need the node and not the database.
    pub(crate) fn wait_for_round_trips(&self, more: u64) {
        self.0.wait("round trips of online users", |progress| &progress.done, more);
    }

    /// Takes the time of the slowest round trip since the last call.
    pub(crate) fn take_slowest(&self) -> Duration {
        Duration::from_millis(self.0.progress.slowest_millis.swap(0, Ordering::AcqRel))
    }

    pub(crate) fn end(self) {
        self.0.end();
    }
}

/// Each message is the next one that arrives: none is lost, doubled or late.
fn exchange(port: u16, users: [&'static str; 2], progress: &Progress) {
    let mut clients = users.map(|user| {
        let mut client = TextClient::login(port, user);
        client.send("<presence/>");
        // It is online when it receives its own presence.
        client.read_to("<presence");
        client
    });
    let mut number = 0u64;
    while !progress.ended.load(Ordering::Acquire) {
        let begun = Instant::now();
        let [one, other] = &mut clients;
        pass(one, other, users[1], number);
        pass(other, one, users[0], number + 1);
        number += 2;
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        progress.slowest_millis.fetch_max(millis, Ordering::AcqRel);
        progress.done.fetch_add(1, Ordering::AcqRel);
        thread::sleep(PACE);
    }
}

fn pass(from: &mut TextClient, to: &mut TextClient, user: &str, number: u64) {
    from.send(&message(user, number, ""));
    to.read_to("<body>");
    assert_eq!(to.read_to(" </body>"), number.to_string());
}

/// A message whose body begins with its number, which is its id, too.
fn message(to: &str, number: u64, padding: &str) -> String {
    format!("<message to='{to}@{DOMAIN}' type='chat' id='{number}'><body>{number} {padding}</body></message>")
}

/// What a sender has sent: messages with the numbers from 0 on.
#[derive(Debug, Default)]
struct Sent {
    owner: String,
    count: u64,
    refused: BTreeSet<u64>,
}

/// Numbers of messages.
#[derive(Debug, Default)]
pub(crate) struct LoadCounts {
    sent: u64,
    acknowledged: u64,
    found: u64,
}

/// Senders with stream management, each of which sends to a user that is offline.
#[derive(Debug)]
pub(crate) struct OfflineLoad(Vec<Worker<Sent>>);

impl OfflineLoad {
    /// Begins; `pairs` are the senders and their recipients. A message has about this number of bytes.
    pub(crate) fn start(port: u16, pairs: Vec<[String; 2]>, bytes: usize) -> OfflineLoad {
        let worker = |[sender, owner]: [String; 2]| {
            Worker::start(move |progress| send(port, &sender, owner, bytes, progress))
        };
        OfflineLoad(pairs.into_iter().map(worker).collect())
    }

    /// Waits until further messages of each sender are acknowledged.
    pub(crate) fn wait_for_acknowledged(&self, more: u64) {
        for worker in &self.0 {
            worker.wait("acknowledgements", |progress| &progress.done, more);
        }
    }

    /// Waits until further messages of each sender are returned.
    pub(crate) fn wait_for_refused(&self, more: u64) {
        for worker in &self.0 {
            worker.wait("returned messages", |progress| &progress.refused, more);
        }
    }

    /// Ends the senders and logs the recipients in. What was acknowledged is delivered, each message once and in order; what
    /// was returned may be delivered as well, if the answer to its commit was lost.
    pub(crate) fn end(self, port: u16) -> LoadCounts {
        let mut counts = LoadCounts::default();
        for worker in self.0 {
            let sent = worker.end();
            let found = stored_numbers(port, &sent.owner, sent.count - 1);
            assert!(found.is_sorted_by(|one, next| one < next), "not in order, or twice: {found:?}");
            let acknowledged = (0..sent.count).filter(|number| !sent.refused.contains(number));
            let lost: Vec<u64> = acknowledged.filter(|number| found.binary_search(number).is_err()).collect();
            assert!(lost.is_empty(), "acknowledged messages are lost: {lost:?}");
            counts.sent += sent.count;
            counts.acknowledged += sent.count - sent.refused.len() as u64;
            counts.found += found.len() as u64;
        }
        counts
    }
}

/// The numbers of the messages that are delivered at the login, up to this one.
fn stored_numbers(port: u16, user: &str, last: u64) -> Vec<u64> {
    let mut client = TextClient::login(port, user);
    client.send("<presence/>");
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        client.read_to("<body>");
        let body = client.read_to("</body>");
        numbers.push(body.split(' ').next().and_then(|number| number.parse().ok()).expect("a number"));
    }
    numbers
}

/// Sends until the load ends, and then a last message, which must be acknowledged.
fn send(port: u16, sender: &str, owner: String, bytes: usize, progress: &Progress) -> Sent {
    let mut client = TextClient::login_managed(port, sender, "");
    let mut sent = Sent { owner, ..Sent::default() };
    let (mut handled, mut received) = (0, 0u64);
    let (mut last, mut is_asked) = (None, false);
    loop {
        let ended = progress.ended.load(Ordering::Acquire);
        if last == Some(handled) && !is_asked {
            // The answer follows all messages that were returned.
            client.send(&format!("<iq to='{DOMAIN}' type='get' id='end'><ping xmlns='urn:xmpp:ping'/></iq>"));
            is_asked = true;
        }
        let may_send = if ended { last.is_none() && handled == sent.count } else { true };
        if may_send && sent.count - handled < WINDOW {
            // Random, because a database may compress it.
            let mut random = fastrand::Rng::with_seed(sent.count);
            let padding: String = (0..bytes).map(|_| random.alphanumeric()).collect();
            client.send(&message(&sent.owner, sent.count, &padding));
            client.send("<r xmlns='urn:xmpp:sm:3'/>");
            sent.count += 1;
            last = ended.then_some(sent.count);
            continue;
        }
        let element = client.element();
        match element.trim_start_matches('<').split([' ', '>']).next().unwrap_or_default() {
            "a" => {
                // The first stanza was the presence.
                let count: u64 = attribute(&element, "h").parse().expect("a number");
                handled = count.saturating_sub(1);
                let done = handled.saturating_sub(sent.refused.len() as u64);
                progress.done.fetch_max(done, Ordering::AcqRel);
            }
            "r" => client.send(&format!("<a xmlns='urn:xmpp:sm:3' h='{received}'/>")),
            "message" => {
                received += 1;
                assert!(element.contains("type='error'") && element.contains("type='wait'"), "{element}");
                let number = attribute(&element, "id").parse().expect("a number");
                assert!(sent.refused.insert(number), "{number} is returned twice");
                progress.refused.fetch_add(1, Ordering::AcqRel);
            }
            "iq" => {
                assert!(!sent.refused.contains(&(sent.count - 1)), "the database works again");
                return sent;
            }
            _ => received += 1,
        }
    }
}

fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    let begin = format!(" {name}='");
    let value = element.split_once(&begin).and_then(|(_, rest)| rest.split_once('\''));
    value.unwrap_or_else(|| panic!("no {name} in {element}")).0
}
