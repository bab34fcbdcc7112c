"""What the settings make of the core's policy."""

from __future__ import annotations

from admission.controllers.loop import policy
from admission.settings import parse
from queues.core.policy import DomainReservation

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def test_domains_are_kept_only_where_that_is_asked_for() -> None:
    assert policy(parse(HEAD)).topology.reservation is None
    asked = policy(parse(HEAD + "muster: {domainReservation: {after: 5m}}"))
    assert asked.topology.reservation == DomainReservation(after=300, lasting=3600)
