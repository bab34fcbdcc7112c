"""Request paths."""

from __future__ import annotations

import pytest

from admission.kube.resources import CLUSTER_QUEUES, NODES, PODS, WORKLOADS


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "p", "status"), "/api/v1/namespaces/ns/pods/p/status"),
        (NODES.path(None, "n"), "/api/v1/nodes/n"),
        (WORKLOADS.path("ns", "w"), "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w"),
        (CLUSTER_QUEUES.path("ignored", "q"), "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q"),
        (PODS.path("ns", "../x?y"), "/api/v1/namespaces/ns/pods/..%2Fx%3Fy"),
    ],
)
def test_paths_follow_the_conventions(path: str, want: str) -> None:
    assert path == want
