"""How long a Lease is surely held, by a clock of its own."""

from __future__ import annotations

from admission.kube.lease import Tenure


def test_it_counts_from_when_a_renewal_was_sent_and_not_from_its_answer() -> None:
    now = [100.0]
    tenure = Tenure(15, lambda: now[0])
    assert not tenure.is_sure, "nothing was ever renewed"
    began = tenure.began()
    now[0] = 110.0
    tenure.renewed(began)
    assert tenure.is_sure
    now[0] = 114.9
    assert tenure.is_sure
    now[0] = 115.0
    assert not tenure.is_sure, "another may have it from now on"
    tenure.renewed(tenure.began())
    assert tenure.is_sure
    tenure.ended()
    assert not tenure.is_sure
