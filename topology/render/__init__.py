"""The compiled topology in other tools' forms. Pure: from entities to values and text."""
