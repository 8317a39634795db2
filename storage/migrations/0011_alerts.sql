-- expand: sending alerts through several channels, rates, snoozes, alerts about no group
--
-- What is on record about each subject of alerts, and each channel's delivery of each alert.

-- A group, or something else that can be wrong. Apart from redrive.groups, of which the release before reads
-- every column.
CREATE TABLE redrive.alert_subjects (
    subject       text PRIMARY KEY, -- a fingerprint, 'no_consumer://VHOST/QUEUE', 'oldest_undecided'
    fingerprint   text REFERENCES redrive.groups (fingerprint) ON DELETE CASCADE,
    alerted_at    timestamptz,
    resolved_at   timestamptz, -- null after alerted_at: still wrong
    last_letter   timestamptz,
    snoozed_until timestamptz,
    missed        boolean NOT NULL DEFAULT false, -- something came while it was snoozed
    above         boolean NOT NULL DEFAULT false, -- the rate has been told
    slice         bigint NOT NULL DEFAULT 0, -- number of the newest of the counts
    counts        integer[] NOT NULL DEFAULT '{}' -- letters by slice of the rate's window, the newest first
);
CREATE INDEX alert_subjects_unresolved ON redrive.alert_subjects (subject)
    WHERE alerted_at IS NOT NULL AND resolved_at IS NULL;
CREATE TABLE redrive.alert_snoozes (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject  text NOT NULL REFERENCES redrive.alert_subjects (subject) ON DELETE CASCADE,
    at       timestamptz NOT NULL DEFAULT now(),
    by       text NOT NULL,
    until    timestamptz, -- null: it was ended
    note     text
);
CREATE INDEX alert_snoozes_subject ON redrive.alert_snoozes (subject, id);

-- 'pending' is left to the release before, which sends those itself; 'sending' is known to this one.
ALTER TABLE redrive.alerts
    ALTER COLUMN fingerprint DROP NOT NULL,
    ALTER COLUMN letter_id DROP NOT NULL,
    ADD COLUMN subject text, -- null: the fingerprint
    ADD COLUMN detail text,
    DROP CONSTRAINT alerts_kind_check,
    ADD CONSTRAINT alerts_kind_check CHECK (kind IN ('first_seen', 'seen_again', 'regression', 'rate',
        'resolved', 'no_consumer', 'oldest_undecided')),
    DROP CONSTRAINT alerts_state_check,
    ADD CONSTRAINT alerts_state_check CHECK (state IN
        ('pending', 'sending', 'delivered', 'no_channel', 'given_up', 'snoozed'));
CREATE INDEX alerts_newest ON redrive.alerts (created_at, id);
CREATE INDEX alerts_fingerprint ON redrive.alerts (fingerprint) WHERE fingerprint IS NOT NULL;
CREATE TABLE redrive.alert_deliveries (
    alert_id     uuid NOT NULL REFERENCES redrive.alerts (id) ON DELETE CASCADE,
    channel      text NOT NULL,
    state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'given_up', 'snoozed')),
    tries        integer NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    next_try_at  timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz,
    last_error   text,
    PRIMARY KEY (alert_id, channel)
);
CREATE INDEX alert_deliveries_due ON redrive.alert_deliveries (channel, next_try_at) WHERE state = 'pending';
