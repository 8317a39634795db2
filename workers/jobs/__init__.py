"""The sample jobs, in Celery's ordinary style."""
