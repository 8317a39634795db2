"""`celery -A benchmarks.redrive_app worker`."""

from benchmarks import jobs

app = jobs.redrive()
