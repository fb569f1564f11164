//! Tests of the proxy over pipes in memory, with a clock that stands still until it is moved.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::Waker;

use base::ManualClock;
use testkit::{ListenerClient, TestListener};

use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NAME: &str = "0123456789abcdef0123456789abcdef01234567";

fn destination() -> BytestreamDestination {
    let digit = |n: usize| u8::from_str_radix(&NAME[2 * n..2 * n + 2], 16).unwrap();
    BytestreamDestination::new(std::array::from_fn(digit))
}

/// A proxy and its connections.
struct Fixture {
    proxy: Socks5Proxy,
    listener: TestListener,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Arc::new(ManualClock::new());
        let proxy = Socks5Proxy::new(clock.clone());
        Fixture { listener: TestListener::new(Arc::new(proxy.clone()), clock), proxy }
    }

    fn connect(&mut self) -> ListenerClient {
        self.listener.connect()
    }

    fn connect_with(&mut self, capacity: usize) -> ListenerClient {
        self.listener.connect_with(capacity)
    }

    fn run(&mut self) {
        self.listener.run();
    }

    fn advance(&mut self, millis: u64) {
        self.listener.advance(millis);
    }

    /// A connection that has named its destination.
    fn party(&mut self) -> ListenerClient {
        let mut client = self.connect();
        self.name(&mut client);
        client
    }

    fn name(&mut self, client: &mut ListenerClient) {
        client.write(&[5, 1, 0]);
        self.run();
        assert_eq!(client.read(), [5, 0]);
        client.write(&request(NAME));
        self.run();
        assert_eq!(client.read(), accepted());
    }

    fn activate(&mut self, limits: &BytestreamLimits) -> Result<(), ActivationRefusal> {
        let done = self.proxy.activate(destination(), ("proxy.example.com", "juliet@example.com"), limits);
        self.run();
        done
    }

    /// Two parties of an active bytestream.
    fn pair(&mut self, limits: &BytestreamLimits) -> [ListenerClient; 2] {
        let parties = [self.party(), self.party()];
        assert_eq!(self.activate(limits), Ok(()));
        parties
    }

    fn ended(&self, outcome: Socks5Outcome) -> u64 {
        self.proxy.counts().ended[outcome as usize]
    }
}

/// Reads what there is; true at the end.
fn is_closed_after(client: &mut ListenerClient, received: &mut Vec<u8>) -> bool {
    received.extend(client.read());
    client.is_closed()
}

fn request(name: &str) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

fn accepted() -> Vec<u8> {
    [&[5, 0, 0, 3, 40], NAME.as_bytes(), &[0, 0]].concat()
}

#[test]
fn section_6_3_bytes_pass_in_both_directions_after_the_activation() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] = fixture.pair(&BytestreamLimits::default());
    one.write(b"hello");
    two.write(b"world");
    fixture.run();
    assert_eq!((one.read(), two.read()), (b"world".to_vec(), b"hello".to_vec()));
    let counts = fixture.proxy.counts();
    assert_eq!((counts.active, counts.waiting, counts.activated, counts.bytes), (1, 0, 1, 10));
    drop((one, two));
    fixture.run();
    assert_eq!((fixture.proxy.counts().active, fixture.listener.tasks()), (0, 0));
}

#[test]
fn section_6_3_5_both_parties_must_be_connected() {
    let mut fixture = Fixture::new();
    let limits = BytestreamLimits::default();
    assert_eq!(fixture.activate(&limits), Err(ActivationRefusal::NotConnected));
    let _one = fixture.party();
    assert_eq!(fixture.activate(&limits), Err(ActivationRefusal::OneParty));
    let _two = fixture.party();
    assert_eq!(fixture.activate(&limits), Ok(()));
    assert_eq!(fixture.activate(&limits), Err(ActivationRefusal::NotConnected), "once");
}

