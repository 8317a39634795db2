-- expand: what is sent again is written down at a third of the cost
--
-- An item goes staged, publishing, published: no index names its state, and its page has room, so that these
-- two steps add to no index (https://www.postgresql.org/docs/15/storage-hot.html). What an index names is the
-- time at which it was decided what became of it: until then it is outstanding.
UPDATE redrive.replay_items SET decided_at = coalesce(published_at, now())
WHERE decided_at IS NULL
  AND NOT (state IN ('staged', 'publishing') OR (state = 'published' AND outcome IS NULL));
ALTER TABLE redrive.replay_items
    ADD CONSTRAINT replay_items_decided CHECK ((decided_at IS NULL)
        = (state IN ('staged', 'publishing') OR (state = 'published' AND outcome IS NULL))),
    SET (fillfactor = 50);

-- One outstanding replay per letter.
CREATE UNIQUE INDEX replay_items_one_outstanding ON redrive.replay_items (letter_id) WHERE decided_at IS NULL;
CREATE INDEX replay_items_unclear ON redrive.replay_items (letter_id)
    WHERE outcome = 'unknown' OR decided_at IS NULL;
CREATE INDEX replay_items_open ON redrive.replay_items (replay_id, position) WHERE decided_at IS NULL;
DROP INDEX redrive.replay_items_outstanding;
DROP INDEX redrive.replay_items_in_doubt;
DROP INDEX redrive.replay_items_undecided;
DROP INDEX redrive.replay_items_staged;

-- A job's row is written five times and more; each writing that names no index stays in its page.
ALTER TABLE redrive.jobs SET (fillfactor = 70);
