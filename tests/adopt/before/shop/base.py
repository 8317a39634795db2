"""What the shop's own tasks have in common."""

from celery import Task

from shop import journal


class ShopTask(Task):
    """Writes each failure into the journal."""

    abstract = True

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        journal.write("on_failure", task=self.name, error=type(exc).__name__)
