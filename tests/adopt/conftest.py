"""`before` is other people's code, with tests of its own."""

collect_ignore = ["before"]
