-- Jobs, their attempts, the outbox and the effect ledger.
--
-- JSON that people gave us is kept as bytea (UTF-8): jsonb and text refuse NUL and lone
-- surrogates, and jsonb refuses NaN, all of which Python's json accepts.

CREATE TABLE redrive.jobs (
    id           text PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 255),
    type         text NOT NULL,
    queue        text NOT NULL,
    state        text NOT NULL DEFAULT 'PENDING' CHECK (state IN
                     ('PENDING', 'QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'CANCELLED')),
    -- A replay starts a new generation; attempts count from 1 in each.
    generation   integer NOT NULL DEFAULT 1 CHECK (generation >= 1),
    -- The attempt that runs (RUNNING), or the next one to run (PENDING, QUEUED, RETRYING).
    attempt      integer NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    -- Attempts of this generation that ended without the task's own word: a lost worker, a hard
    -- time limit, memory.
    crashes      integer NOT NULL DEFAULT 0,
    -- Fencing token of the running attempt: a uuid per claim, since a counter repeats if a claim is
    -- lost with the database.
    claim        uuid,
    worker       text,
    lease_until  timestamptz,
    -- No renewal moves lease_until past this: start + time limit + grace.
    lease_cap    timestamptz,
    -- Celery's count of retries for the attempt that waits, and what Task.retry changed for it (JSON): its
    -- message can be made again from an older one.
    retries         integer NOT NULL DEFAULT 0,
    retry_arguments bytea,
    retry_options   bytea,
    origin       text NOT NULL DEFAULT 'api' CHECK (origin IN ('api', 'celery')),
    principal    text,
    payload      bytea,
    progress     bytea,
    result       bytea,
    reason       text,
    error        text,
    letter_id    bigint,
    created_at   timestamptz NOT NULL DEFAULT now(),
    queued_at    timestamptz,
    started_at   timestamptz,
    finished_at  timestamptz,
    CHECK ((state = 'RUNNING') = (claim IS NOT NULL))
);
-- Only unfinished and dead jobs are looked up by state; finished ones would only bloat the index.
CREATE INDEX jobs_open ON redrive.jobs (state, queue) WHERE state NOT IN ('SUCCEEDED', 'CANCELLED');

CREATE TABLE redrive.attempts (
    job_id         text NOT NULL REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    generation     integer NOT NULL,
    attempt        integer NOT NULL,
    claim          uuid NOT NULL,
    worker         text NOT NULL,
    outcome        text NOT NULL DEFAULT 'running' CHECK (outcome IN
                       ('running', 'succeeded', 'retry', 'failed', 'lost', 'returned')),
    reason         text,
    exception_type text,
    message        text,
    traceback      text,
    -- Milliseconds until the next attempt, for outcome 'retry'.
    delay_ms       bigint,
    started_at     timestamptz NOT NULL DEFAULT now(),
    ended_at       timestamptz,
    PRIMARY KEY (job_id, generation, attempt)
);

-- What is accepted and not yet confirmed by the broker. A row leaves in the transaction that
-- follows the broker's confirm.
CREATE TABLE redrive.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      text NOT NULL REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    queue       text NOT NULL,
    properties  bytea NOT NULL,
    body        bytea NOT NULL,
    token       text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    not_before  timestamptz NOT NULL DEFAULT now(),
    tries       integer NOT NULL DEFAULT 0,
    last_error  text
);
CREATE INDEX outbox_due ON redrive.outbox (not_before, id);

CREATE TABLE redrive.idempotency_keys (
    -- Principal and route: one client's keys never meet another's.
    scope       text NOT NULL,
    key         text NOT NULL,
    request     bytea NOT NULL, -- sha256 of type and payload
    job_id      text NOT NULL REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, key)
);

-- One row per effect that has happened; written in the transaction of the business change.
CREATE TABLE redrive.effects (
    key         text PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 1024),
    job_id      text NOT NULL,
    claim       uuid NOT NULL,
    result      bytea,
    created_at  timestamptz NOT NULL DEFAULT now()
);
