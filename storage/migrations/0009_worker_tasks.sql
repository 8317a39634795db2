-- expand: letters of unknown tasks are named without a catalogue of jobs
--
-- The tasks that each worker has registered. A worker says so at start, and again with each renewal of its leases.
CREATE TABLE redrive.worker_tasks (
    worker   text PRIMARY KEY,
    queues   text[] NOT NULL,
    tasks    text[] NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT now()
);
