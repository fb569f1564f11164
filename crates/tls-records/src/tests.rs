//! Tests of TLS 1.3 records that no well-behaved server sends. The peer is another [`RecordLayer`] with the keys
//! exchanged; the tests of `loadgen` show that rustls, OpenSSL and Erlang accept its records too.

use rustls::{AlertDescription, CipherSuite, Error};

use crate::records::APPLICATION_DATA;
use crate::{OpenedRecords, RecordError, RecordLayer, SealedBuffer, TrafficSecret};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

struct Pair {
    here: RecordLayer,
    there: RecordLayer,
}

impl Pair {
    fn new() -> Pair {
        let secret = |byte| TrafficSecret::new(&[byte; 48]).unwrap();
        let make = |ours, theirs| {
            RecordLayer::new(CipherSuite::TLS13_AES_256_GCM_SHA384, secret(ours), secret(theirs), None)
                .unwrap()
        };
        Pair { here: make(1, 2), there: make(2, 1) }
    }

    /// Seals records at the peer, one per part.
    fn seal(&mut self, parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut sealed = SealedBuffer::new();
        for (kind, data) in parts {
            assert!(self.there.seal(*kind, data, &mut sealed));
        }
        sealed.bytes().to_vec()
    }

    /// Opens records at this end; its responses are opened at the peer.
    fn open(
        &mut self,
        mut records: Vec<u8>,
    ) -> (Result<OpenedRecords, RecordError>, Vec<u8>, Result<OpenedRecords, RecordError>) {
        let (mut got, mut sealed) = (Vec::new(), SealedBuffer::new());
        let result = self.here.open(&mut records, &mut sealed, &mut |data| got.extend_from_slice(data));
        let mut answer = sealed.bytes().to_vec();
        let reply = self.there.open(&mut answer, &mut SealedBuffer::new(), &mut |_| panic!("no text"));
        (result, got, reply)
    }

    /// Error at this end, and the alert received by the peer.
    fn fault(&mut self, records: Vec<u8>) -> (Error, AlertDescription) {
        let (result, _, reply) = self.open(records);
        let error = result.map(|_| ()).map_err(|fault| fault.error).unwrap_err();
        match reply.map(|_| ()).map_err(|fault| fault.error) {
            Err(Error::AlertReceived(alert)) => (error, alert),
            other => panic!("{error}, then {other:?}"),
        }
    }
}

#[test]
fn an_established_connection_is_small() {
    assert!(size_of::<RecordLayer>() <= 256, "{}", size_of::<RecordLayer>());
}

#[test]
fn whole_records_are_opened_and_the_rest_is_left() {
    let mut pair = Pair::new();
    let mut records = pair.seal(&[
        (APPLICATION_DATA, b"one"),
        (APPLICATION_DATA, b""),
        (APPLICATION_DATA, b"two"),
        (APPLICATION_DATA, b"three"),
    ]);
    let rest = records.split_off(records.len() - 1);
    let (result, got, _) = pair.open(records.clone());
    let opened = result.ok().unwrap();
    assert_eq!((got.as_slice(), opened.bytes, opened.closed), (&b"onetwo"[..], 6, false));
    assert_eq!(opened.consumed, records.len() - (5 + 5 + 1 + 16 - 1));
    let (result, got, _) = pair.open([&records[opened.consumed..], &rest].concat());
    assert_eq!((got.as_slice(), result.ok().unwrap().bytes), (&b"three"[..], 5));
}

#[test]
fn padding_is_removed() {
    let mut pair = Pair::new();
    // The outer type is the last nonzero byte: text with its type and trailing zeros, sealed as type 0.
    let padded = pair.seal(&[(0, b"text\0\x17\0\0\0")]);
    let (result, got, _) = pair.open(padded);
    assert!(result.is_ok());
    assert_eq!(got, b"text\0");
    let nothing = pair.seal(&[(0, &[0; 40])]);
    assert_eq!(pair.fault(nothing).1, AlertDescription::UnexpectedMessage);
}

#[test]
fn the_largest_record_is_opened_and_a_larger_one_refused() {
    let mut pair = Pair::new();
    let largest = pair.seal(&[(APPLICATION_DATA, &[b'x'; 16_384])]);
    let (result, got, _) = pair.open(largest);
    assert!(result.is_ok() && got.len() == 16_384);
    let larger = pair.seal(&[(APPLICATION_DATA, &[b'x'; 16_385])]);
    assert_eq!(pair.fault(larger), (Error::PeerSentOversizedRecord, AlertDescription::RecordOverflow));
    let mut pair = Pair::new();
    // Refused by its header, without waiting for the rest.
    assert_eq!(pair.fault(vec![APPLICATION_DATA, 3, 3, 0x41, 1]).1, AlertDescription::RecordOverflow);
}

