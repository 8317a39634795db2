-- expand: a queue that is paused costs the others nothing
--
-- The oldest messages of each queue, whatever number of another's lies before them.
CREATE INDEX outbox_queue ON redrive.outbox (queue, not_before, id);
-- What the broker refused, for the list of those.
CREATE INDEX outbox_refused ON redrive.outbox (job_id) WHERE last_error IS NOT NULL;
