"""What a CRD is told about who converts it, and when there is nothing to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from admission.webhook.configuration import ByService, ByUrl
from admission.webhook.conversion_publishing import difference

SERVICE = ByService("muster-system", "kueue-webhook-service", b"new").client_config("/convert")
BARE = ByService("muster-system", "kueue-webhook-service").client_config("/convert")
ADDRESS = ByUrl("https://127.0.0.1:9443/", b"new").client_config("/convert")


def crd(client_config: dict[str, Any] | None) -> dict[str, Any]:
    if client_config is None:
        return {"spec": {"conversion": {"strategy": "None"}}}
    webhook = {"clientConfig": client_config, "conversionReviewVersions": ["v1"]}
    return {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}


@dataclass(frozen=True)
class Case:
    """`want` is the change of the client config; None: nothing is written."""

    id: str
    stored: dict[str, Any]
    wanted: dict[str, Any]
    want: dict[str, Any] | None


CASES = [
    Case("an authority is put in", crd(BARE), SERVICE, SERVICE),
    Case("an authority is replaced", crd({**BARE, "caBundle": "b2xk"}), SERVICE, SERVICE),
    Case("what is right stays", crd(SERVICE), SERVICE, None),
    Case("an authority that was not given here stays", crd(SERVICE), BARE, None),
    Case(
        "an authority that was not given here is not written again",
        crd({**SERVICE, "service": {**BARE["service"], "port": 8443}}),
        BARE,
        BARE,
    ),
    Case("an address instead of a service", crd(SERVICE), ADDRESS, {**ADDRESS, "service": None}),
    Case("a service instead of an address", crd(ADDRESS), SERVICE, {**SERVICE, "url": None}),
    Case("nobody was asked before", crd(None), ADDRESS, ADDRESS),
    Case("no word on conversion", {"spec": {}}, ADDRESS, ADDRESS),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_difference(case: Case) -> None:
    change = difference(case.wanted, case.stored)
    assert change == (None if case.want is None else crd(case.want))


def test_an_address_ends_with_the_path() -> None:
    assert ADDRESS["url"] == "https://127.0.0.1:9443/convert"
