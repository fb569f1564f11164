//! The console of one node about two, in Chromium. `clients/browser/console_nodes.js` acts and checks.

use std::process::{Command, Stdio};

use throng_e2e::text_client::{DOMAIN, PASSWORD};
use throng_e2e::{clients, describe_output};

use super::Cluster;

#[test]
fn the_console_of_one_node_shows_both_and_ends_a_session_of_the_other() {
    let (scripts, installed) = (clients::scripts_folder(), clients::install_clients());
    let mut cluster = Cluster::start("console", 2, &["admin", "romeo", "juliet"]);
    let (mut romeo, mut juliet) = (cluster.login(0, "romeo"), cluster.login(1, "juliet"));
    let first = &cluster.members[0];
    let output = Command::new(installed.join("bin/node"))
        .arg(scripts.join("browser/console_nodes.js"))
        .arg(first.node.folder.join("pictures"))
        .env("BROWSER_MODULES", installed.join("browser"))
        .env("CONSOLE_URL", format!("http://127.0.0.1:{}", first.http))
        .env("CONSOLE_ADMIN", format!("admin@{DOMAIN}"))
        .env("CONSOLE_PASSWORD", PASSWORD)
        .stdin(Stdio::null())
        .output()
        .expect("node starts");
    let text = describe_output(&output);
    assert!(output.status.success(), "{}\n{text}", first.node.folder.display());
    assert!(
        text.contains("ok a_session_of_the_other_node_is_found_and_ended"),
        "it stopped before the end: {text}"
    );
    juliet.read_to("policy-violation");
    romeo.send(&format!("<message to='romeo@{DOMAIN}' type='chat'><body>still here</body></message>"));
    romeo.read_to("<body>still here</body>");
    cluster.members.iter_mut().for_each(|member| member.node.stop());
}
