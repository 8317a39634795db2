"""What the installation says on its way."""

from __future__ import annotations

import pytest

from dev.bootstrap import pip_news


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "Collecting hypothesis==6.1 (from -r /home/me/redrive/requirements-dev.lock (line 469))\n",
            "7 packages collected, the last one hypothesis==6.1",
        ),
        ("Installing collected packages: amqp, anyio, vine\n", "installing 3 packages"),
        ("Successfully installed redrive-0.1.0\n", "1 package installed"),
        ("Successfully installed amqp-5.4.2 anyio-4.1 vine-5.1\n", "3 packages installed"),
        ("  Downloading amqp-5.4.2-py3-none-any.whl (51 kB)\n", None),
        ("Installing build dependencies: started\n", None),
        ("\n", None),
    ],
)
def test_each_line_of_progress_is_whole(line: str, expected: str | None) -> None:
    assert pip_news(line, 7) == expected
