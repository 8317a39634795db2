"""Mails, at most so many a second."""

from shop import journal
from shop.app import app
from shop.base import ShopTask


@app.task(base=ShopTask, rate_limit="100/s", ignore_result=True, expires=3600)
def send(to, subject):
    journal.write("mail", to=to, subject=subject)


@app.task(bind=True, name="shop.tasks.mails.remind", base=ShopTask)
def remind(self, to):
    send.delay(to, "reminder")
    return self.request.delivery_info["routing_key"]
