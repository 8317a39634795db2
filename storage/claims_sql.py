"""The statements of storage/claims.py. Each changes a job only under a guard, and says which it changed."""

from __future__ import annotations

CLAIM = """
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::int[], $3::int[], $4::uuid[], $7::text[])
        AS w (job_id, generation, attempt, token, task)
), won AS (
    UPDATE redrive.jobs AS j
    SET state = 'RUNNING', claim = w.token, worker = $5, lease_until = now() + $6 * interval '1 second',
        lease_cap = NULL, started_at = coalesce(j.started_at, now())
    FROM wanted AS w
    WHERE j.id = w.job_id AND j.type = w.task AND j.generation = w.generation AND j.attempt = w.attempt
      AND j.state IN ('PENDING', 'QUEUED', 'RETRYING')
    RETURNING j.id, j.generation, j.attempt, j.claim
), begun AS (
    INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker)
    SELECT id, generation, attempt, claim, $5 FROM won
    ON CONFLICT (job_id, generation, attempt) DO UPDATE
    SET claim = excluded.claim, worker = excluded.worker, outcome = 'running', reason = NULL,
        started_at = now(), ended_at = NULL
)
SELECT claim FROM won
"""

ADOPT = """
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::int[], $3::int[], $4::uuid[], $7::text[], $8::text[])
        AS w (job_id, generation, attempt, token, task, queue)
), won AS (
    INSERT INTO redrive.jobs (id, type, queue, state, generation, attempt, claim, worker, lease_until,
                              origin, queued_at, started_at)
    SELECT job_id, task, queue, 'RUNNING', generation, attempt, token, $5, now() + $6 * interval '1 second',
           'celery', now(), now()
    FROM wanted
    ON CONFLICT (id) DO NOTHING
    RETURNING id, generation, attempt, claim
), begun AS (
    INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker)
    SELECT id, generation, attempt, claim, $5 FROM won
)
SELECT claim FROM won
"""

ROWS = """
SELECT j.id, j.type, j.state, j.generation, j.attempt, j.claim, j.lease_cap IS NOT NULL AS begun,
       coalesce(extract(epoch FROM j.lease_until - clock_timestamp()), 0)::float8 AS lease_left_s,
       j.retries, j.retry_arguments, j.retry_options, coalesce(a.delay_ms, 0) AS delay_ms,
       coalesce(extract(epoch FROM clock_timestamp() - a.ended_at), 0)::float8 AS waited_s
FROM redrive.jobs AS j
LEFT JOIN redrive.attempts AS a
       ON a.job_id = j.id AND a.generation = j.generation AND a.attempt = j.attempt - 1
WHERE j.id = ANY($1::text[])
"""

# `lease_cap` tells whether the lost attempt is known to have begun. If so it is ended, and the job either
# runs its next attempt under our claim or, at the bound, is dead. If not, we take the same attempt.
TAKE_OVER = """
WITH lost AS (
    SELECT id, lease_cap IS NOT NULL AS begun,
           lease_cap IS NOT NULL AND crashes + 1 >= $5 AS dead
    FROM redrive.jobs
    WHERE id = $1 AND state = 'RUNNING' AND claim = $2 AND lease_until < clock_timestamp()
    FOR UPDATE
), over AS (
    UPDATE redrive.jobs AS j
    SET crashes = j.crashes + lost.begun::int,
        state = CASE WHEN lost.dead THEN 'DEAD' ELSE 'RUNNING' END,
        attempt = CASE WHEN lost.begun AND NOT lost.dead THEN j.attempt + 1 ELSE j.attempt END,
        claim = CASE WHEN lost.dead THEN NULL ELSE $3::uuid END,
        worker = CASE WHEN lost.dead THEN j.worker ELSE $4 END,
        lease_until = CASE WHEN lost.dead THEN NULL ELSE now() + $6 * interval '1 second' END,
        lease_cap = NULL,
        reason = CASE WHEN lost.dead THEN 'worker_lost' END,
        error = CASE WHEN lost.dead THEN 'the worker was lost; crashed attempts: ' || (j.crashes + 1) END,
        finished_at = CASE WHEN lost.dead THEN now() END
    FROM lost WHERE j.id = lost.id
    RETURNING j.id, j.state, j.generation, j.attempt, j.crashes, lost.begun
), ended AS (
    UPDATE redrive.attempts AS a
    SET outcome = 'lost', reason = 'worker_lost', ended_at = now()
    FROM over WHERE over.begun AND a.job_id = over.id AND a.claim = $2
), begun AS (
    INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker)
    SELECT id, generation, attempt, $3::uuid, $4 FROM over WHERE state = 'RUNNING'
    ON CONFLICT (job_id, generation, attempt) DO UPDATE
    SET claim = excluded.claim, worker = excluded.worker, outcome = 'running', reason = NULL,
        started_at = now(), ended_at = NULL
)
SELECT state, generation, attempt, crashes FROM over
"""

