"""Celery workers whose messages cannot be lost: the app, its guard and ledger, and the sample jobs."""
