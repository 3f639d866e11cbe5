-- Events of committed transactions that have no number yet. Rows are inserted and deleted all the time, so they are
-- vacuumed early. Only on PostgreSQL.
CREATE TABLE IF NOT EXISTS event_queue (
    id BIGSERIAL PRIMARY KEY,
    type TEXT NOT NULL,
    owner TEXT NOT NULL,
    sandbox_id TEXT,
    data TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    project TEXT
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
