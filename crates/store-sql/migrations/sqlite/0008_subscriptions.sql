-- Plain subscriptions of PubSub nodes, in chunks of numbers. The upper bits of the key are the number of a node, or of the
-- subscriber; the lower 24 are the first block of 256 numbers in the range of the chunk.

-- Subscribers, by node.
CREATE TABLE subscriber_chunk (
    id      INTEGER PRIMARY KEY,
    members INTEGER NOT NULL,
    numbers BLOB NOT NULL
) STRICT;

-- Nodes, by subscriber.
CREATE TABLE node_chunk (
    id      INTEGER PRIMARY KEY,
    members INTEGER NOT NULL,
    numbers BLOB NOT NULL
) STRICT;
