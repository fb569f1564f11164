//! A node that is drained: sessions that can be resumed move to the other nodes, with a connection or without, and contacts do not
//! notice. XEP-0198 1.6.3, section 5.

use throng_e2e::text_client::TextClient;

use super::{Cluster, ROSTER, befriend, chat, message};

/// A client with a stream that it can resume, and the identifier of the stream.
fn login_resumable(cluster: &Cluster, member: usize, user: &str) -> (TextClient, String) {
    let mut client = TextClient::login(cluster.members[member].clients, user);
    client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    client.read_to("<enabled");
    let enabled = client.read_to("/>");
    let id = enabled.split_once("id='").and_then(|(_, rest)| rest.split_once('\'')).expect("an identifier").0;
    let id = id.to_owned();
    client.send(ROSTER);
    client.send("<presence/>");
    (client, id)
}

/// Resumes a stream on another node. `h`: stanzas that the client has handled. Returns the count of the server.
fn resume(cluster: &Cluster, member: usize, user: &str, id: &str, h: usize) -> (TextClient, String) {
    let mut client = TextClient::authenticated(cluster.members[member].clients, user);
    client.send(&format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='{h}'/>"));
    let (before, which) = client.read_to_first(&["<resumed", "<failed"]);
    assert_eq!(which, 0, "{before}{}", client.input);
    let resumed = client.read_to("/>");
    (client, resumed)
}

#[test]
fn a_drain_hands_sessions_over_so_that_clients_resume_on_another_node() {
    let mut cluster = Cluster::start("drain", 2, &["romeo", "juliet", "nurse", "tybalt"]);
    let (mut romeo, of_romeo) = login_resumable(&cluster, 0, "romeo");
    let (mut nurse, of_nurse) = login_resumable(&cluster, 0, "nurse");
    let mut tybalt = cluster.login(0, "tybalt");
    let mut juliet = cluster.login(1, "juliet");
    // The nodes know where they are: a request that arrives before is in the roster, and sent at the next login.
    chat(&mut romeo, &mut juliet, "juliet", "where are you");
    chat(&mut nurse, &mut juliet, "juliet", "where are you");
    chat(&mut juliet, &mut romeo, "romeo", "here");
    chat(&mut juliet, &mut nurse, "nurse", "here");
    befriend((&mut romeo, "romeo"), (&mut juliet, "juliet"));
    befriend((&mut nurse, "nurse"), (&mut juliet, "juliet"));
    // The nurse has lost her connection.
    drop(nurse);
    let output = cluster.members[0].node.run_ok(&["drain", "--rate", "20"]);
    assert!(output.contains("the node has stopped"), "{output}");
    assert!(cluster.members[0].node.wait_for_exit().success());
    let last = romeo.read_to("</stream:stream>");
    assert!(last.contains("system-shutdown"), "{last}");
    let last = tybalt.read_to("</stream:stream>");
    assert!(last.contains("system-shutdown"), "{last}");
    // What is sent meanwhile waits for them.
    juliet.send(&message("romeo", "to-romeo"));
    juliet.send(&message("nurse", "to-nurse"));
    let (mut romeo, resumed) = resume(&cluster, 1, "romeo", &of_romeo, 0);
    // The roster, presence, and four messages and presence stanzas.
    assert!(resumed.contains("h='6'"), "{resumed}");
    romeo.read_to("<body>to-romeo</body>");
    let (mut nurse, _) = resume(&cluster, 1, "nurse", &of_nurse, 0);
    nurse.read_to("<body>to-nurse</body>");
    romeo.send(&message("juliet", "still-here"));
    let seen = juliet.read_to("<body>still-here</body>");
    assert!(!seen.contains("type='unavailable'"), "contacts do not notice the move: {seen}");
    let log = cluster.members[0].node.log();
    assert!(log.contains("sessions have moved to other nodes moved=2"), "{log}");
    // Without another node there is nowhere to go: the sessions end.
    let output = cluster.members[1].node.run_ok(&["drain"]);
    assert!(output.contains("the node has stopped"), "{output}");
    assert!(cluster.members[1].node.wait_for_exit().success());
    assert!(juliet.read_to("</stream:stream>").contains("system-shutdown"));
}