#[test]
fn every_digit_of_the_destination_counts() {
    let mut fixture = Fixture::new();
    let _parties = [fixture.party(), fixture.party()];
    for at in 0..20 {
        for bit in [1, 0x80] {
            let mut digest: [u8; 20] =
                std::array::from_fn(|n| u8::from_str_radix(&NAME[2 * n..2 * n + 2], 16).unwrap());
            digest[at] ^= bit;
            let other = BytestreamDestination::new(digest);
            let done = fixture.proxy.activate(other, ("s", "u"), &BytestreamLimits::default());
            assert_eq!(done, Err(ActivationRefusal::NotConnected), "byte {at}");
        }
    }
}

#[test]
fn section_10_1_a_third_party_is_refused_and_the_first_two_stay() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] = [fixture.party(), fixture.party()];
    let mut third = fixture.connect();
    third.write(&[5, 1, 0]);
    fixture.run();
    third.read();
    third.write(&request(NAME));
    fixture.run();
    assert_eq!(third.read()[..2], [5, 2]);
    assert!(third.is_closed());
    assert_eq!(fixture.ended(Socks5Outcome::Duplicate), 1);
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    one.write(b"x");
    fixture.run();
    assert_eq!(two.read(), b"x");
}

#[test]
fn section_10_1_bytes_before_the_activation_are_ignored() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] = [fixture.party(), fixture.party()];
    one.write(b"early");
    two.write(&[b'x'; 60_000]);
    fixture.run();
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    one.write(b"late");
    fixture.run();
    assert_eq!((one.read(), two.read()), (vec![], b"late".to_vec()));
}

#[test]
fn section_6_3_5_bytes_sent_right_after_the_activation_arrive() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] = [fixture.party(), fixture.party()];
    let users = ("proxy.example.com", "juliet@example.com");
    assert_eq!(fixture.proxy.activate(destination(), users, &BytestreamLimits::default()), Ok(()));
    // The task of the parties has not run since.
    one.write(b"the beginning");
    fixture.run();
    assert_eq!(two.read(), b"the beginning");
}

#[test]
fn too_many_bytes_before_the_activation_end_the_connection() {
    let mut fixture = Fixture::new();
    let mut one = fixture.party();
    one.write(&[b'x'; 70_000]);
    fixture.run();
    assert!(one.is_closed());
    assert_eq!((fixture.ended(Socks5Outcome::TooMuchEarlyData), fixture.proxy.counts().waiting), (1, 0));
}

#[test]
fn a_party_that_leaves_before_the_activation_can_come_back() {
    let mut fixture = Fixture::new();
    let one = fixture.party();
    let mut two = fixture.party();
    drop(one);
    fixture.run();
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Err(ActivationRefusal::OneParty));
    let mut again = fixture.party();
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    again.write(b"x");
    fixture.run();
    assert_eq!(two.read(), b"x");
    let (other, last) = (fixture.party(), fixture.party());
    drop((other, last));
    fixture.run();
    assert_eq!((fixture.ended(Socks5Outcome::Abandoned), fixture.proxy.counts().waiting), (3, 0));
}

#[test]
fn half_a_bytestream_can_be_closed() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] = fixture.pair(&BytestreamLimits::default());
    one.write(b"request");
    one.close();
    fixture.run();
    assert_eq!(two.read(), b"request");
    assert!(two.is_closed(), "the end is passed on");
    two.write(b"answer");
    fixture.run();
    assert_eq!(one.read(), b"answer", "the other direction is open");
    two.close();
    fixture.run();
    assert!(one.is_closed());
    assert_eq!((fixture.ended(Socks5Outcome::Finished), fixture.listener.tasks()), (1, 0));
}

