-- expand: who changed what, and from where, is on record
--
-- A submission's row is written by the statement that makes its jobs. That of any other change is committed before
-- the change begins, and gets its outcome afterwards: there is no change without a row, and a row without an
-- outcome is one whose process ended, or lost the database, before it answered.
CREATE TABLE redrive.audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    -- The caller of a key, or user@host of a command.
    by          text NOT NULL,
    key_id      text,
    -- The peer's address; of a command its host.
    came_from   text,
    -- Method and route, or the command.
    operation   text NOT NULL,
    submission  boolean NOT NULL DEFAULT false,
    -- Ids of jobs, letters, replays, groups…: the first 1,000.
    targets     text[] NOT NULL DEFAULT '{}',
    -- What else was asked, as JSON.
    details     text,
    -- HTTP status, or the command's exit code.
    status      integer,
    ended_at    timestamptz
);
CREATE INDEX audit_at ON redrive.audit (at);
CREATE INDEX audit_actions ON redrive.audit (id) WHERE NOT submission;
CREATE INDEX audit_targets ON redrive.audit USING gin (targets) WHERE NOT submission;

CREATE FUNCTION redrive.audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    open_until_it_ends text[] := '{targets,details,status,ended_at}';
BEGIN
    IF OLD.ended_at IS NOT NULL
       OR to_jsonb(OLD) - open_until_it_ends IS DISTINCT FROM to_jsonb(NEW) - open_until_it_ends THEN
        RAISE EXCEPTION 'what is on record in redrive.audit is not changed';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit_stays BEFORE UPDATE ON redrive.audit
    FOR EACH ROW EXECUTE FUNCTION redrive.audit_stays();
