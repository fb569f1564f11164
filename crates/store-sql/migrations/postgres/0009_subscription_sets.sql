-- Plain subscriptions are in subscriber_chunk and node_chunk.
DROP TABLE pubsub_subscriber;

-- Removed nodes of which plain subscriptions are left.
CREATE TABLE pubsub_removed (
    node BIGINT PRIMARY KEY
);
