-- Plain subscriptions of PubSub nodes, in chunks of numbers. The upper bits of the key are the number of a node, or of the
-- subscriber; the lower 24 are the first block of 256 numbers in the range of the chunk.

-- Subscribers, by node.
CREATE TABLE subscriber_chunk (
    id      BIGINT PRIMARY KEY,
    members BIGINT NOT NULL,
    numbers BYTEA NOT NULL
);

-- Nodes, by subscriber.
CREATE TABLE node_chunk (
    id      BIGINT PRIMARY KEY,
    members BIGINT NOT NULL,
    numbers BYTEA NOT NULL
);

-- Its row is locked by each transaction that changes chunks.
CREATE TABLE subscription_lock (
    id BIGINT PRIMARY KEY
);
INSERT INTO subscription_lock (id) VALUES (1);
