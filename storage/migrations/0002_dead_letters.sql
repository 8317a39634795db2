-- Dead letters as the broker delivered them, their groups and the alerts about these.

-- One row per time that one consumer held the drain lock of one queue.
CREATE TABLE redrive.drain_sessions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster     text NOT NULL,
    vhost       text NOT NULL,
    queue       text NOT NULL,
    consumer    text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz
);
CREATE INDEX drain_sessions_running ON redrive.drain_sessions (cluster, vhost, queue) WHERE ended_at IS NULL;

CREATE TABLE redrive.groups (
    fingerprint    text PRIMARY KEY,
    queue          text NOT NULL,
    task           text,
    reason         text NOT NULL,
    exception_type text,
    top_frame      text,
    letters        bigint NOT NULL DEFAULT 0,
    first_seen     timestamptz NOT NULL DEFAULT now(),
    last_seen      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE redrive.dead_letters (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id     bigint NOT NULL REFERENCES redrive.drain_sessions (id),
    dlq            text NOT NULL, -- the queue it was drained from
    queue          text NOT NULL, -- the work queue it died in
    -- Where a replay sends it; null when its history does not tell, and it cannot be replayed.
    target         text,
    reason         text NOT NULL,
    detail         text, -- what is wrong with the message, where the reason is about its form
    state          text NOT NULL DEFAULT 'open' CHECK (state IN
                       ('open', 'replaying', 'replayed', 'discarded', 'quarantined')),
    -- Exactly what the dead-letter queue delivered.
    properties     bytea NOT NULL,
    body           bytea NOT NULL,
    exchange       text NOT NULL,
    routing_key    text NOT NULL,
    body_sha256    bytea NOT NULL,
    body_size      bigint NOT NULL,
    -- sha256 over dead-letter queue, properties without the delivery counters, and body.
    identity       bytea NOT NULL,
    has_identity   boolean NOT NULL,
    possible_duplicate boolean NOT NULL DEFAULT false,
    -- The first letter of the same death of the same job. State and group are those of that one.
    duplicate_of   bigint REFERENCES redrive.dead_letters (id),
    message_id     text,
    job_id         text,
    generation     integer, -- of the job, and its attempt: as the message says, null when it does not
    attempt        integer,
    task           text,
    exception_type text,
    fingerprint    text NOT NULL REFERENCES redrive.groups (fingerprint),
    -- The token of the replay that sent this message out before it died again.
    replay_token   text,
    dead_at        timestamptz,
    stored_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX dead_letters_identity ON redrive.dead_letters (identity);
CREATE INDEX dead_letters_open ON redrive.dead_letters (id) WHERE state IN ('open', 'replaying', 'quarantined');
CREATE INDEX dead_letters_group ON redrive.dead_letters (fingerprint, id);
CREATE INDEX dead_letters_job ON redrive.dead_letters (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX dead_letters_replay_token ON redrive.dead_letters (replay_token) WHERE replay_token IS NOT NULL;
CREATE INDEX dead_letters_duplicates ON redrive.dead_letters (duplicate_of) WHERE duplicate_of IS NOT NULL;

CREATE FUNCTION redrive.settle_duplicates() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE redrive.dead_letters SET state = NEW.state WHERE duplicate_of = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letters_settle_duplicates AFTER UPDATE OF state ON redrive.dead_letters
    FOR EACH ROW WHEN (NEW.duplicate_of IS NULL AND OLD.state <> NEW.state)
    EXECUTE FUNCTION redrive.settle_duplicates();

CREATE TABLE redrive.alerts (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    fingerprint   text NOT NULL REFERENCES redrive.groups (fingerprint),
    kind          text NOT NULL CHECK (kind IN ('first_seen', 'seen_again')),
    letter_id     bigint NOT NULL,
    -- 'no_channel': none was configured when it arose; 'given_up': every try failed.
    state         text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'no_channel', 'given_up')),
    created_at    timestamptz NOT NULL DEFAULT now(),
    next_try_at   timestamptz NOT NULL DEFAULT now(),
    tries         integer NOT NULL DEFAULT 0,
    delivered_at  timestamptz,
    last_error    text
);
CREATE INDEX alerts_due ON redrive.alerts (next_try_at) WHERE state = 'pending';
