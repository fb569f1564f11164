-- PubSub nodes by service and name; service and creator are numbers of addresses. AUTOINCREMENT: a number is never given twice.
CREATE TABLE pubsub_node (
    node    INTEGER PRIMARY KEY AUTOINCREMENT,
    service INTEGER NOT NULL,
    name    BLOB NOT NULL,
    creator INTEGER NOT NULL,
    created INTEGER NOT NULL,
    listed  INTEGER NOT NULL,
    title   TEXT NOT NULL,
    config  BLOB NOT NULL,
    UNIQUE (service, name)
) STRICT;
CREATE INDEX pubsub_node_service ON pubsub_node (service, node);
CREATE INDEX pubsub_node_listed ON pubsub_node (service, listed, node);
CREATE INDEX pubsub_node_creator ON pubsub_node (creator);

-- Affiliations of entities with nodes.
CREATE TABLE pubsub_affiliation (
    entity      INTEGER NOT NULL,
    node        INTEGER NOT NULL,
    affiliation INTEGER NOT NULL,
    PRIMARY KEY (entity, node)
) STRICT, WITHOUT ROWID;
CREATE INDEX pubsub_affiliation_node ON pubsub_affiliation (node);

-- Plain subscriptions: of bare addresses, without options.
CREATE TABLE pubsub_subscriber (
    node       INTEGER NOT NULL,
    subscriber INTEGER NOT NULL,
    PRIMARY KEY (node, subscriber)
) STRICT, WITHOUT ROWID;
CREATE INDEX pubsub_subscriber_entity ON pubsub_subscriber (subscriber, node);

-- Other subscriptions. The entity is the bare address of the subscriber.
CREATE TABLE pubsub_special (
    node   INTEGER NOT NULL,
    subid  BLOB NOT NULL,
    jid    BLOB NOT NULL,
    entity INTEGER NOT NULL,
    state  BLOB NOT NULL,
    PRIMARY KEY (node, subid)
) STRICT, WITHOUT ROWID;
CREATE INDEX pubsub_special_entity ON pubsub_special (entity, node);

-- Items in the order of their publication.
CREATE TABLE pubsub_item (
    node      INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    id        BLOB NOT NULL,
    publisher BLOB NOT NULL,
    published INTEGER NOT NULL,
    payload   BLOB NOT NULL,
    PRIMARY KEY (node, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX pubsub_item_id ON pubsub_item (node, id);
