-- PubSub nodes by service and name; service and creator are numbers of addresses. A number is never given twice.
CREATE TABLE IF NOT EXISTS pubsub_node (
    node    BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    service BIGINT NOT NULL,
    name    VARBINARY(1023) NOT NULL,
    creator BIGINT NOT NULL,
    created BIGINT NOT NULL,
    listed  BIGINT NOT NULL,
    title   VARBINARY(4096) NOT NULL,
    config  MEDIUMBLOB NOT NULL,
    UNIQUE INDEX pubsub_node_name (service, name),
    INDEX pubsub_node_service (service, node),
    INDEX pubsub_node_listed (service, listed, node),
    INDEX pubsub_node_creator (creator)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Affiliations of entities with nodes.
CREATE TABLE IF NOT EXISTS pubsub_affiliation (
    entity      BIGINT NOT NULL,
    node        BIGINT NOT NULL,
    affiliation BIGINT NOT NULL,
    PRIMARY KEY (entity, node),
    INDEX pubsub_affiliation_node (node)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Plain subscriptions: of bare addresses, without options.
CREATE TABLE IF NOT EXISTS pubsub_subscriber (
    node       BIGINT NOT NULL,
    subscriber BIGINT NOT NULL,
    PRIMARY KEY (node, subscriber),
    INDEX pubsub_subscriber_entity (subscriber, node)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Other subscriptions. The entity is the bare address of the subscriber.
CREATE TABLE IF NOT EXISTS pubsub_special (
    node   BIGINT NOT NULL,
    subid  VARBINARY(64) NOT NULL,
    jid    VARBINARY(3071) NOT NULL,
    entity BIGINT NOT NULL,
    state  MEDIUMBLOB NOT NULL,
    PRIMARY KEY (node, subid),
    INDEX pubsub_special_entity (entity, node)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Items in the order of their publication.
CREATE TABLE IF NOT EXISTS pubsub_item (
    node      BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    id        VARBINARY(1023) NOT NULL,
    publisher VARBINARY(3071) NOT NULL,
    published BIGINT NOT NULL,
    payload   MEDIUMBLOB NOT NULL,
    PRIMARY KEY (node, seq),
    UNIQUE INDEX pubsub_item_id (node, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
