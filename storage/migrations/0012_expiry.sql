-- expand: expiry of letters (REDRIVE_RETENTION_DAYS)
--
-- What is left of letters that are gone.

-- The newest session that had stored it.
ALTER TABLE redrive.expired_letters ADD COLUMN session_id bigint NOT NULL DEFAULT 0;
-- What had become of them in a replay, whose own record stays.
CREATE TABLE redrive.expired_items (
    replay_id uuid NOT NULL REFERENCES redrive.replays (id) ON DELETE CASCADE,
    state     text NOT NULL,
    outcome   text,
    letters   bigint NOT NULL,
    UNIQUE NULLS NOT DISTINCT (replay_id, state, outcome)
);