BELIEVE = """
WITH over AS (
    UPDATE redrive.jobs AS j
    SET generation = $2, attempt = $3, state = 'RUNNING', claim = $4, worker = $5, letter_id = NULL,
        lease_until = now() + $6 * interval '1 second', lease_cap = NULL,
        crashes = 0, reason = NULL,
        error = NULL, finished_at = NULL, started_at = coalesce(j.started_at, now())
    WHERE j.id = $1 AND (j.generation, j.attempt) < ($2, $3)
      AND (j.state IN ('PENDING', 'QUEUED', 'RETRYING', 'DEAD')
           OR (j.state = 'RUNNING' AND j.lease_until < clock_timestamp()))
    RETURNING j.id
), ended AS (
    UPDATE redrive.attempts AS a
    SET outcome = 'lost', reason = 'worker_lost', ended_at = now()
    FROM over
    WHERE a.job_id = over.id AND a.outcome = 'running' AND (a.generation, a.attempt) <> ($2, $3)
), begun AS (
    INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker)
    SELECT id, $2, $3, $4, $5 FROM over
    ON CONFLICT (job_id, generation, attempt) DO UPDATE
    SET claim = excluded.claim, worker = excluded.worker, outcome = 'running', reason = NULL,
        started_at = now(), ended_at = NULL
)
SELECT id FROM over
"""

COMPLETE = """
WITH done AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[],
                         $8::text[], $9::bigint[], $10::int[], $11::bytea[], $12::bytea[])
        AS d (job_id, token, kind, reason, result, exception_type, message, traceback, delay_ms, retries,
              arguments, options)
), judged AS (
    SELECT d.*, CASE
        WHEN d.kind = 'succeeded' THEN 'SUCCEEDED'
        WHEN d.kind = 'dead' THEN 'DEAD'
        WHEN d.kind = 'crashed' AND j.crashes + 1 >= $13 THEN 'DEAD'
        WHEN d.kind = 'returned' AND j.attempt = 1 THEN 'QUEUED'
        ELSE 'RETRYING' END AS state
    FROM done AS d JOIN redrive.jobs AS j ON j.id = d.job_id
), changed AS (
    UPDATE redrive.jobs AS j
    SET state = d.state,
        attempt = j.attempt + CASE WHEN d.state = 'RETRYING' AND d.kind <> 'returned' THEN 1 ELSE 0 END,
        crashes = CASE WHEN d.kind = 'crashed' THEN j.crashes + 1 ELSE j.crashes END,
        claim = NULL, lease_until = NULL, lease_cap = NULL,
        result = d.result,
        retries = coalesce(d.retries, j.retries),
        retry_arguments = coalesce(d.arguments, CASE WHEN j.attempt > 1 THEN j.retry_arguments END),
        retry_options = coalesce(d.options, CASE WHEN j.attempt > 1 THEN j.retry_options END),
        reason = CASE WHEN d.state = 'DEAD' THEN d.reason END,
        error = CASE WHEN d.kind = 'returned' THEN j.error
                     WHEN d.exception_type IS NULL THEN d.message
                     ELSE d.exception_type || ': ' || coalesce(d.message, '') END,
        finished_at = CASE WHEN d.state IN ('SUCCEEDED', 'DEAD') THEN now() END
    FROM judged AS d
    WHERE j.id = d.job_id AND j.claim = d.token AND j.state = 'RUNNING'
    RETURNING j.id, d.token, j.state, j.generation, j.attempt
), ended AS (
    UPDATE redrive.attempts AS a
    SET outcome = CASE WHEN d.kind = 'succeeded' THEN 'succeeded'
                       WHEN d.kind = 'returned' THEN 'returned'
                       WHEN d.kind = 'crashed' THEN 'lost'
                       WHEN d.kind = 'retry' THEN 'retry'
                       ELSE 'failed' END,
        reason = d.reason, exception_type = d.exception_type, message = d.message, traceback = d.traceback,
        delay_ms = CASE WHEN d.state = 'RETRYING' THEN d.delay_ms END, ended_at = now()
    FROM judged AS d JOIN changed AS c ON c.token = d.token
    WHERE a.job_id = d.job_id AND a.claim = d.token
)
SELECT token, state, generation, attempt FROM changed
"""

# A completion whose commit we did not hear of: the attempt's row kept the claim.
RECORDED = """
SELECT a.claim AS token, j.state, j.generation, j.attempt
FROM redrive.attempts AS a JOIN redrive.jobs AS j ON j.id = a.job_id AND j.generation = a.generation
WHERE a.job_id = ANY($1::text[]) AND a.claim = ANY($2::uuid[])
  AND a.outcome IN ('succeeded', 'retry', 'failed') AND j.state <> 'RUNNING'
"""

RENEW = """
UPDATE redrive.jobs AS j
SET lease_cap = coalesce(j.lease_cap, now() + r.limit_s * interval '1 second'),
    lease_until = least(now() + $4 * interval '1 second',
                        coalesce(j.lease_cap, now() + r.limit_s * interval '1 second'))
FROM unnest($1::text[], $2::uuid[], $3::float8[]) AS r (job_id, token, limit_s)
WHERE j.id = r.job_id AND j.claim = r.token AND j.state = 'RUNNING'
RETURNING j.claim
"""

BEGIN = """
UPDATE redrive.jobs SET lease_cap = now() + $3::float8 * interval '1 second'
WHERE id = $1 AND claim = $2 AND state = 'RUNNING'
"""

BURY = """
UPDATE redrive.jobs AS j
SET state = 'DEAD', reason = 'exception', error = d.error, finished_at = now()
FROM unnest($1::text[], $2::int[], $3::int[], $4::text[]) AS d (job_id, generation, attempt, error)
WHERE j.id = d.job_id AND j.generation = d.generation AND j.attempt = d.attempt
  AND j.state IN ('PENDING', 'QUEUED', 'RETRYING')
RETURNING j.id
"""

PROGRESS = "UPDATE redrive.jobs SET progress = $3 WHERE id = $1 AND claim = $2 AND state = 'RUNNING'"