#[test]
fn a_party_that_does_not_read_holds_back_the_other() {
    let mut fixture = Fixture::new();
    let mut slow = fixture.connect_with(1000);
    fixture.name(&mut slow);
    let mut fast = fixture.party();
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(2_000_000).collect();
    let mut written = 0;
    for _ in 0..100 {
        written += fast.write(&sent[written..]);
        fixture.run();
    }
    // The pipes hold 256 kB and 1 kB, the proxy one chunk.
    assert!(written <= 256 * 1024 + 1000 + 32 * 1024, "{written}");
    let mut received = Vec::new();
    while received.len() < sent.len() {
        let more = slow.read();
        assert!(!more.is_empty(), "progress at {}", received.len());
        received.extend(more);
        written += fast.write(&sent[written..]);
        fixture.run();
    }
    assert!(received == sent, "in order, and complete");
}

#[test]
fn rates_of_a_user_and_of_the_service_hold_on_average() {
    for limits in [
        BytestreamLimits { bytes_per_second_per_user: 100_000, ..BytestreamLimits::default() },
        BytestreamLimits { bytes_per_second: 100_000, ..BytestreamLimits::default() },
    ] {
        let mut fixture = Fixture::new();
        let [mut one, mut two] = fixture.pair(&limits);
        let mut received = 0;
        for _ in 0..100 {
            one.write(&[b'x'; 200_000]);
            fixture.advance(100);
            received += two.read().len();
        }
        // Ten seconds, the burst of one second, and one chunk of debt.
        assert!((1_000_000..1_200_000).contains(&received), "{received}");
    }
}

#[test]
fn the_debt_of_a_user_outlives_the_transfer() {
    let mut fixture = Fixture::new();
    let limits = BytestreamLimits { bytes_per_second_per_user: 10_000, ..BytestreamLimits::default() };
    let mut received = 0;
    for _ in 0..5 {
        let [mut one, mut two] = fixture.pair(&limits);
        one.write(&[b'x'; 100_000]);
        fixture.run();
        received += two.read().len();
        drop((one, two));
        fixture.advance(1);
    }
    assert!(received <= 10_000 + 32 * 1024, "{received}");
}

#[test]
fn bytestreams_of_a_user_and_of_the_service_are_limited() {
    for (limits, refusal) in [
        (
            BytestreamLimits { bytestreams_per_user: 1, ..BytestreamLimits::default() },
            ActivationRefusal::UserLimit,
        ),
        (BytestreamLimits { bytestreams: 1, ..BytestreamLimits::default() }, ActivationRefusal::ServiceLimit),
    ] {
        let mut fixture = Fixture::new();
        let first = fixture.pair(&limits);
        let _second = [fixture.party(), fixture.party()];
        assert_eq!(fixture.activate(&limits), Err(refusal));
        drop(first);
        fixture.run();
        assert_eq!(fixture.activate(&limits), Ok(()), "it still waits");
    }
}

#[test]
fn an_idle_bytestream_is_closed_and_a_busy_one_is_not() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] =
        fixture.pair(&BytestreamLimits { idle_seconds: 10, ..BytestreamLimits::default() });
    for _ in 0..5 {
        fixture.advance(9_000);
        one.write(b"x");
        fixture.run();
        assert_eq!(two.read(), b"x");
    }
    fixture.advance(9_999);
    assert_eq!(fixture.proxy.counts().active, 1);
    fixture.advance(1);
    assert!(one.is_closed() && two.is_closed());
    assert_eq!(fixture.ended(Socks5Outcome::Idle), 1);
}

#[test]
fn a_receiver_that_never_reads_is_idle() {
    let mut fixture = Fixture::new();
    let limits = BytestreamLimits { idle_seconds: 10, ..BytestreamLimits::default() };
    let [mut one, _two] = fixture.pair(&limits);
    for _ in 0..30 {
        one.write(&[b'x'; 600_000]);
        fixture.advance(1000);
    }
    assert_eq!(fixture.ended(Socks5Outcome::Idle), 1);
}

