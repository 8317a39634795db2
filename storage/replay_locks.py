"""The order in which items of replays and their letters are locked: items by token, then letters by id.

Whoever stores, replays or discards letters locks them by id too. Without an order an operator's command and a
batch that is written down are each other's deadlock, and a confirm that is known would be lost with it.
"""

from __future__ import annotations

# By arrays of keys: joined, they were planned over all items of a plan, or over all letters.
# Each is a CTE of a statement; `items` has token and letter_id, $1 is tokens.
BEING_SENT = """
WITH items AS (
    SELECT token, letter_id FROM redrive.replay_items
    WHERE token = ANY($1::text[]) AND state = 'publishing' ORDER BY token FOR UPDATE),
"""
LETTERS_OF_ITEMS = """
letters AS (
    SELECT l.id FROM redrive.dead_letters l WHERE l.id = ANY (ARRAY(SELECT letter_id FROM items))
    ORDER BY l.id FOR NO KEY UPDATE),
"""
REPLAYED = """
UPDATE redrive.dead_letters l SET state = 'replayed'
WHERE l.id = ANY (ARRAY(SELECT id FROM letters)) AND l.state = 'replaying'
"""
