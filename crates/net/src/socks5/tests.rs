//! Tests of the proxy over pipes in memory, with a clock that stands still until it is moved.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::ManualClock;

use super::*;
use crate::Pipe;
use crate::stream::byte_stream::AnyByteStream;

const NAME: &str = "0123456789abcdef0123456789abcdef01234567";

fn destination() -> BytestreamDestination {
    let digit = |n: usize| u8::from_str_radix(&NAME[2 * n..2 * n + 2], 16).unwrap();
    BytestreamDestination::new(std::array::from_fn(digit))
}

/// A proxy, its clock and the tasks of its connections.
struct Stage {
    proxy: Socks5Proxy,
    clock: Arc<ManualClock>,
    tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

/// The client's end of a connection.
struct Client(Pipe);

impl Stage {
    fn new() -> Stage {
        let clock = Arc::new(ManualClock::new());
        Stage { proxy: Socks5Proxy::new(clock.clone()), clock, tasks: Vec::new() }
    }

    fn connect(&mut self) -> Client {
        self.connect_with(256 * 1024)
    }

    /// A connection whose buffers hold this many bytes in each direction.
    fn connect_with(&mut self, capacity: usize) -> Client {
        let (server, client) = Pipe::pair(capacity);
        self.tasks.push(Box::pin(self.proxy.clone().serve_stream(AnyByteStream::Memory(server), None)));
        self.run();
        Client(client)
    }

