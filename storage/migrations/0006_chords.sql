-- expand: chords, the results that a dead job blocks, a result's children, saved groups
--
-- What a canvas needs beside its jobs: chords, results that will not come, children, groups.

CREATE TABLE redrive.chords (
    group_id     text PRIMARY KEY CHECK (octet_length(group_id) BETWEEN 1 AND 255),
    -- Job ids of the header. Complete: each of them SUCCEEDED. Nothing is counted.
    members      text[] NOT NULL,
    shape        bytea NOT NULL, -- JSON: the same ids, nested as the body gets their results
    body         bytea NOT NULL, -- JSON: a signature whose ids are fixed
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- The first member whose death called the errbacks of the body.
    failed_at    timestamptz,
    failed_by    text,
    -- The broker has confirmed the message that will send the body.
    announced_at timestamptz,
    fired_at     timestamptz,
    look_at      timestamptz NOT NULL DEFAULT now() + interval '5 seconds'
);
CREATE INDEX chords_open ON redrive.chords (look_at) WHERE announced_at IS NULL;

-- A job that will not run for as long as `cause` is dead.
CREATE TABLE redrive.blocked_results (
    job_id  text NOT NULL,
    cause   text NOT NULL,
    chord   boolean NOT NULL, -- blocked as a chord's body, not as the rest of a chain
    PRIMARY KEY (job_id, cause)
);

CREATE TABLE redrive.result_children (
    job_id    text PRIMARY KEY,
    children  bytea NOT NULL -- JSON: Celery's result tuples
);

CREATE TABLE redrive.result_groups (
    group_id   text PRIMARY KEY,
    results    bytea NOT NULL, -- JSON: Celery's result tuple
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Dead letters whose canvas is still to be told, by any worker.
CREATE TABLE redrive.canvas_letters (
    letter_id bigint PRIMARY KEY REFERENCES redrive.dead_letters (id) ON DELETE CASCADE,
    look_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX canvas_letters_due ON redrive.canvas_letters (look_at);
