//! Fuzz target for Tsung scenarios: any text results in a plan or a list of errors, and a plan is unchanged by
//! serialisation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadgen::plan::{LoadPlan, PlanOverrides};

fuzz_target!(|text: &str| {
    let mut files = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    if let Ok((plan, _)) = loadgen::tsung::read(text, "fuzz", &PlanOverrides::default(), &mut files) {
        let sent = serde_json::to_string(&plan).expect("a plan can be sent");
        assert_eq!(serde_json::from_str::<LoadPlan>(&sent).expect("and be read"), plan);
    }
});
