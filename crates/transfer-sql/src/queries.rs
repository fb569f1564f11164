//! The queries of ejabberd's tables, for each database and schema. Every text is cast, because sqlx's driver for any
//! database does not know `character(1)` and takes MySQL's `TEXT` for bytes.

use transfer::ejabberd::OptionsBySubid;

/// What a query selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableKind {
    /// Password, ServerKey, salt, iterations, type.
    Users,
    /// Address, label, subscription, ask, text of the request, approved, group.
    Roster,
    /// Element.
    Private,
    /// Element.
    Vcard,
    /// Stanza.
    Spool,
    /// Seconds, status.
    Last,
    /// Type, value, action, all kinds of stanzas.
    Privacy,
    /// Options.
    Rooms,
    /// Owner, name and value of an option.
    PubSubNodes,
    /// Address, affiliation, subscriptions.
    PubSubStates,
    /// Id, publisher, times, payload.
    PubSubItems,
}

/// A query. Its first two columns are the name and the domain of the account; of PubSub, host and name of the node.
pub(crate) struct TableQuery {
    pub(crate) kind: TableKind,
    /// Name in errors.
    pub(crate) table: &'static str,
    pub(crate) sql: String,
}

/// The schema that was found.
pub(crate) struct EjabberdSchema {
    pub(crate) mysql: bool,
    /// Whether tables have the domain as a column.
    pub(crate) server_host: bool,
    /// The domain, if they do not.
    pub(crate) domain: String,
    /// Whether `users` has the column `type`, the hash.
    pub(crate) password_type: bool,
    /// Whether `rosterusers` has the column `approved`.
    pub(crate) approved: bool,
    /// Whether there is a table `muc_room`.
    pub(crate) rooms: bool,
    /// Whether there are tables of PubSub nodes.
    pub(crate) pubsub: bool,
    /// Options of subscriptions to them.
    pub(crate) subscription_options: OptionsBySubid,
}

