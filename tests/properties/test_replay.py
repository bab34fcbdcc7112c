"""The same history gives the same plans byte for byte, in another process with another hash seed too."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queues.core.policy import Policy
from tests.compiled import needs_interpreted_core
from tests.properties.cluster import played
from tests.properties.test_histories import History

ROOT = Path(__file__).parents[2]

PLAY = """
import hashlib, pickle, sys
from queues.core.policy import Policy
from tests.properties.cluster import played
history, policy = pickle.load(sys.stdin.buffer)
print(hashlib.sha256(repr(played(history, policy)).encode()).hexdigest())
"""


def digest_elsewhere(recorded: bytes, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PLAY], input=recorded, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode().strip()


@needs_interpreted_core
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_another_process_plans_the_same(data):
    history = History(data, scarce=True, policy=Policy())
    for _ in range(40):
        history.step()
    history.decide()
    cluster = history.cluster
    plans = played(cluster.history, cluster.policy)
    assert repr(plans) == repr(cluster.plans)
    want = hashlib.sha256(repr(plans).encode()).hexdigest()
    recorded = pickle.dumps((cluster.history, cluster.policy))
    assert [digest_elsewhere(recorded, seed) for seed in ("1", "2")] == [want, want]
