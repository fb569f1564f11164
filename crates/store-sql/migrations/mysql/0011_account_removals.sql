-- Number of the latest removal of an account with an address. Nodes read those above the last number that they know, so that rooms
-- in memory learn of removals of other programs.
CREATE TABLE IF NOT EXISTS account_removal (
    entity BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    INDEX account_removal_number (number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO account_removal (entity, number) SELECT entity, entity FROM former_account;

-- One row. A removal locks it until it is committed, so numbers are committed in their order.
CREATE TABLE IF NOT EXISTS removal_counter (
    id     BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO removal_counter (id, number) SELECT 1, coalesce(max(number), 0) FROM account_removal;
