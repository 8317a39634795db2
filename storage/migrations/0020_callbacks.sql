-- expand: callbacks tell when a job has ended
--
-- Who is to be told of a job's end, for the jobs of which anybody is. Apart from the job: a URL may hold secrets.
CREATE TABLE redrive.job_callbacks (
    job_id text PRIMARY KEY REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    url    text NOT NULL,
    place  text NOT NULL, -- host:port
    states text[] NOT NULL
);
-- True for those jobs; null costs the others nothing.
ALTER TABLE redrive.jobs ADD COLUMN calls_back boolean;

-- The outbox of callbacks: what is told is what the job's end was, whatever becomes of the job since.
CREATE TABLE redrive.callbacks (
    id          uuid PRIMARY KEY, -- made of job, generation and state: the same again after a database was restored
    job_id      text NOT NULL REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    generation  integer NOT NULL,
    attempt     integer NOT NULL,
    job_state   text NOT NULL,
    reason      text,
    error       text,
    finished_at timestamptz,
    place       text NOT NULL,
    state       text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
    tries       integer NOT NULL DEFAULT 0, -- since it was made, or retried by hand
    created_at  timestamptz NOT NULL DEFAULT now(),
    next_try_at timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    why_dead    text,
    answers     jsonb NOT NULL DEFAULT '[]' -- to the last tries: at, status or error
);
CREATE INDEX callbacks_due ON redrive.callbacks (place, next_try_at) WHERE state = 'pending';
CREATE INDEX callbacks_job ON redrive.callbacks (job_id, created_at);
CREATE INDEX callbacks_newest ON redrive.callbacks (created_at, id);
CREATE INDEX callbacks_dead ON redrive.callbacks (created_at, id) WHERE state = 'dead';
CREATE INDEX callbacks_delivered ON redrive.callbacks (ended_at) WHERE state = 'delivered';

CREATE TABLE redrive.callback_retries (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    callback_id uuid NOT NULL REFERENCES redrive.callbacks (id) ON DELETE CASCADE,
    at          timestamptz NOT NULL DEFAULT now(),
    by          text NOT NULL,
    note        text NOT NULL
);
CREATE INDEX callback_retries_callback ON redrive.callback_retries (callback_id, id);

-- Whatever ends a job, of this release or the one before: in the same transaction.
CREATE FUNCTION redrive.call_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.callbacks (id, job_id, generation, attempt, job_state, reason, error, finished_at, place)
    SELECT substr(encode(sha256(convert_to(NEW.id || '/' || NEW.generation || '/' || NEW.state, 'UTF8')), 'hex'),
                  1, 32)::uuid,
           NEW.id, NEW.generation, NEW.attempt, NEW.state, NEW.reason, NEW.error, NEW.finished_at, c.place
    FROM redrive.job_callbacks c WHERE c.job_id = NEW.id AND NEW.state = ANY (c.states)
    ON CONFLICT (id) DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_call_back AFTER UPDATE OF state ON redrive.jobs
    FOR EACH ROW WHEN (NEW.calls_back AND OLD.state <> NEW.state
                       AND NEW.state IN ('SUCCEEDED', 'DEAD', 'CANCELLED'))
    EXECUTE FUNCTION redrive.call_back();
