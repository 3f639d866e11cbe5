-- Steps of template builds that a later build need not run again. `key` is a hash of everything that a step depends on,
-- `snapshot` its result in the store of the server, and `reference` the name that keeps the snapshot there.
CREATE TABLE template_steps (
    server TEXT NOT NULL,
    key TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    reference TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (server, key)
);

CREATE INDEX template_steps_used ON template_steps (server, used_at);
