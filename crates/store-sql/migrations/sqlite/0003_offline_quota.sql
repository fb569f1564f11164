-- Who sent each waiting message, for one sender's share; 0 is nobody whom a share binds. In front of the stanza, so that it is
-- read without the pages that a large one runs over to; that takes the table anew.
CREATE TABLE offline_new (
    owner     INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    expires   INTEGER,
    sender    INTEGER NOT NULL,
    stanza    BLOB NOT NULL,
    PRIMARY KEY (owner, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO offline_new (owner, seq, stored_at, expires, sender, stanza)
    SELECT owner, seq, stored_at, expires, 0, stanza FROM offline ORDER BY owner, seq;
DROP TABLE offline;
ALTER TABLE offline_new RENAME TO offline;
CREATE INDEX offline_expires ON offline (expires) WHERE expires IS NOT NULL;

-- How many bytes wait for an account.
ALTER TABLE inbox ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE inbox SET bytes = (SELECT coalesce(sum(length(stanza)), 0) FROM offline WHERE offline.owner = inbox.owner);