#[test]
fn a_bytestream_that_is_not_activated_in_time_is_closed() {
    let mut fixture = Fixture::new();
    fixture.proxy.set_activation_timeout(30);
    let mut one = fixture.party();
    fixture.advance(20_000);
    let mut two = fixture.party();
    fixture.advance(29_999);
    assert!(!one.is_closed() && !two.is_closed(), "the second party has its full time");
    fixture.advance(1);
    assert!(one.is_closed() && two.is_closed());
    assert_eq!((fixture.ended(Socks5Outcome::Expired), fixture.proxy.counts().waiting), (2, 0));
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Err(ActivationRefusal::NotConnected));
}

#[test]
fn a_slow_handshake_is_closed() {
    for begun in [&[][..], &[5], &[5, 200, 1], &[5, 1, 0, 5, 1]] {
        let mut fixture = Fixture::new();
        let mut client = fixture.connect();
        client.write(begun);
        fixture.run();
        client.read();
        fixture.advance(9_999);
        assert!(!client.is_closed());
        fixture.advance(1);
        assert!(client.is_closed(), "{begun:?}");
        assert_eq!(fixture.ended(Socks5Outcome::Expired), 1);
    }
}

#[test]
fn garbage_is_refused_and_leaves_nothing() {
    let mut fixture = Fixture::new();
    for (bytes, reply) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![]),
        (b"\x16\x03\x01\x02\x00".to_vec(), vec![]),
        (vec![4, 1, 0, 80, 127, 0, 0, 1, 0], vec![]),
        (vec![5, 1, 2], vec![5, 0xFF]),
        (vec![5, 0], vec![5, 0xFF]),
        ([&[5, 1, 0][..], &[5, 3, 0, 3, 1, b'x', 0, 0]].concat(), vec![5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        (
            [&[5, 1, 0][..], &[5, 1, 0, 1, 1, 2, 3, 4, 0, 80]].concat(),
            vec![5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0],
        ),
        ([&[5, 1, 0][..], &request(&NAME[1..])].concat(), vec![5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]),
        ([&[5, 1, 0][..], &[9; 300]].concat(), vec![5, 0]),
    ] {
        let mut client = fixture.connect();
        client.write(&bytes);
        fixture.run();
        assert_eq!(client.read(), reply, "{bytes:?}");
        assert!(client.is_closed(), "{bytes:?}");
    }
    assert_eq!((fixture.ended(Socks5Outcome::Rejected), fixture.listener.tasks()), (9, 0));
    assert_eq!(fixture.proxy.counts().waiting, 0);
}

#[test]
fn random_bytes_do_not_panic_and_leave_nothing() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let mut fixture = Fixture::new();
    for _ in 0..500 {
        let mut client = fixture.connect();
        let valid = [&[5, 1, 0][..], &request(NAME)].concat();
        let keep = usize::from(random()) % valid.len();
        let mut bytes = valid[..keep].to_vec();
        bytes.extend(std::iter::repeat_with(&mut random).take(20));
        client.write(&bytes);
        fixture.run();
        drop(client);
        fixture.run();
    }
    fixture.advance(60_000);
    assert_eq!((fixture.listener.tasks(), fixture.proxy.counts().waiting), (0, 0));
}

#[test]
fn a_handshake_in_single_bytes_succeeds() {
    let mut fixture = Fixture::new();
    let mut client = fixture.connect();
    for byte in [&[5, 2, 1, 0][..], &request(NAME)].concat() {
        client.write(&[byte]);
        fixture.run();
    }
    assert_eq!(client.read(), [&[5, 0][..], &accepted()].concat());
}

#[test]
fn a_cancelled_task_releases_its_counts() {
    let mut fixture = Fixture::new();
    let _parties = fixture.pair(&BytestreamLimits::default());
    let _waiting = fixture.party();
    assert_eq!((fixture.proxy.counts().active, fixture.proxy.counts().waiting), (1, 1));
    fixture.listener.drop_tasks();
    assert_eq!((fixture.proxy.counts().active, fixture.proxy.counts().waiting), (0, 0));
}

