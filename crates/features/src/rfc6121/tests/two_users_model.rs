//! Model test of two users who act in any order: the two rosters must agree with one another, each client's view with
//! the store, and the presence that a client sees with its subscription.

use store::Subscription;
use testkit::{NodeClient, TestNode};

use super::{JULIET, ROMEO, online, two_unrelated_users};

/// A client that builds its view from pushes and presence alone.
struct ModelUser {
    client: NodeClient,
    name: &'static str,
    other: &'static str,
    available: bool,
    /// Attributes of the roster item, if there is one.
    item: Option<(String, bool, bool)>,
    /// Whether it sees the other user as available.
    sees: bool,
}

impl ModelUser {
    fn new(engine: &TestNode, name: &'static str, other: &'static str) -> ModelUser {
        let client = online(engine, name, "x");
        ModelUser { client, name, other, available: true, item: None, sees: false }
    }

    fn act(&mut self, choice: u32) -> String {
        let other = self.other;
        let item = |rest: &str| {
            format!(
                "<iq id='1' type='set'><query xmlns='jabber:iq:roster'><item jid='{other}'{rest}/></query></iq>"
            )
        };
        let text = match choice {
            0 | 1 => format!("<presence to='{other}' type='subscribe'/>"),
            2 | 3 => format!("<presence to='{other}' type='subscribed'/>"),
            4 => format!("<presence to='{other}' type='unsubscribe'/>"),
            5 => format!("<presence to='{other}' type='unsubscribed'/>"),
            6 => item(" name='N'"),
            7 => item(" subscription='remove'"),
            8 => "<presence type='unavailable'/>".to_owned(),
            _ => "<presence/>".to_owned(),
        };
        match choice {
            8 => (self.available, self.sees) = (false, false),
            9.. => self.available = true,
            _ => {}
        }
        self.client.send(&text);
        text
    }

    fn apply_received(&mut self) {
        for stanza in self.client.recv() {
            if stanza.starts_with("<iq") && stanza.contains("type='set'") {
                let has = |text: &str| stanza.contains(text);
                let state = stanza.split(" subscription='").nth(1).unwrap().split('\'').next().unwrap();
                let gone = state == "remove";
                self.item =
                    (!gone).then(|| (state.to_owned(), has("ask='subscribe'"), has("approved='true'")));
            } else if stanza.starts_with("<presence") && stanza.contains(&format!("from='{}/", self.other)) {
                self.sees = !stanza.contains("type='unavailable'");
            }
        }
    }

    fn check(&self, engine: &TestNode, other: &ModelUser, description: &str) {
        let state = |owner, contact| {
            engine.stored_roster_item(owner, contact).map(|item| item.subscription).unwrap_or_default()
        };
        let (mine, theirs) = (state(self.name, self.other), state(self.other, self.name));
        let both = format!("{} has {mine:?}, {} has {theirs:?}, after {description}", self.name, self.other);
        assert_eq!(mine.contains(Subscription::TO), theirs.contains(Subscription::FROM), "{both}");
        assert_eq!(
            mine.contains(Subscription::PENDING_OUT),
            theirs.contains(Subscription::PENDING_IN),
            "{both}"
        );
        assert!(!(mine.contains(Subscription::TO) && mine.contains(Subscription::PENDING_OUT)), "{both}");
        assert!(!(mine.contains(Subscription::FROM) && mine.contains(Subscription::PENDING_IN)), "{both}");
        let shown = mine.contains(Subscription::IN_ROSTER).then(|| {
            (
                mine.as_str().to_owned(),
                mine.contains(Subscription::PENDING_OUT),
                mine.contains(Subscription::APPROVED),
            )
        });
        assert_eq!(self.item, shown, "the pushes to {}: {both}", self.name);
        let view = self.client.session.account.subscription(&other.client.session.account);
        assert_eq!(view, mine, "the view of {}: {both}", self.name);
        if self.available {
            assert_eq!(
                self.sees,
                other.available && mine.contains(Subscription::TO),
                "what {} sees: {both}",
                self.name
            );
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.6.3
//= type=test
//# Roster pushes MUST occur in order of modification and the version contained in a roster push MUST be unique.
#[test]
fn rosters_pushes_and_presence_always_agree() {
    for seed in 1..=8_u64 {
        let engine = two_unrelated_users();
        let mut people = [ModelUser::new(&engine, JULIET, ROMEO), ModelUser::new(&engine, ROMEO, JULIET)];
        let mut random = fastrand::Rng::with_seed(seed);
        for step in 0..400 {
            let (who, choice) = (random.usize(..2), random.u32(..11));
            let did = people[who].act(choice);
            let description = format!("seed {seed}, step {step}: {} sent {did}", people[who].name);
            people.iter_mut().for_each(ModelUser::apply_received);
            let [one, other] = &people;
            one.check(&engine, other, &description);
            other.check(&engine, one, &description);
        }
    }
}
