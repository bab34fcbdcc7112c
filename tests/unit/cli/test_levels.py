"""Levels that change while processes run, down the process tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from admission.commands import levels
from admission.commands.faults import Fault

#: A process that answers each line with its level, and has a child that does the same.
TREE = """
import logging, os, subprocess, sys
from admission.commands import logs
logs.configure(sys.argv[1])
child = None
if sys.argv[1] == "parent":
    child = subprocess.Popen([sys.executable, "-c", sys.argv[2], "child"], stdin=-1, stdout=-1, text=True, bufsize=1)
    child.stdout.readline()
print("ready", flush=True)
for line in sys.stdin:
    said = logging.getLevelName(logging.getLogger().level)
    if child is not None:
        child.stdin.write("?\\n")
        said += " " + child.stdout.readline().strip()
    print(said, flush=True)
"""


class Tree:
    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TREE, "parent", TREE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=os.environ | environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        assert self.stdout.readline() == "ready\n"

    def levels(self) -> str:
        self.stdin.write("?\n")
        return self.stdout.readline().strip()

    def end(self) -> None:
        self.stdin.close()
        self.process.wait(10)
        self.stdout.close()


@pytest.fixture
def tree() -> Iterator[Tree]:
    one = Tree()
    yield one
    one.end()


def test_a_level_reaches_the_whole_tree_and_can_be_changed_back(tree: Tree) -> None:
    assert tree.levels() == "INFO INFO"
    for level in ("debug", "error", "info"):
        levels.run(level, tree.process.pid)
        for _ in range(100):  # the signal arrives between two questions
            if tree.levels() == f"{level.upper()} {level.upper()}":
                break
        assert tree.levels() == f"{level.upper()} {level.upper()}"


def test_a_process_starts_with_the_level_of_its_environment() -> None:
    one = Tree(**{levels.LEVEL: "warning"})
    assert one.levels() == "WARNING WARNING"
    one.end()


def test_a_process_that_does_not_listen_is_refused_and_lives_on() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with pytest.raises(Fault, match="no process of Muster"):
            levels.run("debug", other.pid)
        assert other.poll() is None
        other.communicate(b"\n")


def test_nobody_else_uses_the_signals() -> None:
    assert len({levels.number(each) for each in levels.LEVELS}) == len(levels.LEVELS)
    assert all(signal.SIGRTMIN < levels.number(each) < signal.SIGRTMAX for each in levels.LEVELS)
