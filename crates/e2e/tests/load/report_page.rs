//! Tests of the report page in Chromium: on a wide screen and on a phone, in light and dark mode, and in print.
//!
//! `clients/browser/look.js` collects, this file checks.
//!
//! Not implemented: appearance; screenshots are in the directory that a failing test keeps.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use throng_e2e::{clients, describe_output};

use crate::node::{LoadNode, exclusive_turn};
use crate::run_report::RunReport;

#[test]
fn the_report_page_is_self_contained_and_fits_every_screen() {
    let turn = exclusive_turn();
    let node = LoadNode::start("page", 150);
    node.plan(
        "page.toml",
        r#"
title = "A hundred and fifty users, of whom fifty are not there"
[accounts]
count = 200
[options]
hold = "3s"
drain = "1s"
keep_going = true
fail_on = "count(login_errors) > 50"
[[phase]]
name = "ramp"
rate = 100
users = "connections"
[[session]]
steps = [
  "login",
  "roster",
  "presence",
  { transaction = { name = "look around", steps = ["ping", { think = "200ms" }] } },
  { meanwhile = { do = [{ every = "1s", message = { to = "random" } }, { every = "2s", ping = true }] } },
]
"#,
    );
    let output = node
        .load("out", &["page.toml", "-n", "200", "--workers", "2", "--label", "Throng <of the test>"])
        .args(["--pid", &node.pid().to_string(), "--metrics", &node.metrics_url()])
        .output()
        .expect("throng starts");
    assert!(output.status.success(), "{}", describe_output(&output));
    let run = RunReport::read(&node.folder.join("out"));
    assert_eq!(run.count("login_errors"), 50, "{}", run.messages());
    drop(turn);
    let looks = node.folder.join("looks");
    let seen = open_page(&node.folder.join("out/report.html"), &looks);

    for (view, dark) in
        [("wide-light", false), ("wide-dark", true), ("phone-light", false), ("phone-dark", true)]
    {
        let found = &seen[view];
        let text = found["text"].as_str().expect("text");
        let at = format!("{view} of {}", node.folder.display());
        assert_eq!(found["requests"], Value::Array(vec![]), "{at} asks for more than the file");
        assert_eq!(found["complaints"], Value::Array(vec![]), "{at}");
        assert_eq!(found["content"], found["window"], "{at} is wider than the window: {}", found["out"]);
        assert_eq!(found["out"], Value::Array(vec![]), "{at}: something sticks out");
        let (ground, ink) = (number(&found["ground"]), number(&found["ink"]));
        assert!(
            if dark { ground < 0.2 && ink > 0.7 } else { ground > 0.9 && ink < 0.3 },
            "{at}: {ground} {ink}"
        );
        assert!(found["heading"].as_str().is_some_and(|h| h.contains("page")), "{at}: {}", found["heading"]);
        assert!(number(&found["charts"]) >= 6.0, "{at} has {} charts", found["charts"]);
        let rows: u64 = found["tables"].as_array().expect("tables").iter().filter_map(Value::as_u64).sum();
        assert!(rows > 20, "{at}: tables with {}", found["tables"]);
        // Expected content: names from the plan, escaped, and the errors.
        for part in ["look around", "Throng <of the test>", "not-authorized", "Message delivery", "50"] {
            assert!(text.contains(part), "{at}: no {part:?} in\n{text}");
        }
    }
    for picture in ["wide-light", "wide-dark", "phone-light", "phone-dark"] {
        let bytes = fs::read(looks.join(format!("{picture}.png"))).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000, "{picture} has {} bytes", bytes.len());
    }
    let paper = fs::read(looks.join("paper.pdf")).expect("a PDF");
    let pages = paper.windows(12).filter(|w| w.starts_with(b"/Type /Page") && w[11] != b's').count();
    assert!(paper.starts_with(b"%PDF-") && (1..=12).contains(&pages), "{pages} pages");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Observations of the browser on a page; screenshots go to `looks`.
fn open_page(page: &Path, looks: &Path) -> Value {
    let installed = clients::install_clients();
    let mut command = Command::new(installed.join("bin/node"));
    command.arg(clients::scripts_folder().join("browser/look.js")).arg(page).arg(looks);
    let output = command.env("BROWSER_MODULES", installed.join("browser")).output().expect("node starts");
    assert!(output.status.success(), "look.js: {}", describe_output(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