#[test]
fn unexpected_records_end_the_connection() {
    for records in [
        &[(20, &b"\x01"[..])][..],
        &[(HANDSHAKE, b"")],
        // A certificate request, which was not offered (RFC 8446, section 4.6.2).
        &[(HANDSHAKE, &[13, 0, 0, 1, 0])],
        // A key update followed by other data in its record.
        &[(HANDSHAKE, &[24, 0, 0, 1, 0, 4, 0, 0, 0])],
        // Application data within a handshake message.
        &[(HANDSHAKE, &[4, 0, 0, 9, 1]), (APPLICATION_DATA, b"text")],
        &[(HANDSHAKE, &[4, 0]), (ALERT, &[1, 0])],
    ] {
        let mut pair = Pair::new();
        let sealed = pair.seal(records);
        assert_eq!(pair.fault(sealed).1, AlertDescription::UnexpectedMessage, "{records:?}");
    }
    let mut pair = Pair::new();
    assert_eq!(pair.fault(vec![22, 3, 3, 0, 4, 1, 2, 3, 4]).1, AlertDescription::UnexpectedMessage);
    for (records, alert) in [
        (&[(ALERT, &b"\x01"[..])][..], AlertDescription::DecodeError),
        (&[(HANDSHAKE, &[24, 0, 0, 1, 2])], AlertDescription::DecodeError),
        (&[(HANDSHAKE, &[24, 0, 0, 0])], AlertDescription::DecodeError),
        (&[(HANDSHAKE, &[4, 2, 0, 0])], AlertDescription::DecodeError),
    ] {
        let mut pair = Pair::new();
        let sealed = pair.seal(records);
        assert_eq!(pair.fault(sealed).1, alert, "{records:?}");
    }
}

#[test]
fn forged_repeated_and_missing_records_are_detected() {
    let bad = (Error::DecryptError, AlertDescription::BadRecordMac);
    let sample = Pair::new().seal(&[(APPLICATION_DATA, b"text")]);
    for place in 5..sample.len() {
        let mut pair = Pair::new();
        let mut forged = pair.seal(&[(APPLICATION_DATA, b"text")]);
        forged[place] ^= 1;
        assert_eq!(pair.fault(forged), bad, "byte {place}");
    }
    let mut pair = Pair::new();
    let once = pair.seal(&[(APPLICATION_DATA, b"text")]);
    assert_eq!(pair.fault([once.clone(), once].concat()), bad);
    let mut pair = Pair::new();
    let lost = pair.seal(&[(APPLICATION_DATA, b"lost")]);
    let next = pair.seal(&[(APPLICATION_DATA, b"text")]);
    assert!(!lost.is_empty());
    assert_eq!(pair.fault(next), bad);
    // Shorter than a tag.
    assert_eq!(Pair::new().fault(vec![APPLICATION_DATA, 3, 3, 0, 3, 1, 2, 3]), bad);
}

#[test]
fn tickets_are_read_complete_joined_and_fragmented() {
    let ticket = [&[4, 0, 0, 9][..], &[7; 9]].concat();
    let mut pair = Pair::new();
    let two = [ticket.clone(), ticket.clone()].concat();
    let mut parts: Vec<(u8, &[u8])> = vec![(HANDSHAKE, &ticket), (HANDSHAKE, &two)];
    parts.extend(two.chunks(5).map(|part| (HANDSHAKE, part)));
    parts.push((APPLICATION_DATA, b"text"));
    let records = pair.seal(&parts);
    let length = records.len();
    let (result, got, _) = pair.open(records);
    assert_eq!((result.ok().unwrap().consumed, got.as_slice()), (length, &b"text"[..]));
    assert_eq!(pair.here.allocated_bytes(), 0);
}

#[test]
fn keys_change_on_an_update_and_are_updated_on_request() {
    let mut pair = Pair::new();
    for (requested, turn) in [(0, b"0"), (1, b"1"), (1, b"2"), (0, b"3")] {
        let mut records = pair.seal(&[(APPLICATION_DATA, turn), (HANDSHAKE, &[24, 0, 0, 1, requested])]);
        // The peer switches its own keys after the update it sent, as it would after one it received.
        pair.there.update_own_keys().unwrap();
        records.extend(pair.seal(&[(APPLICATION_DATA, b"after")]));
        let (result, got, reply) = pair.open(records);
        assert!(result.is_ok() && reply.is_ok());
        assert_eq!(got, [&turn[..], b"after"].concat());
        let mut sealed = SealedBuffer::new();
        assert!(pair.here.seal(APPLICATION_DATA, b"back", &mut sealed));
        let (mut back, mut got) = (sealed.bytes().to_vec(), Vec::<u8>::new());
        let opened = pair.there.open(&mut back, &mut SealedBuffer::new(), &mut |data| got.extend(data));
        assert!(opened.is_ok() && got == b"back", "turn {turn:?}");
    }
}

#[test]
fn alerts_are_ends_or_errors() {
    let mut pair = Pair::new();
    let records = pair.seal(&[
        (ALERT, &[1, 90]),
        (APPLICATION_DATA, b"text"),
        (ALERT, &[1, 0]),
        (APPLICATION_DATA, b"no more"),
    ]);
    let (result, got, _) = pair.open(records);
    assert!(result.ok().unwrap().closed);
    assert_eq!(got, b"text");
    let mut pair = Pair::new();
    let records = pair.seal(&[(ALERT, &[2, 40])]);
    let (result, _, reply) = pair.open(records);
    let error = result.map(|_| ()).map_err(|fault| fault.error).unwrap_err();
    assert_eq!(error, Error::AlertReceived(AlertDescription::HandshakeFailure));
    assert_eq!(reply.ok().unwrap().consumed, 0, "an alert is not answered");
}

#[test]
fn a_record_that_does_not_fit_compacts_the_buffer_once() {
    let mut pair = Pair::new();
    let mut sealed = SealedBuffer::new();
    for _ in 0..5 {
        assert!(pair.there.seal(APPLICATION_DATA, &[b'y'; 16_384], &mut sealed));
    }
    let (result, got, _) = pair.open(sealed.bytes().to_vec());
    assert!(result.is_ok() && got.len() == 5 * 16_384);
}
