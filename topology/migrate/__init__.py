"""Moves a queue whose arguments changed: its messages wait in a holding queue while it is declared anew."""
