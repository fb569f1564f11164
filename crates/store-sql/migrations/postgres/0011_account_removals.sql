-- Number of the latest removal of an account with an address. Nodes read those above the last number that they know, so that rooms
-- in memory learn of removals of other programs.
CREATE TABLE account_removal (
    entity BIGINT PRIMARY KEY,
    number BIGINT NOT NULL
);
CREATE INDEX account_removal_number ON account_removal (number);
INSERT INTO account_removal (entity, number) SELECT entity, entity FROM former_account;

-- One row. A removal locks it until it is committed, so numbers are committed in their order.
CREATE TABLE removal_counter (
    id     BIGINT PRIMARY KEY,
    number BIGINT NOT NULL
);
INSERT INTO removal_counter (id, number) SELECT 1, coalesce(max(number), 0) FROM account_removal;
