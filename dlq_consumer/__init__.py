"""Drains dead-letter queues into Postgres, explains the letters, raises alerts and carries out replays."""
