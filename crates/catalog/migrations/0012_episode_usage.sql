-- How many episodes an owner has and how large they are together, so that a step is added without counting all of them. Whoever
-- adds or removes episodes changes it in the same transaction.
CREATE TABLE episode_usage (
    owner TEXT PRIMARY KEY,
    episodes BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);

INSERT INTO episode_usage (owner, episodes, bytes)
SELECT owner, COUNT(*), CAST(SUM(bytes) AS BIGINT) FROM episodes GROUP BY owner;

-- It was there to count them.
DROP INDEX episodes_owner;
