"""Requests under any template: never negative, never less for asking for more, never more to quota than adds up."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission.api.core import PodSpec
from admission.api.decoding import convert
from admission.jobs.requests import PodRequests, Surroundings, pod_requests
from admission.settings import Resources

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
amounts = st.integers(-5, 2**70).map(str) | st.integers(0, 10**6).map(lambda n: f"{n}m")
requests = st.dictionaries(st.sampled_from(RESOURCES), amounts)
containers = st.fixed_dictionaries({"name": st.just("c"), "resources": st.fixed_dictionaries({"requests": requests})})
init_containers = st.fixed_dictionaries(
    {
        "name": st.just("i"),
        "resources": st.fixed_dictionaries({"requests": requests}),
        "restartPolicy": st.sampled_from(["", "Always"]),
    }
)
specs = st.fixed_dictionaries(
    {
        "containers": st.lists(containers, min_size=1, max_size=3),
        "initContainers": st.lists(init_containers, max_size=3),
        "overhead": requests,
    }
)


def charged(spec: dict[str, Any], around: Surroundings | None = None) -> PodRequests:
    got = pod_requests(convert(spec, PodSpec), around or Surroundings())
    assert isinstance(got, PodRequests)
    return got


@given(specs)
def test_never_negative(spec: dict[str, Any]) -> None:
    got = charged(spec)
    assert all(amount >= 0 for amount in (*got.charge.values(), *got.node.values()))


@given(specs, st.sampled_from(["containers", "initContainers"]), containers)
def test_one_more_container_never_costs_less(spec: dict[str, Any], where: str, more: dict[str, Any]) -> None:
    before, after = charged(spec).charge, charged({**spec, where: [*spec[where], more]}).charge
    assert all(after[resource] >= amount for resource, amount in before.items())


@given(specs)
def test_node_and_quota_see_the_same_without_rules(spec: dict[str, Any]) -> None:
    got = charged(spec)
    assert got.charge == got.node


@given(specs)
def test_exclusion_takes_the_prefix_away_and_nothing_else(spec: dict[str, Any]) -> None:
    rules = Surroundings(resources=Resources(exclude_resource_prefixes=("nvidia.com/",)))
    plain, excluded = charged(spec), charged(spec, rules)
    assert excluded.node == plain.node
    assert excluded.charge == {name: amount for name, amount in plain.charge.items() if name != "nvidia.com/gpu"}
