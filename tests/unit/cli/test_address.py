"""Addresses of `muster dev`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from admission.commands.address import chosen

HOST = "127.0.0.1"


def test_a_second_start_has_the_ports_of_the_first(tmp_path: Path) -> None:
    first = chosen(tmp_path, HOST, {"webhook": 0, "inspection": 0})
    assert len(set(first.values())) == 2
    assert all(first.values())
    assert chosen(tmp_path, HOST, {"webhook": 0, "inspection": 0}) == first


def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    first = chosen(tmp_path, HOST, {"webhook": 0})
    with socket.socket() as taken:
        taken.bind((HOST, first["webhook"]))
        taken.listen()
        second = chosen(tmp_path, HOST, {"webhook": 0})
    assert second["webhook"] not in {0, first["webhook"]}


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            chosen(tmp_path, HOST, {"webhook": taken.getsockname()[1]})


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"webhook": "x"}', '{"webhook": 99999999}'])
def test_a_spoilt_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    assert chosen(tmp_path, HOST, {"webhook": 0})["webhook"] > 0