    /// Polls all tasks until none makes progress any more; pipes and alarms wake nothing here.
    fn run(&mut self) {
        for _ in 0..64 {
            let mut cx = Context::from_waker(Waker::noop());
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
    }

    fn advance(&mut self, millis: u64) {
        self.clock.advance(millis);
        self.proxy.sweep();
        self.run();
    }

    /// A connection that has named its destination.
    fn party(&mut self) -> Client {
        let mut client = self.connect();
        self.name(&mut client);
        client
    }

    fn name(&mut self, client: &mut Client) {
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
    fn pair(&mut self, limits: &BytestreamLimits) -> [Client; 2] {
        let parties = [self.party(), self.party()];
        assert_eq!(self.activate(limits), Ok(()));
        parties
    }

    fn ended(&self, outcome: Socks5Outcome) -> u64 {
        self.proxy.counts().ended[outcome as usize]
    }
}

impl Client {
    fn write(&mut self, mut bytes: &[u8]) -> usize {
        let before = bytes.len();
        let mut cx = Context::from_waker(Waker::noop());
        while !bytes.is_empty() {
            match self.0.poll_write(&mut cx, bytes) {
                Poll::Ready(Ok(count)) => bytes = &bytes[count..],
                _ => break,
            }
        }
        before - bytes.len()
    }

    fn read(&mut self) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut all, mut buffer) = (Vec::new(), vec![0; 4096]);
        while let Poll::Ready(count @ 1..) = self.0.poll_read(&mut cx, &mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
        all
    }

    fn is_closed(&mut self) -> bool {
        self.0.poll_read(&mut Context::from_waker(Waker::noop()), &mut [0]) == Poll::Ready(0)
    }
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
    let mut stage = Stage::new();
    let [mut one, mut two] = stage.pair(&BytestreamLimits::default());
    one.write(b"hello");
    two.write(b"world");
    stage.run();
    assert_eq!((one.read(), two.read()), (b"world".to_vec(), b"hello".to_vec()));
    let counts = stage.proxy.counts();
    assert_eq!((counts.active, counts.waiting, counts.activated, counts.bytes), (1, 0, 1, 10));
    drop((one, two));
    stage.run();
    assert_eq!((stage.proxy.counts().active, stage.tasks.len()), (0, 0));
}

#[test]
fn section_6_3_5_both_parties_must_be_connected() {
    let mut stage = Stage::new();
    let limits = BytestreamLimits::default();
    assert_eq!(stage.activate(&limits), Err(ActivationRefusal::NotConnected));
    let _one = stage.party();
    assert_eq!(stage.activate(&limits), Err(ActivationRefusal::OneParty));
    let _two = stage.party();
    assert_eq!(stage.activate(&limits), Ok(()));
    assert_eq!(stage.activate(&limits), Err(ActivationRefusal::NotConnected), "once");
}

#[test]
fn every_digit_of_the_destination_counts() {
    let mut stage = Stage::new();
    let _parties = [stage.party(), stage.party()];
    for at in 0..20 {
        for bit in [1, 0x80] {
            let mut digest: [u8; 20] =
                std::array::from_fn(|n| u8::from_str_radix(&NAME[2 * n..2 * n + 2], 16).unwrap());
            digest[at] ^= bit;
            let other = BytestreamDestination::new(digest);
            let done = stage.proxy.activate(other, ("s", "u"), &BytestreamLimits::default());
            assert_eq!(done, Err(ActivationRefusal::NotConnected), "byte {at}");
        }
    }
}

#[test]
fn section_10_1_a_third_party_is_refused_and_the_first_two_stay() {
    let mut stage = Stage::new();
    let [mut one, mut two] = [stage.party(), stage.party()];
    let mut third = stage.connect();
    third.write(&[5, 1, 0]);
    stage.run();
    third.read();
    third.write(&request(NAME));
    stage.run();
    assert_eq!(third.read()[..2], [5, 2]);
    assert!(third.is_closed());
    assert_eq!(stage.ended(Socks5Outcome::Occupied), 1);
    assert_eq!(stage.activate(&BytestreamLimits::default()), Ok(()));
    one.write(b"x");
    stage.run();
    assert_eq!(two.read(), b"x");
}

#[test]
fn section_10_1_bytes_before_the_activation_are_ignored() {
    let mut stage = Stage::new();
    let [mut one, mut two] = [stage.party(), stage.party()];
    one.write(b"early");
    two.write(&[b'x'; 60_000]);
    stage.run();
    assert_eq!(stage.activate(&BytestreamLimits::default()), Ok(()));
    one.write(b"late");
    stage.run();
    assert_eq!((one.read(), two.read()), (vec![], b"late".to_vec()));
}

#[test]
fn section_6_3_5_bytes_sent_right_after_the_activation_arrive() {
    let mut stage = Stage::new();
    let [mut one, mut two] = [stage.party(), stage.party()];
    let users = ("proxy.example.com", "juliet@example.com");
    assert_eq!(stage.proxy.activate(destination(), users, &BytestreamLimits::default()), Ok(()));
    // The task of the parties has not run since.
    one.write(b"the beginning");
    stage.run();
    assert_eq!(two.read(), b"the beginning");
}

#[test]
fn a_flood_before_the_activation_ends_the_connection() {
    let mut stage = Stage::new();
    let mut one = stage.party();
    one.write(&[b'x'; 70_000]);
    stage.run();
    assert!(one.is_closed());
    assert_eq!((stage.ended(Socks5Outcome::Flooded), stage.proxy.counts().waiting), (1, 0));
}

#[test]
fn a_party_that_leaves_before_the_activation_can_come_back() {
    let mut stage = Stage::new();
    let one = stage.party();
    let mut two = stage.party();
    drop(one);
    stage.run();
    assert_eq!(stage.activate(&BytestreamLimits::default()), Err(ActivationRefusal::OneParty));
    let mut again = stage.party();
    assert_eq!(stage.activate(&BytestreamLimits::default()), Ok(()));
    again.write(b"x");
    stage.run();
    assert_eq!(two.read(), b"x");
    let (other, last) = (stage.party(), stage.party());
    drop((other, last));
    stage.run();
    assert_eq!((stage.ended(Socks5Outcome::Abandoned), stage.proxy.counts().waiting), (1, 0));
}

#[test]
fn half_a_bytestream_can_be_closed() {
    let mut stage = Stage::new();
    let [mut one, mut two] = stage.pair(&BytestreamLimits::default());
    one.write(b"request");
    one.0.close();
    stage.run();
    assert_eq!(two.read(), b"request");
    assert!(two.is_closed(), "the end is passed on");
    two.write(b"answer");
    stage.run();
    assert_eq!(one.read(), b"answer", "the other direction is open");
    two.0.close();
    stage.run();
    assert!(one.is_closed());
    assert_eq!((stage.ended(Socks5Outcome::Finished), stage.tasks.len()), (1, 0));
}

#[test]
fn a_party_that_does_not_read_holds_back_the_other() {
    let mut stage = Stage::new();
    let mut slow = stage.connect_with(1000);
    stage.name(&mut slow);
    let mut fast = stage.party();
    assert_eq!(stage.activate(&BytestreamLimits::default()), Ok(()));
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(2_000_000).collect();
    let mut written = 0;
    for _ in 0..100 {
        written += fast.write(&sent[written..]);
        stage.run();
    }
    // The pipes hold 256 kB and 1 kB, the proxy one chunk.
    assert!(written <= 256 * 1024 + 1000 + 32 * 1024, "{written}");
    let mut received = Vec::new();
    while received.len() < sent.len() {
        let more = slow.read();
        assert!(!more.is_empty(), "progress at {}", received.len());
        received.extend(more);
        written += fast.write(&sent[written..]);
        stage.run();
    }
    assert!(received == sent, "in order, and complete");
}

#[test]
fn rates_of_a_user_and_of_the_service_hold_on_average() {
    for limits in [
        BytestreamLimits { bytes_per_second_per_user: 100_000, ..BytestreamLimits::default() },
        BytestreamLimits { bytes_per_second: 100_000, ..BytestreamLimits::default() },
    ] {
        let mut stage = Stage::new();
        let [mut one, mut two] = stage.pair(&limits);
        let mut received = 0;
        for _ in 0..100 {
            one.write(&[b'x'; 200_000]);
            stage.advance(100);
            received += two.read().len();
        }
        // Ten seconds, the burst of one second, and one chunk of debt.
        assert!((1_000_000..1_200_000).contains(&received), "{received}");
    }
}

#[test]
fn the_debt_of_a_user_outlives_the_transfer() {
    let mut stage = Stage::new();
    let limits = BytestreamLimits { bytes_per_second_per_user: 10_000, ..BytestreamLimits::default() };
    let mut received = 0;
    for _ in 0..5 {
        let [mut one, mut two] = stage.pair(&limits);
        one.write(&[b'x'; 100_000]);
        stage.run();
        received += two.read().len();
        drop((one, two));
        stage.advance(1);
    }
    assert!(received <= 10_000 + 32 * 1024, "{received}");
}

#[test]
fn sessions_of_a_user_and_of_the_service_are_limited() {
    for (limits, refusal) in [
        (
            BytestreamLimits { sessions_per_user: 1, ..BytestreamLimits::default() },
            ActivationRefusal::UserLimit,
        ),
        (BytestreamLimits { sessions: 1, ..BytestreamLimits::default() }, ActivationRefusal::ServiceLimit),
    ] {
        let mut stage = Stage::new();
        let first = stage.pair(&limits);
        let _second = [stage.party(), stage.party()];
        assert_eq!(stage.activate(&limits), Err(refusal));
        drop(first);
        stage.run();
        assert_eq!(stage.activate(&limits), Ok(()), "it still waits");
    }
}

#[test]
fn an_idle_bytestream_is_closed_and_a_busy_one_is_not() {
    let mut stage = Stage::new();
    let [mut one, mut two] =
        stage.pair(&BytestreamLimits { idle_seconds: 10, ..BytestreamLimits::default() });
    for _ in 0..5 {
        stage.advance(9_000);
        one.write(b"x");
        stage.run();
        assert_eq!(two.read(), b"x");
    }
    stage.advance(9_999);
    assert_eq!(stage.proxy.counts().active, 1);
    stage.advance(1);
    assert!(one.is_closed() && two.is_closed());
    assert_eq!(stage.ended(Socks5Outcome::Idle), 1);
}

#[test]
fn a_receiver_that_never_reads_is_idle() {
    let mut stage = Stage::new();
    let limits = BytestreamLimits { idle_seconds: 10, ..BytestreamLimits::default() };
    let [mut one, _two] = stage.pair(&limits);
    for _ in 0..30 {
        one.write(&[b'x'; 600_000]);
        stage.advance(1000);
    }
    assert_eq!(stage.ended(Socks5Outcome::Idle), 1);
}

#[test]
fn a_bytestream_that_is_not_activated_in_time_is_closed() {
    let mut stage = Stage::new();
    stage.proxy.set_pairing_seconds(30);
    let mut one = stage.party();
    stage.advance(20_000);
    let mut two = stage.party();
    stage.advance(10_000);
    assert!(one.is_closed() && two.is_closed());
    assert_eq!((stage.ended(Socks5Outcome::Expired), stage.proxy.counts().waiting), (1, 0));
    assert_eq!(stage.activate(&BytestreamLimits::default()), Err(ActivationRefusal::NotConnected));
}

#[test]
fn a_slow_handshake_is_closed() {
    for begun in [&[][..], &[5], &[5, 200, 1], &[5, 1, 0, 5, 1]] {
        let mut stage = Stage::new();
        let mut client = stage.connect();
        client.write(begun);
        stage.run();
        client.read();
        stage.advance(9_999);
        assert!(!client.is_closed());
        stage.advance(1);
        assert!(client.is_closed(), "{begun:?}");
        assert_eq!(stage.ended(Socks5Outcome::Expired), 1);
    }
}

#[test]
fn garbage_is_refused_and_leaves_nothing() {
    let mut stage = Stage::new();
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
        let mut client = stage.connect();
        client.write(&bytes);
        stage.run();
        assert_eq!(client.read(), reply, "{bytes:?}");
        assert!(client.is_closed(), "{bytes:?}");
    }
    assert_eq!((stage.ended(Socks5Outcome::Rejected), stage.tasks.len()), (9, 0));
    assert_eq!(stage.proxy.counts().waiting, 0);
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
    let mut stage = Stage::new();
    for _ in 0..500 {
        let mut client = stage.connect();
        let valid = [&[5, 1, 0][..], &request(NAME)].concat();
        let keep = usize::from(random()) % valid.len();
        let mut bytes = valid[..keep].to_vec();
        bytes.extend(std::iter::repeat_with(&mut random).take(20));
        client.write(&bytes);
        stage.run();
        drop(client);
        stage.run();
    }
    stage.advance(60_000);
    assert_eq!((stage.tasks.len(), stage.proxy.counts().waiting), (0, 0));
}

#[test]
fn a_handshake_in_single_bytes_succeeds() {
    let mut stage = Stage::new();
    let mut client = stage.connect();
    for byte in [&[5, 2, 1, 0][..], &request(NAME)].concat() {
        client.write(&[byte]);
        stage.run();
    }
    assert_eq!(client.read(), [&[5, 0][..], &accepted()].concat());
}

#[test]
fn a_cancelled_task_frees_its_places() {
    let mut stage = Stage::new();
    let _parties = stage.pair(&BytestreamLimits::default());
    let _waiting = stage.party();
    assert_eq!((stage.proxy.counts().active, stage.proxy.counts().waiting), (1, 1));
    stage.tasks.clear();
    assert_eq!((stage.proxy.counts().active, stage.proxy.counts().waiting), (0, 0));
}
