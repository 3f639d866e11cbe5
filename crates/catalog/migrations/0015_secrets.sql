-- Random values that all servers of the catalog share, such as the one that signs tokens. Each is written once.
CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
