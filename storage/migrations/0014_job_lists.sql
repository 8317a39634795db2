-- expand: lists of jobs are fast, jobs are cancelled, old idempotency keys are deleted
--
-- Jobs by age, and what people did with them. Building the indexes holds up jobs: some seconds for a million.

-- Every change of a job's state adds to each of these, so they end at the time: jobs of one time are few.
CREATE INDEX jobs_by_age ON redrive.jobs (created_at);
CREATE INDEX jobs_by_type ON redrive.jobs (type, created_at);
CREATE INDEX jobs_by_queue ON redrive.jobs (queue, created_at);
-- Most jobs are in none of these states; waiting and running ones are found by jobs_open.
CREATE INDEX jobs_ended_badly ON redrive.jobs (state, created_at) WHERE state IN ('DEAD', 'CANCELLED');
CREATE INDEX outbox_job ON redrive.outbox (job_id);
CREATE INDEX idempotency_keys_age ON redrive.idempotency_keys (created_at);

CREATE TABLE redrive.job_actions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     text NOT NULL REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    action     text NOT NULL CHECK (action IN ('cancel', 'retry')),
    at         timestamptz NOT NULL DEFAULT now(),
    by         text NOT NULL,
    note       text NOT NULL,
    came_from  text, -- the address that the request came from
    state      text NOT NULL, -- of the job, before
    generation integer NOT NULL,
    replay_id  uuid REFERENCES redrive.replays (id) ON DELETE SET NULL
);
CREATE INDEX job_actions_job ON redrive.job_actions (job_id, id);

-- A job that was asked to stop while it ran does not run again, whatever worker ends its attempt.
CREATE FUNCTION redrive.cancel_instead_of_waiting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM redrive.job_actions a
               WHERE a.job_id = NEW.id AND a.action = 'cancel' AND a.generation = NEW.generation) THEN
        NEW.state := 'CANCELLED';
        NEW.attempt := OLD.attempt;
        NEW.reason := 'cancelled';
        NEW.finished_at := now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_cancel_instead_of_waiting BEFORE UPDATE OF state ON redrive.jobs
    FOR EACH ROW WHEN (OLD.state = 'RUNNING' AND NEW.state IN ('QUEUED', 'RETRYING'))
    EXECUTE FUNCTION redrive.cancel_instead_of_waiting();
