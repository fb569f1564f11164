-- The secret of the server is also the key of login tokens, not only of the salts of unknown accounts.
UPDATE setting SET name = 'server-secret' WHERE name = 'decoy-secret';
