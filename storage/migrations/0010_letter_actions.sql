-- expand: discards, edits, exports, imports and expiry of letters; redaction
--
-- What was done with letters, and by whom. Each goes with its letter.

CREATE TABLE redrive.letter_actions (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    letter_id bigint NOT NULL REFERENCES redrive.dead_letters (id) ON DELETE CASCADE,
    action    text NOT NULL CHECK (action IN ('discard', 'restore', 'edit', 'withdraw', 'import')),
    by        text NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    details   jsonb NOT NULL
);
CREATE INDEX letter_actions_letter ON redrive.letter_actions (letter_id, id);

-- What a replay sends in place of the letter: its newest edit. Without bytes: the letter as it came, again.
CREATE TABLE redrive.letter_edits (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    letter_id  bigint NOT NULL REFERENCES redrive.dead_letters (id) ON DELETE CASCADE,
    message_id text,
    properties bytea,
    body       bytea,
    CHECK ((message_id IS NULL) = (properties IS NULL) AND (properties IS NULL) = (body IS NULL))
);
CREATE INDEX letter_edits_letter ON redrive.letter_edits (letter_id, id);
-- Which replay sent an edit.
CREATE TABLE redrive.replayed_edits (
    token   text PRIMARY KEY REFERENCES redrive.replay_items (token) ON DELETE CASCADE,
    edit_id bigint NOT NULL REFERENCES redrive.letter_edits (id) ON DELETE CASCADE
);
CREATE INDEX replayed_edits_edit ON redrive.replayed_edits (edit_id);

-- Where values were taken out before the letter was stored.
CREATE TABLE redrive.redacted_letters (
    letter_id bigint PRIMARY KEY REFERENCES redrive.dead_letters (id) ON DELETE CASCADE,
    paths     text[] NOT NULL
);
CREATE TABLE redrive.imported_letters (
    letter_id bigint PRIMARY KEY REFERENCES redrive.dead_letters (id) ON DELETE CASCADE,
    old_id    bigint NOT NULL
);
-- Letters that are gone, so that one delivered once more is not taken for new.
CREATE TABLE redrive.expired_letters (
    identity   bytea PRIMARY KEY,
    expired_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX expired_letters_age ON redrive.expired_letters (expired_at);
