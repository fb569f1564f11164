-- Tells credentials of an account from those before them, and from those of an account that had the address before.
-- The default is 2^61, the lowest one.
ALTER TABLE account ADD COLUMN revision INTEGER NOT NULL DEFAULT 2305843009213693952;
