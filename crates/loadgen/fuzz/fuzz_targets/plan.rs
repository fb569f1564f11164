//! Fuzz target for TOML plans: any text results in a plan or a list of errors, and a plan is unchanged by
//! serialisation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadgen::plan::{LoadPlan, PlanOverrides, read_toml};

fuzz_target!(|text: &str| {
    if let Ok(plan) = read_toml(text, "fuzz", &PlanOverrides::default()) {
        let sent = serde_json::to_string(&plan).expect("a plan can be sent");
        assert_eq!(serde_json::from_str::<LoadPlan>(&sent).expect("and be read"), plan);
    }
});
