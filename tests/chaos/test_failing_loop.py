"""An event loop that fails for ever ends its worker, for a supervisor to start it anew."""

from __future__ import annotations

from tests.support.databases import Database
from tests.support.failing_loop import DELIVERY_LIMIT
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.work import Work


def test_a_loop_that_goes_on_failing_ends_the_worker_and_says_so(
    vhost: Vhost, database: Database, processes: Processes
) -> None:
    work = Work(vhost, database, processes, module="tests.support.failing_loop")
    worker = work.start("--without-mingle", ready=False)
    assert worker.wait(90) == 1
    most = DELIVERY_LIMIT + 2
    assert worker.log.count("action=loop_failed") == most - 1
    assert worker.log.count("action=loop_given_up") == 1
    assert f"failed {most} times in a row" in worker.log
    assert worker.log.count("Traceback (most recent call last)") <= 3, "not one for each"
