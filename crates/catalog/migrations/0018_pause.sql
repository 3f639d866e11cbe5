-- Step of a pause or resume, the snapshot of the last pause to disk, and the lifetime that was left when the sandbox was
-- paused. `state` cannot get another value, because SQLite cannot change its CHECK.
ALTER TABLE sandboxes ADD COLUMN pause TEXT
    CHECK (pause IN ('freezing', 'memory', 'pausing', 'committed', 'disk', 'resuming'));
ALTER TABLE sandboxes ADD COLUMN pause_snapshot TEXT;
ALTER TABLE sandboxes ADD COLUMN remaining_ms BIGINT;
