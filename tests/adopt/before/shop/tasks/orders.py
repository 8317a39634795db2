"""Orders: prices, charges, and the provider that is sometimes away."""

import os
import signal

from celery import shared_task

from shop import journal
from shop.base import ShopTask


class ProviderAway(Exception):
    pass


@shared_task
def price(quantity, cents):
    return quantity * cents


@shared_task
def with_tax(cents, percent=20):
    return cents + cents * percent // 100


@shared_task(bind=True, autoretry_for=(ProviderAway,), max_retries=3, default_retry_delay=1)
def reserve(self, order, away=1):
    """The provider is away for the first tries."""
    if self.request.retries < away:
        raise ProviderAway(order)
    journal.write("reserved", order=order)
    return {"order": order, "retries": self.request.retries}


@shared_task(bind=True, base=ShopTask, max_retries=5)
def charge(self, order, cents):
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    journal.write("charged", order=order, cents=cents)
    return cents


@shared_task(bind=True, base=ShopTask)
def broken(self, order):
    """A bug."""
    raise KeyError(order)


@shared_task(base=ShopTask)
def crash(order):
    """Takes its process with it, as a segmentation fault does."""
    journal.write("crashing", order=order)
    os.kill(os.getpid(), signal.SIGKILL)


@shared_task(ignore_result=True)
def note(value, order=""):
    journal.write("noted", value=value, order=order)


@shared_task(ignore_result=True)
def alarm(request, exc, traceback):
    """An errback."""
    journal.write("alarm", error=type(exc).__name__)
