-- expand: workers that stopped in order are told from lost ones; the age of the first waiting job is found at once
--
-- Building the index holds up jobs: less than a second for a million, of which few wait.
CREATE INDEX jobs_queued ON redrive.jobs (queue, queued_at) WHERE state = 'QUEUED';

-- Apart from redrive.worker_tasks: what a worker knew is asked for a while after its end.
CREATE TABLE redrive.worker_ends (
    worker   text PRIMARY KEY,
    ended_at timestamptz NOT NULL DEFAULT now()
);
