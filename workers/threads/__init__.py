"""Celery's threads pool, with time limits and an end for threads that do not come back."""
