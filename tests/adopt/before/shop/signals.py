"""Counts every run."""

from celery.signals import task_failure, task_postrun, task_prerun

from shop import journal


@task_prerun.connect
def began(task=None, **_):
    journal.write("prerun", task=task.name)


@task_postrun.connect
def ended(task=None, state=None, **_):
    journal.write("postrun", task=task.name, state=state)


@task_failure.connect
def failed(sender=None, exception=None, **_):
    journal.write("failure", task=sender.name, error=type(exception).__name__)
