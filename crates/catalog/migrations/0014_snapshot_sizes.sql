-- Bytes of the store that a snapshot accounts for, so that those of an owner are bounded together. Collections of garbage
-- measure them anew; until the first one, those of earlier versions count nothing.
ALTER TABLE snapshots ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;

CREATE INDEX snapshots_owner_bytes ON snapshots (owner, bytes);
