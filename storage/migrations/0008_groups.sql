-- expand: groups' states, notes and counts; a new letter that reopens a resolved group
--
-- What operators decided about groups, and counts that cost the same with a million letters.

-- Apart from redrive.groups, of which the release before reads every column. No row: open, grouped by rule 1.
CREATE TABLE redrive.group_states (
    fingerprint   text PRIMARY KEY REFERENCES redrive.groups (fingerprint) ON DELETE CASCADE,
    state         text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved', 'ignored')),
    decided_by    text, -- of the last decision: who, when, why
    decided_at    timestamptz,
    why           text,
    ignored_until timestamptz, -- null: for good
    regressed_at  timestamptz,
    regressions   integer NOT NULL DEFAULT 0,
    rule          integer NOT NULL DEFAULT 1, -- of the fingerprint; all letters were looked at under it
    regrouped_to  bigint NOT NULL DEFAULT 0, -- the last letter that a regrouping under way has looked at
    successors    text[] NOT NULL DEFAULT '{}' -- where regrouping moved its letters
);
CREATE TABLE redrive.group_notes (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint text NOT NULL REFERENCES redrive.groups (fingerprint) ON DELETE CASCADE,
    at          timestamptz NOT NULL DEFAULT now(),
    by          text NOT NULL,
    action      text NOT NULL CHECK (action IN ('note', 'resolve', 'ignore', 'reopen', 'regression')),
    text        text NOT NULL,
    copied_from bigint, -- the note of a group from which regrouping moved letters
    UNIQUE (fingerprint, copied_from)
);
CREATE INDEX group_notes_group ON redrive.group_notes (fingerprint, id);
CREATE INDEX groups_last_seen ON redrive.groups (last_seen, fingerprint);
CREATE INDEX groups_letters ON redrive.groups (letters, fingerprint);

-- Counts are sums over rows that are only ever added, so that nobody waits for a counter; now and then
-- the rows of a group are folded into one. Copies are not counted: one death, one letter.
CREATE TABLE redrive.group_counts (fingerprint text NOT NULL, state text NOT NULL, letters bigint NOT NULL);
CREATE INDEX group_counts_group ON redrive.group_counts (fingerprint);
CREATE TABLE redrive.group_hours (
    fingerprint text NOT NULL, hour timestamptz NOT NULL, dlq text NOT NULL, letters bigint NOT NULL
);
CREATE INDEX group_hours_group ON redrive.group_hours (fingerprint, hour);

CREATE FUNCTION redrive.count_new_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.group_counts (fingerprint, state, letters)
    SELECT fingerprint, state, count(*) FROM new_rows WHERE duplicate_of IS NULL GROUP BY 1, 2;
    INSERT INTO redrive.group_hours (fingerprint, hour, dlq, letters)
    SELECT fingerprint, date_trunc('hour', stored_at, 'UTC'), dlq, count(*)
    FROM new_rows WHERE duplicate_of IS NULL GROUP BY 1, 2, 3;
    RETURN NULL;
END $$;
CREATE FUNCTION redrive.count_changed_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.group_counts (fingerprint, state, letters)
    SELECT fingerprint, state, sum(n) FROM (
        SELECT fingerprint, state, -1 AS n FROM old_rows WHERE duplicate_of IS NULL
        UNION ALL SELECT fingerprint, state, 1 FROM new_rows WHERE duplicate_of IS NULL) AS t
    GROUP BY 1, 2 HAVING sum(n) <> 0;
    INSERT INTO redrive.group_hours (fingerprint, hour, dlq, letters)
    SELECT fingerprint, date_trunc('hour', stored_at, 'UTC'), dlq, sum(n) FROM (
        SELECT fingerprint, stored_at, dlq, -1 AS n FROM old_rows WHERE duplicate_of IS NULL
        UNION ALL SELECT fingerprint, stored_at, dlq, 1 FROM new_rows WHERE duplicate_of IS NULL) AS t
    GROUP BY 1, 2, 3 HAVING sum(n) <> 0;
    RETURN NULL;
END $$;
-- Letters that are deleted have come all the same: the hours keep them.
CREATE FUNCTION redrive.count_deleted_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.group_counts (fingerprint, state, letters)
    SELECT fingerprint, state, -count(*) FROM old_rows WHERE duplicate_of IS NULL GROUP BY 1, 2;
    RETURN NULL;
END $$;

-- From here to the commit nobody writes letters: what is counted once below is neither missed nor doubled.
-- It takes about a second for a million letters.
CREATE TRIGGER dead_letters_count_new AFTER INSERT ON redrive.dead_letters
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_new_letters();
CREATE TRIGGER dead_letters_count_changed AFTER UPDATE ON redrive.dead_letters
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_changed_letters();
CREATE TRIGGER dead_letters_count_deleted AFTER DELETE ON redrive.dead_letters
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_deleted_letters();
INSERT INTO redrive.group_counts (fingerprint, state, letters)
SELECT fingerprint, state, count(*) FROM redrive.dead_letters WHERE duplicate_of IS NULL GROUP BY 1, 2;
INSERT INTO redrive.group_hours (fingerprint, hour, dlq, letters)
SELECT fingerprint, date_trunc('hour', stored_at, 'UTC'), dlq, count(*)
FROM redrive.dead_letters WHERE duplicate_of IS NULL GROUP BY 1, 2, 3;

ALTER TABLE redrive.alerts DROP CONSTRAINT alerts_kind_check,
    ADD CONSTRAINT alerts_kind_check CHECK (kind IN ('first_seen', 'seen_again', 'regression'));
