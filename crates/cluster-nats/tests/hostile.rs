//! Hostile messages on the subjects of real nodes, and hostile records in the bucket: nodes report them and go on.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests wait for real processes, which no clock of ours moves; the lints exempt functions marked as tests, not what those call"
)]

mod harness;

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use async_nats::jetstream;
use cluster::conformance::{test_claim, test_envelope};
use cluster::{AddressLocation, Cluster, EnvelopeClass};
use futures_core::Stream as _;
use harness::{Nodes, attach, deployment, left, name, runtime, settings, shared_server, start, wait_until};

#[test]
fn truncated_huge_changed_and_repeated_messages_do_no_harm() {
    let number = deployment();
    let url = shared_server().url();
    let nodes = Nodes(["a", "b"].map(|node| start(settings(&url, node, number))).into());
    nodes.wait_until_connected();
    let inboxes: Vec<_> = nodes.0.iter().map(attach).collect();
    let subject = format!("throng.{number:016x}.b");
    let deliver = |text: &str| {
        let envelope = test_envelope(name("a"), EnvelopeClass::Message, text);
        nodes.0[0].deliver(name("b"), envelope).unwrap();
    };
    let mut texts = Vec::new();
    let mut random = fastrand::Rng::with_seed(5);
    runtime().block_on(async {
        let options = async_nats::ConnectOptions::new().no_echo();
        let attacker = Box::pin(options.connect(&url)).await.unwrap();
        let mut tapped = attacker.subscribe(subject.clone()).await.unwrap();
        attacker.flush().await.unwrap();
        let mut frames = Vec::new();
        for round in 0..200 {
            let text = format!("message {round}");
            deliver(&text);
            texts.push(text);
            nodes.0[0].claim(test_claim(round, 1, 1));
            let frame = poll_fn(|context| Pin::new(&mut tapped).poll_next(context)).await.unwrap().payload;
            frames.push(frame.clone());
            let publish = |octets: Vec<u8>| attacker.publish(subject.clone(), octets.into());
            publish(frame[..random.usize(..=frame.len())].to_vec()).await.unwrap();
            let mut changed = frame.to_vec();
            for _ in 0..3 {
                let at = random.usize(..changed.len());
                changed[at] = random.u8(..);
            }
            publish(changed).await.unwrap();
            publish(random.choice(&frames).unwrap().to_vec()).await.unwrap();
            if round % 50 == 0 {
                publish(vec![1; 1 << 20]).await.unwrap();
                publish(vec![0xff; 600_000]).await.unwrap();
                publish(Vec::new()).await.unwrap();
            }
        }
        attacker.flush().await.unwrap();
    });
    assert!(wait_until(|| inboxes[1].texts(name("a")).len() >= texts.len()));
    nodes.wait_until_quiet();
    assert_eq!(inboxes[1].texts(name("a")), texts);
    assert!(wait_until(|| nodes.0[1].locate(199, None) != AddressLocation::Nowhere));
    assert!(nodes.0[1].status().statistics.forged_frames > 0);
    assert!(inboxes.iter().all(|inbox| left(inbox).is_empty()), "nobody else can end a membership");
}

#[test]
fn records_that_are_not_valid_are_ignored() {
    let number = deployment();
    let url = shared_server().url();
    let nodes = Nodes(["a", "b"].map(|node| start(settings(&url, node, number))).into());
    nodes.wait_until_connected();
    runtime().block_on(async {
        let context = jetstream::new(Box::pin(async_nats::connect(&url)).await.unwrap());
        let bucket = context.get_key_value(format!("throng-{number:016x}")).await.unwrap();
        for (key, record) in [
            ("c", "nonsense"),
            ("NOT.A.NAME", "throng 1 epoch=1 envelopes=3 frames=1"),
            ("d", "throng 1 epoch=1 envelopes=3 frames=0"),
            ("e", "throng 1 epoch=99999999999999999999999 envelopes=3 frames=1"),
            ("a", "throng 1 epoch=9999999999999 envelopes=3 frames=1"),
            ("b", ""),
        ] {
            bucket.put(key, record.into()).await.unwrap();
        }
        // A node that does not exist never answers.
        bucket.put("ghost", "throng 1 epoch=1 envelopes=3 frames=1".into()).await.unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    for node in &nodes.0 {
        assert_eq!(node.members().len(), 2);
        assert_eq!(node.status().problem(), None);
    }
}
