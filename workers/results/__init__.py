"""Celery's results, read from the jobs' rows."""
