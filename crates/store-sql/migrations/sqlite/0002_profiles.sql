-- Blocklist, tokens and the hash of the photo stand beside the credentials, so that a login reads no further page.
-- Absent when empty.
ALTER TABLE account ADD COLUMN blocklist BLOB;
ALTER TABLE account ADD COLUMN tokens BLOB;
ALTER TABLE account ADD COLUMN photo BLOB;
CREATE INDEX account_disabled ON account (domain, id) WHERE disabled <> 0;

-- The local parts of all accounts, for lists and searches in their order. The address alone will not do: in its order
-- the accounts of all domains, and all contacts elsewhere, stand between one another.
CREATE TABLE username (
    domain INTEGER NOT NULL,
    name   TEXT NOT NULL,
    id     INTEGER NOT NULL,
    PRIMARY KEY (domain, name, id)
) STRICT, WITHOUT ROWID;
INSERT INTO username (domain, name, id)
    SELECT c.domain, substr(a.jid, 1, max(instr(a.jid, '@') - 1, 0)), c.id
    FROM account c JOIN address a ON a.id = c.id
    ORDER BY 1, 2;

CREATE TABLE private (
    owner INTEGER NOT NULL,
    name  TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE vcard (
    owner INTEGER PRIMARY KEY,
    card  BLOB NOT NULL
) STRICT;

-- What the directory finds and shows of a vCard. The keys are folded texts; username is the account's.
-- Without rowid, so that the indexes end with the owner as a column and a page begins where the last one ended.
CREATE TABLE profile (
    owner      INTEGER NOT NULL PRIMARY KEY,
    domain     INTEGER NOT NULL,
    username   TEXT NOT NULL,
    name_key   TEXT NOT NULL,
    first_key  TEXT NOT NULL,
    last_key   TEXT NOT NULL,
    nick_key   TEXT NOT NULL,
    email_key  TEXT NOT NULL,
    full_name  TEXT NOT NULL,
    first_name TEXT NOT NULL,
    last_name  TEXT NOT NULL,
    nick       TEXT NOT NULL,
    email      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX profile_name ON profile (domain, name_key, owner);
CREATE INDEX profile_first ON profile (domain, first_key, owner);
CREATE INDEX profile_last ON profile (domain, last_key, owner);
CREATE INDEX profile_nick ON profile (domain, nick_key, owner);
CREATE INDEX profile_email ON profile (domain, email_key, owner);

CREATE TABLE last_seen (
    owner  INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    status TEXT
) STRICT;
