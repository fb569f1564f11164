//! Chat between pairs of light clients, closed loop (a number in flight) and open loop (a rate), for a server or the relay.
//!
//! The partner of slot `n` is `n ^ 1`. Each message carries in its body when it was due and when it was handed to the socket's queue.
//! One-way latency is from the second stamp to the moment at which the receiver's bytes were cut into elements; both ends are in this process,
//! so there is one clock. The client's own time on a core is in it: at dense traffic the client is a good part of what is measured.
//! A message that is lost or bounced ends the run.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use memchr::memmem;

use super::clock::now;
use super::driver::{Driver, Outs};
use super::hist::Hist;
use super::process::CpuMeter;

/// The size of a message between addresses of usual length, in bytes.
const SIZE: usize = 265;
const DIGITS: usize = 16;
/// Text to fill the body with.
const FILLER: &str =
    " I will be at the station at nine, then we can walk over together if the rain has stopped by then.";

/// What a measured interval brought.
pub(crate) struct Sample {
    /// Microseconds of server CPU for each message delivered.
    pub(crate) cpu: f64,
    /// Messages delivered in a second.
    pub(crate) rate: f64,
    /// Latency from sending to delivery.
    pub(crate) latency: Hist,
    /// How late the client sent (open loop).
    pub(crate) late: Hist,
}

/// Who sends how often, for the open loop.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Messages in a second, of all senders together.
    pub(crate) rate: f64,
    /// Whether both sides of a pair send, or only the even slots.
    pub(crate) both: bool,
    /// Messages that a sender hands over at once. Near the top a client that writes each message by itself is slower than the server.
    pub(crate) burst: u32,
}

/// The messages of all connections, ready to be stamped.
pub(crate) struct Chat {
    messages: Vec<Message>,
    started: Instant,
    count: u64,
    /// Messages under way.
    outstanding: u64,
    bad: Option<String>,
    sample: Sample,
    delivered: u64,
    marks: Marks,
}

/// What is looked for in each message.
struct Marks {
    body: memmem::Finder<'static>,
    error: memmem::Finder<'static>,
}

impl Marks {
    fn new() -> Self {
        Self { body: memmem::Finder::new(b"<body>"), error: memmem::Finder::new(b"<error") }
    }

    /// When a message was due and when it was sent; nothing for errors and for what the bench did not send.
    fn stamps(&self, element: &[u8]) -> Option<(u64, u64)> {
        let from = self.body.find(element)? + self.body.needle().len();
        let digits = element.get(from..from + 2 * DIGITS)?;
        if self.error.find(&element[from..]).is_some() {
            return None;
        }
        let (due, sent) = digits.split_at(DIGITS);
        Some((unhex(due)?, unhex(sent)?))
    }
}

struct Message {
    bytes: Vec<u8>,
    id: usize,
    stamps: usize,
}

impl Chat {
    /// Messages between the connections of a driver; there must be an even number.
    pub(crate) fn new(driver: &Driver) -> Self {
        let addresses = &driver.addresses;
        let messages = (0..addresses.len()).map(|slot| Message::new(&addresses[slot], &addresses[slot ^ 1]));
        Self {
            messages: messages.collect(),
            started: now(),
            count: 0,
            outstanding: 0,
            bad: None,
            sample: Sample { cpu: 0.0, rate: 0.0, latency: Hist::new(), late: Hist::new() },
            delivered: 0,
            marks: Marks::new(),
        }
    }

    fn nanos(&self) -> u64 {
        now().duration_since(self.started).as_nanos() as u64
    }

    fn send(&mut self, outs: &mut Outs, slot: usize, due: u64, sent: u64) {
        let message = &mut self.messages[slot];
        hex(&mut message.bytes[message.id..], self.count);
        hex(&mut message.bytes[message.stamps..], due);
        hex(&mut message.bytes[message.stamps + DIGITS..], sent);
        outs.to(slot).extend_from_slice(&message.bytes);
        self.count += 1;
        self.outstanding += 1;
    }

    /// Takes a delivered element; true when it was a message.
    fn receive(&mut self, element: &[u8]) -> bool {
        if !element.starts_with(b"<message") {
            return false;
        }
        match self.marks.stamps(element) {
            Some((due, sent)) => {
                let at = self.nanos();
                self.sample.latency.add(at.saturating_sub(sent));
                self.sample.late.add(sent.saturating_sub(due));
                self.delivered += 1;
                self.outstanding = self.outstanding.saturating_sub(1);
                true
            }
            None => {
                self.bad.get_or_insert_with(|| String::from_utf8_lossy(element).into_owned());
                false
            }
        }
    }

    fn check(&self) -> Result<()> {
        match &self.bad {
            Some(element) => bail!("this came back instead of a message: {element}"),
            None => Ok(()),
        }
    }

    /// Forgets what was measured and begins an interval.
    fn begin(&mut self, cpu: &mut CpuMeter) -> Result<Instant> {
        self.sample = Sample { cpu: 0.0, rate: 0.0, latency: Hist::new(), late: Hist::new() };
        self.delivered = 0;
        cpu.elapsed()?;
        Ok(now())
    }

    fn end(&mut self, cpu: &mut CpuMeter, begun: Instant) -> Result<Sample> {
        let (seconds, used) = (begun.elapsed().as_secs_f64(), cpu.elapsed()?);
        self.check()?;
        ensure!(self.delivered > 0, "no message was delivered");
        let empty = Sample { cpu: 0.0, rate: 0.0, latency: Hist::new(), late: Hist::new() };
        let mut sample = std::mem::replace(&mut self.sample, empty);
        sample.cpu = used as f64 / 1e3 / self.delivered as f64;
        sample.rate = self.delivered as f64 / seconds;
        Ok(sample)
    }

