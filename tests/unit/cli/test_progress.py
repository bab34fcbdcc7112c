"""Progress without a terminal: silent at first, then a line now and then, never the same twice."""

from __future__ import annotations

import pytest

from admission.commands.progress import progress


def test_it_says_something_only_of_what_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 6.0, 7.0, 12.0, 18.0])
    with progress(lambda: next(times)) as say:
        for text in ("at once", "after six seconds", "too soon", "after twelve", "after twelve"):
            say(text)
        say.done("done")
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["muster: after six seconds", "muster: after twelve"]
    assert captured.out == "done\n"
