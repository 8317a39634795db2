"""A task as a class, under a name of its own."""

from shop import journal
from shop.app import app
from shop.base import ShopTask


class Nightly(ShopTask):
    name = "reports.nightly"

    def run(self, day):
        journal.write("report", day=day)
        return f"report of {day}"


nightly = app.register_task(Nightly())
