-- Keeps the number of a migration that is made elsewhere. Removed when both are merged.
DELETE FROM throng_schema WHERE version < 0;
