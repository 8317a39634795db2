"""SIGTERM and SIGHUP end a run as Ctrl-C does: through its clean-up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def interrupt_on_termination() -> None:
    """Turns SIGTERM and SIGHUP into KeyboardInterrupt, which pytest and our commands clean up after.

    Only in the main thread, and only where nobody else has installed a handler.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for each in _ENDING:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, signal.default_int_handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Clean-up runs to its end: it is bounded in time, and half of it leaves servers behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, *_ENDING)}
    try:
        yield
    finally:
        for each, handler in before.items():
            if handler is not None:  # None: installed from outside Python, cannot be put back
                signal.signal(each, handler)
