//! Fuzz target for messages of other nodes: decoding never panics, and a node that receives them from a member goes on. The property
//! is in `src/protocol/property.rs`, shared with the ordinary tests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    throng_cluster_nats::check_frame(data);
});
