//! Tests over an interrupted network: the node in one namespace, clients in another, and the link between them fails
//! repeatedly.
//!
//! `clients/terminal/cut.py` describes the expectations. An interruption sets the link down, which has the effect of
//! losing every packet, because netem (tc) is not available in every kernel.

use throng_e2e::clients::scripts_folder;
use throng_e2e::run_as_root;

use crate::space::LossyNetwork;
use crate::{Certificate, ClientsNode, USERS, python};

#[test]
fn a_thousand_messages_over_an_interrupted_network_arrive_once_and_in_order() {
    run_as_root(
        "interrupted_network::a_thousand_messages_over_an_interrupted_network_arrive_once_and_in_order",
        || {
            let wires = LossyNetwork::create("0", 2);
            let space = wires.namespace(1);
            let name = space.trim_end_matches("-1").to_owned();
            let node =
                ClientsNode::start_in(Some(space), LossyNetwork::address(1), "cut", Certificate::OfTheNode);
            let mut client = node.client(&python(), "starttls");
            client
                .arg(scripts_folder().join("terminal/cut.py"))
                .env("PYTHONPATH", scripts_folder().join("slixmpp"));
            client.env("XMPP_USER_C", USERS[2]).env("XMPP_WIRES", name);
            node.play(&mut client, "ok each of 1000 once and in order");
            node.stop();
        },
    );
}
