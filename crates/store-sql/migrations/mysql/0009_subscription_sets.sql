-- Plain subscriptions are in subscriber_chunk and node_chunk.
DROP TABLE IF EXISTS pubsub_subscriber;

-- Removed nodes of which plain subscriptions are left.
CREATE TABLE IF NOT EXISTS pubsub_removed (
    node BIGINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
