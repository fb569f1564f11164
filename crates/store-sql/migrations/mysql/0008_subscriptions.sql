-- Plain subscriptions of PubSub nodes, in chunks of numbers. The upper bits of the key are the number of a node, or of the
-- subscriber; the lower 24 are the first block of 256 numbers in the range of the chunk.

-- Subscribers, by node.
CREATE TABLE IF NOT EXISTS subscriber_chunk (
    id      BIGINT NOT NULL PRIMARY KEY,
    members BIGINT NOT NULL,
    numbers VARBINARY(1024) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Nodes, by subscriber.
CREATE TABLE IF NOT EXISTS node_chunk (
    id      BIGINT NOT NULL PRIMARY KEY,
    members BIGINT NOT NULL,
    numbers VARBINARY(1024) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Its row is locked by each transaction that changes chunks.
CREATE TABLE IF NOT EXISTS subscription_lock (
    id BIGINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT INTO subscription_lock (id) VALUES (1) ON DUPLICATE KEY UPDATE id = id;
