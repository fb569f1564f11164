-- Numbers are bigint, also where a smaller type would do: no value needs a conversion on its way.
-- Texts are bytes in UTF-8; see dialect/mysql.rs. Every statement may be repeated, because each commits at once.

-- The dictionary of bare addresses. A number is never given twice.
CREATE TABLE IF NOT EXISTS address (
    id  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    jid VARBINARY(2047) NOT NULL UNIQUE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Accounts. The row is also the lock of everything that belongs to the account.
CREATE TABLE IF NOT EXISTS account (
    id             BIGINT NOT NULL PRIMARY KEY,
    domain         BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    disabled       BIGINT NOT NULL,
    roster_version BIGINT NOT NULL,
    credentials    BLOB NOT NULL,
    blocklist      MEDIUMBLOB,
    tokens         MEDIUMBLOB,
    photo          VARBINARY(20),
    revision       BIGINT NOT NULL,
    INDEX account_domain (domain, id),
    INDEX account_disabled (domain, disabled, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS username (
    domain BIGINT NOT NULL,
    name   VARBINARY(1023) NOT NULL,
    id     BIGINT NOT NULL,
    PRIMARY KEY (domain, name, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS roster (
    owner        BIGINT NOT NULL,
    contact      BIGINT NOT NULL,
    subscription BIGINT NOT NULL,
    label        LONGBLOB,
    request      LONGBLOB,
    PRIMARY KEY (owner, contact)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS offline (
    owner     BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    stored_at BIGINT NOT NULL,
    expires   BIGINT,
    sender    BIGINT NOT NULL,
    stanza    LONGBLOB NOT NULL,
    PRIMARY KEY (owner, seq),
    INDEX offline_expires (expires)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Rows of offline per account, their bytes, and the last number given.
CREATE TABLE IF NOT EXISTS inbox (
    owner    BIGINT NOT NULL PRIMARY KEY,
    last_seq BIGINT NOT NULL,
    waiting  BIGINT NOT NULL,
    bytes    BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS private (
    owner BIGINT NOT NULL,
    name  VARBINARY(1024) NOT NULL,
    value LONGBLOB NOT NULL,
    PRIMARY KEY (owner, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS vcard (
    owner BIGINT NOT NULL PRIMARY KEY,
    card  MEDIUMBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS profile (
    owner      BIGINT NOT NULL PRIMARY KEY,
    domain     BIGINT NOT NULL,
    username   VARBINARY(1023) NOT NULL,
    name_key   VARBINARY(256) NOT NULL,
    first_key  VARBINARY(256) NOT NULL,
    last_key   VARBINARY(256) NOT NULL,
    nick_key   VARBINARY(256) NOT NULL,
    email_key  VARBINARY(256) NOT NULL,
    full_name  VARBINARY(1024) NOT NULL,
    first_name VARBINARY(1024) NOT NULL,
    last_name  VARBINARY(1024) NOT NULL,
    nick       VARBINARY(1024) NOT NULL,
    email      VARBINARY(1024) NOT NULL,
    INDEX profile_name (domain, name_key, owner),
    INDEX profile_first (domain, first_key, owner),
    INDEX profile_last (domain, last_key, owner),
    INDEX profile_nick (domain, nick_key, owner),
    INDEX profile_email (domain, email_key, owner)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS last_seen (
    owner  BIGINT NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL,
    status VARBINARY(1024)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS setting (
    name  VARBINARY(255) NOT NULL PRIMARY KEY,
    value MEDIUMBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The last transaction of each writer, so that a writer whose connection broke during COMMIT learns the outcome.
CREATE TABLE IF NOT EXISTS write_batch (
    writer BIGINT NOT NULL PRIMARY KEY,
    batch  BIGINT NOT NULL,
    at     BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
