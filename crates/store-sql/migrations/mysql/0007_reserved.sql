-- Keeps the number of a migration that is made elsewhere. Removed when both are merged.
SELECT 1;
