-- expand: jobs are submitted with a delay, an expiry or a priority
--
-- What was asked for beside the payload, for the jobs of which anything was. A delayed job's row in the outbox
-- has the time at which it is due as created_at.
CREATE TABLE redrive.job_options (
    job_id     text PRIMARY KEY REFERENCES redrive.jobs (id) ON DELETE CASCADE,
    not_before timestamptz,
    expires    timestamptz,
    priority   smallint
);