    /// Waits for what is under way.
    fn drain(&mut self, driver: &mut Driver) -> Result<()> {
        let mut last = now();
        while self.outstanding > 0 {
            let mut came = false;
            driver.turn(Some(Duration::from_millis(200)), |_, _, element| came |= self.receive(element))?;
            if came {
                last = now();
            } else if last.elapsed() > Duration::from_secs(10) {
                bail!("{} of {} messages were not delivered", self.outstanding, self.count);
            }
        }
        self.check()
    }

    /// Keeps `flying` messages of each pair under way, from the even slot to the odd one: warms up, then measures for `length`.
    pub(crate) fn closed(
        &mut self,
        driver: &mut Driver,
        cpu: &mut CpuMeter,
        flying: usize,
        length: Duration,
    ) -> Result<Sample> {
        for slot in (0..self.messages.len()).step_by(2) {
            for _ in 0..flying {
                let at = self.nanos();
                self.send(&mut driver.outs, slot, at, at);
            }
        }
        let again = |chat: &mut Self, driver: &mut Driver, length: Duration| {
            driver.run_until(now() + length, |outs, slot, element| {
                if chat.receive(element) {
                    let at = chat.nanos();
                    chat.send(outs, slot ^ 1, at, at);
                }
            })
        };
        again(self, driver, length / 4)?;
        let begun = self.begin(cpu)?;
        again(self, driver, length)?;
        let sample = self.end(cpu, begun)?;
        self.drain(driver)?;
        Ok(sample)
    }

    /// Sends at a steady rate whatever comes back: warms up, then measures for `length`.
    pub(crate) fn open(
        &mut self,
        driver: &mut Driver,
        cpu: &mut CpuMeter,
        pace: Pace,
        warm: Duration,
        length: Duration,
    ) -> Result<Sample> {
        self.paced(driver, pace, warm)?;
        let begun = self.begin(cpu)?;
        self.paced(driver, pace, length)?;
        let sample = self.end(cpu, begun)?;
        self.drain(driver)?;
        Ok(sample)
    }

    fn paced(&mut self, driver: &mut Driver, pace: Pace, length: Duration) -> Result<()> {
        let step = if pace.both { 1 } else { 2 };
        let senders = self.messages.len() / step;
        let (first, gap) = (self.nanos(), 1e9 * f64::from(pace.burst) / pace.rate);
        let last = first + length.as_nanos() as u64;
        let mut turn = 0_u64;
        loop {
            let mut at = self.nanos();
            let mut due = first + (turn as f64 * gap) as u64;
            while due <= at && due < last {
                // A stride that is prime to the number of senders: neighbours do not send one after the other.
                let sender = (turn as usize * 7_919) % senders * step;
                for _ in 0..pace.burst {
                    self.send(&mut driver.outs, sender, due, at);
                }
                turn += 1;
                due = first + (turn as f64 * gap) as u64;
                if turn.is_multiple_of(32) {
                    driver.flush()?;
                    at = self.nanos();
                }
            }
            driver.flush()?;
            at = self.nanos();
            if at >= last {
                return Ok(());
            }
            let wait = Duration::from_nanos(due.min(last).saturating_sub(at));
            driver.turn(Some(wait), |_, _, element| {
                self.receive(element);
            })?;
            // A second's worth of messages under way: the server is not keeping up, and the queue would only grow.
            if self.outstanding as f64 > pace.rate.max(1_000.0) {
                bail!("at {:.0} messages a second the server falls behind by more than a second", pace.rate);
            }
        }
    }
}

impl Message {
    fn new(from: &str, to: &str) -> Self {
        let head = format!("<message from='{from}' to='{to}' id='");
        let middle = "' type='chat'><body>";
        let tail = "</body><active xmlns='http://jabber.org/protocol/chatstates'/></message>";
        let id = head.len();
        let stamps = id + DIGITS + middle.len();
        let fill = SIZE.saturating_sub(stamps + 2 * DIGITS + tail.len()).min(FILLER.len());
        let zeros = "0".repeat(2 * DIGITS);
        let text = format!("{head}{}{middle}{zeros}{}{tail}", &zeros[..DIGITS], &FILLER[..fill]);
        Self { bytes: text.into_bytes(), id, stamps }
    }
}

/// Writes 16 hexadecimal digits.
fn hex(into: &mut [u8], value: u64) {
    for (index, byte) in into[..DIGITS].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(value >> (60 - 4 * index)) as usize & 15];
    }
}

/// Reads hexadecimal digits.
pub(crate) fn unhex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::{Marks, Message, SIZE, hex};

    #[test]
    fn a_message_is_a_usual_one_and_keeps_its_stamps() {
        let mut message = Message::new("u0@localhost/bench", "u1@localhost/bench");
        assert_eq!(message.bytes.len(), SIZE);
        hex(&mut message.bytes[message.id..], 7);
        hex(&mut message.bytes[message.stamps..], 0x1234);
        hex(&mut message.bytes[message.stamps + 16..], u64::MAX);
        assert_eq!(Marks::new().stamps(&message.bytes), Some((0x1234, u64::MAX)));
        let text = String::from_utf8(message.bytes).unwrap();
        assert!(text.contains("id='0000000000000007' type='chat'"), "{text}");
    }

    #[test]
    fn an_error_is_no_message() {
        let bounced = "<message type='error'><body>00000000000000010000000000000002</body><error/></message>";
        assert_eq!(Marks::new().stamps(bounced.as_bytes()), None);
        assert_eq!(Marks::new().stamps(b"<message><subject/></message>"), None);
    }
}
