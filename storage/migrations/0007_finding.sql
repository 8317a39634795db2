-- expand: lists of letters are fast by each filter
--
-- One index for each filter, in the order in which a list shows its letters. Building them holds up the drain:
-- about a second for 200,000 letters.

CREATE INDEX dead_letters_by_queue ON redrive.dead_letters (queue, id) WITH (deduplicate_items = off);
CREATE INDEX dead_letters_by_task ON redrive.dead_letters (task, id) WITH (deduplicate_items = off)
    WHERE task IS NOT NULL;
CREATE INDEX dead_letters_by_exception ON redrive.dead_letters (exception_type, id) WITH (deduplicate_items = off)
    WHERE exception_type IS NOT NULL;
CREATE INDEX dead_letters_by_death ON redrive.dead_letters (dead_at, id) WITH (deduplicate_items = off);
-- Most letters are in none of these, so that storing one costs no more.
CREATE INDEX dead_letters_by_dlq ON redrive.dead_letters (dlq, id) WHERE dlq <> queue || '.dlq';
CREATE INDEX dead_letters_by_reason ON redrive.dead_letters (reason, id)
    WHERE reason NOT IN ('exception', 'exhausted');
CREATE INDEX dead_letters_decided ON redrive.dead_letters (state, id) WHERE state IN ('replayed', 'discarded');
CREATE INDEX dead_letters_quarantined ON redrive.dead_letters (id) WHERE state = 'quarantined';
CREATE INDEX replay_items_in_doubt ON redrive.replay_items (letter_id)
    WHERE outcome = 'unknown' OR (state = 'published' AND outcome IS NULL);