impl EjabberdSchema {
    /// Name of 64-bit integers in a cast.
    pub(crate) const fn integer_type(&self) -> &'static str {
        if self.mysql { "SIGNED" } else { "BIGINT" }
    }

    fn text(&self, column: &str) -> String {
        format!("CAST({column} AS {})", if self.mysql { "CHAR" } else { "TEXT" })
    }

    fn number(&self, column: &str) -> String {
        format!("CAST({column} AS {})", self.integer_type())
    }

    fn truth(&self, column: &str) -> String {
        self.number(&format!("CASE WHEN {column} THEN 1 ELSE 0 END"))
    }

    /// Name and domain of the account in a table, and the order that follows from them.
    fn owner(&self, table: &str) -> (String, String) {
        let name = format!("{table}.username");
        if self.server_host {
            let host = format!("{table}.server_host");
            (format!("{}, {}", self.text(&name), self.text(&host)), format!("{host}, {name}"))
        } else {
            (format!("{}, {}", self.text(&name), self.text("''")), name)
        }
    }

    /// Condition that two tables have the same domain.
    fn same_host(&self, left: &str, right: &str) -> String {
        if self.server_host {
            format!(" AND {left}.server_host = {right}.server_host")
        } else {
            String::new()
        }
    }

    /// All queries. Accounts first, for those who read only them.
    pub(crate) fn queries(&self) -> Vec<TableQuery> {
        let simple = |kind, table: &'static str, columns: &[String], order: &str| {
            let (owner, by_owner) = self.owner(table);
            let columns = columns.join(", ");
            let sql = format!("SELECT {owner}, {columns} FROM {table} ORDER BY {by_owner}{order}");
            TableQuery { kind, table, sql }
        };
        let password_type = if self.password_type { self.number("users.type") } else { self.number("0") };
        let users = [
            self.text("users.password"),
            self.text("users.serverkey"),
            self.text("users.salt"),
            self.number("users.iterationcount"),
            password_type,
        ];
        let last = [self.text("last.seconds"), self.text("last.state")];
        let users_order = if self.password_type { ", users.type" } else { "" };
        let mut queries = vec![
            simple(TableKind::Users, "users", &users, users_order),
            self.roster(),
            simple(
                TableKind::Private,
                "private_storage",
                &[self.text("private_storage.data")],
                ", private_storage.namespace",
            ),
            simple(TableKind::Vcard, "vcard", &[self.text("vcard.vcard")], ""),
            self.privacy(),
            simple(TableKind::Spool, "spool", &[self.text("spool.xml")], ", spool.seq"),
            simple(TableKind::Last, "last", &last, ""),
        ];
        if self.rooms {
            let columns = ["muc_room.name", "muc_room.host", "muc_room.opts"].map(|column| self.text(column));
            let sql =
                format!("SELECT {} FROM muc_room ORDER BY muc_room.host, muc_room.name", columns.join(", "));
            queries.push(TableQuery { kind: TableKind::Rooms, table: "muc_room", sql });
        }
        if self.pubsub {
            queries.extend(self.pubsub());
        }
        queries
    }

    /// Nodes before what they have. Only some versions fill the table of owners, who have states, too.
    fn pubsub(&self) -> [TableQuery; 3] {
        let columns =
            |all: &[&str]| all.iter().map(|column| self.text(column)).collect::<Vec<_>>().join(", ");
        let owner = "COALESCE((SELECT MIN(w.owner) FROM pubsub_node_owner w WHERE w.nodeid = n.nodeid), \
             (SELECT MIN(a.jid) FROM pubsub_state a WHERE a.nodeid = n.nodeid AND a.affiliation = 'o'))";
        let nodes = columns(&["n.host", "n.node", owner, "o.name", "o.val"]);
        let states = columns(&["n.host", "n.node", "s.jid", "s.affiliation", "s.subscriptions"]);
        let items = columns(&[
            "n.host",
            "n.node",
            "i.itemid",
            "i.publisher",
            "i.creation",
            "i.modification",
            "i.payload",
        ]);
        let part = |columns: String, table: &str, order: &str| {
            format!(
                "SELECT {columns} FROM {table} JOIN pubsub_node n ON n.nodeid = {order}.nodeid ORDER BY n.nodeid"
            )
        };
        [
            TableQuery {
                kind: TableKind::PubSubNodes,
                table: "pubsub_node",
                sql: format!(
                    "SELECT {nodes} FROM pubsub_node n LEFT JOIN pubsub_node_option o ON o.nodeid = n.nodeid \
                     ORDER BY n.nodeid, o.name"
                ),
            },
            TableQuery {
                kind: TableKind::PubSubStates,
                table: "pubsub_state",
                sql: part(states, "pubsub_state s", "s") + ", s.jid",
            },
            TableQuery {
                kind: TableKind::PubSubItems,
                table: "pubsub_item",
                sql: part(items, "pubsub_item i", "i") + ", i.modification, i.itemid",
            },
        ]
    }

    fn roster(&self) -> TableQuery {
        let (owner, order) = self.owner("r");
        let approved = if self.approved { self.truth("r.approved") } else { self.number("0") };
        let columns =
            ["r.jid", "r.nick", "r.subscription", "r.ask", "r.askmessage"].map(|column| self.text(column));
        let sql = format!(
            "SELECT {owner}, {}, {approved}, {} FROM rosterusers r LEFT JOIN rostergroups g \
             ON g.username = r.username AND g.jid = r.jid{} ORDER BY {order}, r.jid, g.grp",
            columns.join(", "),
            self.text("g.grp"),
            self.same_host("g", "r"),
        );
        TableQuery { kind: TableKind::Roster, table: "rosterusers", sql }
    }

    /// The rules of default lists.
    fn privacy(&self) -> TableQuery {
        let (owner, order) = self.owner("d");
        let all = "i.match_all OR (i.match_iq AND i.match_message AND i.match_presence_in AND i.match_presence_out)";
        let columns = ["i.t", "i.value", "i.action"].map(|column| self.text(column));
        let sql = format!(
            "SELECT {owner}, {}, {} FROM privacy_default_list d JOIN privacy_list l \
             ON l.username = d.username AND l.name = d.name{} JOIN privacy_list_data i ON i.id = l.id \
             ORDER BY {order}, i.ord, i.value",
            columns.join(", "),
            self.truth(all),
            self.same_host("l", "d"),
        );
        TableQuery { kind: TableKind::Privacy, table: "privacy_list_data", sql }
    }
}
