-- Owner of an event, so that every owner reads its own events. Those of earlier versions have none; only admins see them.
ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT '';

CREATE INDEX events_owner ON events (owner, sequence);
CREATE INDEX events_type ON events (owner, type, sequence);

-- Number of events that are kept of an owner, so that an insertion does not count them, and the highest sequence number of
-- an event that was deleted, so that a reader that is behind learns of it. Deletions change it in the same transaction.
CREATE TABLE event_owners (
    owner TEXT PRIMARY KEY,
    events BIGINT NOT NULL,
    dropped BIGINT NOT NULL
);

INSERT INTO event_owners (owner, events, dropped)
SELECT '', COUNT(*), COALESCE(MIN(sequence) - 1, (SELECT last FROM event_sequence)) FROM events;
