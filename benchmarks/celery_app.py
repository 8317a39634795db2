"""`celery -A benchmarks.celery_app worker`."""

from benchmarks import jobs

app = jobs.celery()
