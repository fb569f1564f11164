//! Storage conformance suite on the memory backend.

use std::sync::Arc;

use base::ManualClock;
use throng_store::conformance::{Backend, Case, Fixture, block_on_ready};

struct MemoryBackend;

impl Backend for MemoryBackend {
    fn run(case: Case) {
        let clock = Arc::new(ManualClock::default());
        let stores = throng_store::memory::stores(clock.clone());
        block_on_ready(case(Fixture { stores, clock }));
    }
}

throng_store::conformance_suite!(crate::MemoryBackend);