#[test]
fn early_data_of_one_of_two_parties_is_counted() {
    let mut fixture = Fixture::new();
    let [mut one, mut two] = [fixture.party(), fixture.party()];
    two.write(&[b'x'; 70_000]);
    fixture.run();
    assert!(two.is_closed() && !one.is_closed());
    assert_eq!(fixture.ended(Socks5Outcome::TooMuchEarlyData), 1);
}

#[test]
fn connections_without_an_activation_are_limited_and_active_ones_are_not_counted() {
    let mut fixture = Fixture::new();
    fixture.proxy.set_unactivated_limits(3, 2);
    let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    let admits = |fixture: &Fixture, peer| fixture.proxy.0.unactivated.try_acquire(peer).is_ok();
    let one = fixture.party();
    assert!(admits(&fixture, PEER));
    let two = fixture.party();
    assert!(!admits(&fixture, PEER) && admits(&fixture, other));
    let third = fixture.proxy.0.unactivated.try_acquire(other).unwrap();
    assert!(!admits(&fixture, other), "three in total");
    drop(third);
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    let _further = [fixture.connect(), fixture.connect()];
    assert!(!admits(&fixture, PEER));
    drop((one, two));
    fixture.run();
    assert!(!admits(&fixture, PEER), "an active bytestream was not counted");
}

#[test]
fn what_was_sent_arrives_although_its_sender_takes_nothing_more() {
    let mut fixture = Fixture::new();
    let mut slow = fixture.connect_with(1000);
    fixture.name(&mut slow);
    let mut sender = fixture.party();
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
    assert_eq!(sender.write(&sent), sent.len());
    // Writing to it fails from here on.
    drop(sender);
    slow.write(b"acknowledged");
    fixture.run();
    let mut received = Vec::new();
    while !is_closed_after(&mut slow, &mut received) {
        fixture.run();
    }
    assert!(received == sent, "{} bytes", received.len());
    drop(slow);
    fixture.run();
    assert_eq!((fixture.ended(Socks5Outcome::Failed), fixture.listener.tasks()), (1, 0));
}

#[test]
fn a_silent_bytestream_is_idle_while_another_of_its_user_is_in_debt() {
    let mut fixture = Fixture::new();
    let limits = BytestreamLimits {
        bytes_per_second_per_user: 32_768,
        idle_seconds: 10,
        ..BytestreamLimits::default()
    };
    let [mut one, mut two] = fixture.pair(&limits);
    let [mut silent, _silent] = fixture.pair(&limits);
    for _ in 0..110 {
        one.write(&[b'x'; 100_000]);
        fixture.advance(100);
        two.read();
    }
    assert!(silent.is_closed());
    assert_eq!((fixture.ended(Socks5Outcome::Idle), fixture.proxy.counts().active), (1, 1));
}

#[test]
fn a_disconnect_is_noticed_in_debt() {
    let mut fixture = Fixture::new();
    let limits = BytestreamLimits { bytes_per_second_per_user: 1, ..BytestreamLimits::default() };
    let [mut one, _two] = fixture.pair(&limits);
    one.write(&[b'x'; 100_000]);
    fixture.run();
    let leaving = fixture.pair(&limits);
    drop(leaving);
    fixture.run();
    assert_eq!(fixture.proxy.counts().active, 1);
}

/// A waker that uses the proxy, as a task does that runs at once.
struct UsesProxy(Socks5Proxy);

impl std::task::Wake for UsesProxy {
    fn wake(self: Arc<Self>) {
        self.0.counts();
    }
}

#[test]
fn no_task_is_woken_under_a_lock() {
    let mut fixture = Fixture::new();
    let _one = fixture.party();
    let waker = Waker::from(Arc::new(UsesProxy(fixture.proxy.clone())));
    fixture.listener.poll_tasks(&waker);
    let _two = fixture.party();
    fixture.listener.poll_tasks(&waker);
    assert_eq!(fixture.activate(&BytestreamLimits::default()), Ok(()));
    fixture.listener.poll_tasks(&waker);
    fixture.advance(100);
}
