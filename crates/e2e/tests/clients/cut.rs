//! A network that is cut: the node in one namespace, clients in another, and the wire between them goes down again and again.
//!
//! What is asked of whom is told in `clients/terminal/cut.py`. Each cut is a wire that is down, for the kernel's netem (tc)
//! is not everywhere, and losing every packet is what it would do.

use throng_e2e::clients::scripts;

use crate::space::{Wires, as_root};
use crate::{Certificate, Node, USERS, python};

#[test]
fn a_thousand_messages_on_a_network_that_is_cut_come_once_and_in_order() {
    as_root("cut::a_thousand_messages_on_a_network_that_is_cut_come_once_and_in_order", || {
        let wires = Wires::up("0", 2);
        let space = wires.space(1);
        let name = space.trim_end_matches("-1").to_owned();
        let node = Node::start_in(Some(space), Wires::address(1), "cut", Certificate::OfTheNode);
        let mut client = node.client(&python(), "starttls");
        client.arg(scripts().join("terminal/cut.py")).env("PYTHONPATH", scripts().join("slixmpp"));
        client.env("XMPP_USER_C", USERS[2]).env("XMPP_WIRES", name);
        node.play(&mut client, "ok each of 1000 once and in order");
        node.stop();
    });
}
