-- expand: API keys are rotated, end, have limits, and tell when they were last used
--
-- A row of api_keys is a caller; its secrets stand here, so that a new one works beside the old one. The key_hash
-- of api_keys stays that of the newest secret: the release before knows it alone.
CREATE TABLE redrive.api_secrets (
    -- The part of a key that may be seen: rdk_<id>_…; of an older key the start of its hash.
    id            text NOT NULL,
    key_hash      bytea PRIMARY KEY,
    name          text NOT NULL REFERENCES redrive.api_keys (name) ON DELETE CASCADE,
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text,
    ends_at       timestamptz,
    -- To the minute.
    last_used_at  timestamptz
);
CREATE INDEX api_secrets_id ON redrive.api_secrets (id);
CREATE INDEX api_secrets_name ON redrive.api_secrets (name);
INSERT INTO redrive.api_secrets (id, key_hash, name, created_at)
SELECT left(encode(key_hash, 'hex'), 8), key_hash, name, created_at FROM redrive.api_keys;

ALTER TABLE redrive.api_keys
    ADD COLUMN expires_at timestamptz,
    -- Requests per second, and at once; null: what the API's settings say, 0: no limit.
    ADD COLUMN rate float8 CHECK (rate >= 0 AND rate < 1e9),
    ADD COLUMN burst integer CHECK (burst >= 1),
    ADD COLUMN created_by text,
    ADD COLUMN revoked_by text;
