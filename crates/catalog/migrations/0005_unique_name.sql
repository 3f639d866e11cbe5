-- The name again where it was asked to be the only one of its owner, else NULL. Servers that check names by themselves
-- could both find a name free.
ALTER TABLE sandboxes ADD COLUMN unique_name TEXT;

CREATE UNIQUE INDEX sandboxes_unique_name ON sandboxes (owner, unique_name);
