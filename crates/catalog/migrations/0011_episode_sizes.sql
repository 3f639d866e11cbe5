-- How large an episode is, so that those of an owner are bounded together, and which server's store has it. Those written
-- before count nothing and have no server.
ALTER TABLE episodes ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE episodes ADD COLUMN node TEXT NOT NULL DEFAULT '';

CREATE INDEX episodes_owner ON episodes (owner, bytes);
CREATE INDEX episodes_node ON episodes (node, id);
