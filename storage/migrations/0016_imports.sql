-- expand: exports and imports of letters
--
-- Which letter of which database an imported one is: a file that is imported twice is stored once.
ALTER TABLE redrive.imported_letters
    ADD COLUMN stored_at timestamptz NOT NULL DEFAULT 'epoch',
    ADD COLUMN identity  bytea NOT NULL DEFAULT '';
CREATE UNIQUE INDEX imported_letters_origin ON redrive.imported_letters (identity, old_id, stored_at);
