-- expand: replays are paused, resumed and cancelled, begin with a canary and stop at a breaker
ALTER TABLE redrive.replays
    DROP CONSTRAINT replays_state_check,
    ADD CONSTRAINT replays_state_check CHECK (state IN ('running', 'paused', 'done', 'cancelled'));

CREATE TABLE redrive.replay_terms (
    replay_id      uuid PRIMARY KEY REFERENCES redrive.replays (id) ON DELETE CASCADE,
    chosen_by      jsonb, -- the filter; null where letters were named
    -- The first so many are sent, and the rest once these went well or an operator says so.
    canary         integer CHECK (canary > 0),
    canary_is_over boolean NOT NULL DEFAULT false,
    -- Paused once so many letters died again as they had died before, if these are more than half.
    breaker        integer CHECK (breaker > 0),
    judged_from    timestamptz NOT NULL DEFAULT now() -- outcomes before this do not count
);

-- Who did what to a replay. Also the process itself: then `by` is 'redrive'.
CREATE TABLE redrive.replay_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    replay_id uuid NOT NULL REFERENCES redrive.replays (id) ON DELETE CASCADE,
    action    text NOT NULL CHECK (action IN ('pause', 'resume', 'cancel', 'canary', 'breaker')),
    by        text NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    why       text
);
CREATE INDEX replay_events_replay ON redrive.replay_events (replay_id, id);

-- The next letters of a plan, whatever was sent before them.
CREATE INDEX replay_items_staged ON redrive.replay_items (replay_id, position) WHERE state = 'staged';

-- How often the message of an item was replayed before; only where it was.
CREATE TABLE redrive.replay_laps (
    token text PRIMARY KEY REFERENCES redrive.replay_items (token) ON DELETE CASCADE,
    laps  integer NOT NULL
);
