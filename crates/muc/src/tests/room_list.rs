//! The list of rooms on several nodes: XEP-0045, section 6.3.

use super::several_nodes::{Cluster, ROOMS, room};
use super::*;

fn listed(cluster: &Cluster, client: &NodeClient) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let set = format!("<set xmlns='http://jabber.org/protocol/rsm'><max>7</max>{after}</set>");
        let query = format!("<query xmlns='http://jabber.org/protocol/disco#items'>{set}</query>");
        let iq = format!("<iq type='get' to='conference.example.com' id='l'>{query}</iq>");
        let page = cluster.send(client, &iq).concat();
        all.extend(page.split("<item jid='").skip(1).map(|rest| rest.split('\'').next().unwrap().to_owned()));
        let Some((_, last)) = page.split_once("<last>") else { return all };
        after = format!("<after>{}</after>", last.split('<').next().unwrap());
    }
}

#[test]
fn temporary_rooms_of_all_nodes_are_listed_on_each_node() {
    let mut cluster = Cluster::new(3);
    let clients =
        [cluster.connect(0, "crone1"), cluster.connect(1, "hag66"), cluster.connect(2, "wiccarocks")];
    let mut rooms: Vec<String> = (0..ROOMS).map(room).collect();
    rooms.sort();
    for number in 0..ROOMS {
        cluster.enter(&clients[0], number, "firstwitch");
        cluster.configure(&clients[0], number, false);
    }
    for client in &clients {
        assert_eq!(listed(&cluster, client), rooms, "{}", client.full());
    }
    // The rooms of a node that is lost have another one.
    cluster.nodes.crash(1);
    cluster.pass(15);
    for client in [&clients[0], &clients[2]] {
        assert_eq!(listed(&cluster, client), rooms, "{}", client.full());
    }
    // A node that joins learns what there is, and what it gets from others is listed once.
    cluster.nodes.restart(1);
    cluster.pass(15);
    let again = cluster.connect(1, "hag66");
    cluster.enter(&again, 0, "thirdwitch");
    for client in [&clients[0], &again, &clients[2]] {
        assert_eq!(listed(&cluster, client), rooms, "{}", client.full());
    }
    cluster.send(&again, &format!("<presence to='{}/thirdwitch' type='unavailable'/>", room(0)));
    for number in 0..ROOMS {
        cluster
            .send(&clients[0], &format!("<presence to='{}/firstwitch' type='unavailable'/>", room(number)));
    }
    for client in [&clients[0], &again, &clients[2]] {
        assert_eq!(listed(&cluster, client), Vec::<String>::new(), "{}", client.full());
    }
}
