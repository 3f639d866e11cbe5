-- For the events that are too old, and for those of one sandbox.
CREATE INDEX events_created_at ON events (created_at);
CREATE INDEX events_sandbox ON events (sandbox_id, sequence);
