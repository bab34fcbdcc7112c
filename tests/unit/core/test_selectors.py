from __future__ import annotations

import pytest

from queues.core.model import Expression, LabelSelector, Operator, Taint, Toleration
from queues.core.selectors import matches_affinity, selects, untolerated
from tests.builders import flavor, workload


def pods(builder):
    return builder.build().pod_sets[0]


def term(key, operator, *values):
    return Expression(key, operator, values)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, False, id="no selector selects nothing"),
        pytest.param(LabelSelector(), True, id="an empty selector selects everything"),
        pytest.param(LabelSelector((("team", "x"),)), True, id="the label has the value"),
        pytest.param(LabelSelector((("team", "y"),)), False, id="the label has another value"),
        pytest.param(LabelSelector((("other", "x"),)), False, id="the label is missing"),
        pytest.param(LabelSelector((), (term("team", Operator.IN, "x", "z"),)), True, id="in"),
        pytest.param(LabelSelector((), (term("other", Operator.NOT_IN, "x"),)), True, id="not in holds when missing"),
        pytest.param(LabelSelector((), (term("team", Operator.DOES_NOT_EXIST),)), False, id="must not exist"),
        pytest.param(LabelSelector((("team", "x"),), (term("other", Operator.EXISTS),)), False, id="both have to hold"),
    ],
)
def test_selects(selector, want):
    assert selects(selector, {"team": "x"}) is want


GPU_TAINT = Taint("gpu", "yes")


@pytest.mark.parametrize(
    ("taints", "own", "pod", "want"),
    [
        pytest.param([GPU_TAINT], [], [], GPU_TAINT, id="a taint keeps pods out"),
        pytest.param([GPU_TAINT], [], [Toleration("gpu", "Equal", "yes")], None, id="the pod tolerates it"),
        pytest.param([GPU_TAINT], [], [Toleration("gpu", "Equal", "no")], GPU_TAINT, id="another value is not enough"),
        pytest.param([GPU_TAINT], [], [Toleration("gpu", "Exists")], None, id="exists tolerates any value"),
        pytest.param([GPU_TAINT], [], [Toleration("", "Exists")], None, id="exists without key tolerates all"),
        pytest.param(
            [GPU_TAINT], [], [Toleration("gpu", "Exists", effect="NoExecute")], GPU_TAINT, id="only another effect"
        ),
        pytest.param([GPU_TAINT], [Toleration("gpu", "Exists")], [], None, id="the flavor's own tolerations count"),
        pytest.param([Taint("gpu", "yes", "PreferNoSchedule")], [], [], None, id="a preference keeps nobody out"),
    ],
)
def test_taints(taints, own, pod, want):
    made = flavor("f", taints=taints, tolerations=own)
    assert untolerated(made, pods(workload("w").tolerating(*pod))) == want


@pytest.mark.parametrize(
    ("builder", "want"),
    [
        pytest.param(workload("w"), True, id="no wishes"),
        pytest.param(workload("w").selecting(pool="a"), True, id="the declared label has the value"),
        pytest.param(workload("w").selecting(pool="b"), False, id="the declared label has another value"),
        pytest.param(workload("w").selecting(other="b"), True, id="an undeclared key is not the flavor's matter"),
        pytest.param(workload("w").affinity((term("pool", Operator.IN, "b"),)), False, id="affinity does not match"),
        pytest.param(
            workload("w").affinity((term("pool", Operator.IN, "b"),), (term("pool", Operator.IN, "a"),)),
            True,
            id="one of the terms is enough",
        ),
        pytest.param(
            workload("w").affinity((term("pool", Operator.IN, "b"),), (term("other", Operator.IN, "z"),)),
            True,
            id="a term only about other keys matches",
        ),
        pytest.param(
            workload("w").affinity((term("pool", Operator.IN, "a"), term("other", Operator.IN, "z"))),
            True,
            id="other keys of a term are dropped",
        ),
    ],
)
def test_affinity(builder, want):
    assert matches_affinity(flavor("f", labels={"pool": "a"}), pods(builder)) is want
