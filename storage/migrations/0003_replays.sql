-- Replay plans: a frozen selection of letters, and what became of each.

CREATE TABLE redrive.replays (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    state        text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    requested_by text NOT NULL,
    note         text,
    rate         double precision CHECK (rate > 0), -- letters per second; null = no limit
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz
);

CREATE TABLE redrive.replay_items (
    token         text PRIMARY KEY, -- travels in the redrive-replay header
    replay_id     uuid NOT NULL REFERENCES redrive.replays (id),
    position      integer NOT NULL,
    letter_id     bigint NOT NULL REFERENCES redrive.dead_letters (id),
    target        text NOT NULL,
    state         text NOT NULL DEFAULT 'staged' CHECK (state IN
                      ('staged', 'publishing', 'published', 'failed', 'unknown', 'cancelled')),
    outcome       text CHECK (outcome IN ('succeeded', 'died_again', 'cancelled', 'consumed', 'unknown')),
    generation    integer, -- of the job, where the letter is one of ours
    next_letter_id bigint,
    detail        text,
    published_at  timestamptz,
    decided_at    timestamptz,
    UNIQUE (replay_id, position)
);
-- One outstanding replay per letter.
CREATE UNIQUE INDEX replay_items_outstanding ON redrive.replay_items (letter_id)
    WHERE state IN ('staged', 'publishing') OR (state = 'published' AND outcome IS NULL);
CREATE INDEX replay_items_letter ON redrive.replay_items (letter_id);
CREATE INDEX replay_items_next_letter ON redrive.replay_items (next_letter_id) WHERE next_letter_id IS NOT NULL;
CREATE INDEX replay_items_undecided ON redrive.replay_items (replay_id, position)
    WHERE state IN ('staged', 'publishing') OR (state = 'published' AND outcome IS NULL);
