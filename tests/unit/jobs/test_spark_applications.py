"""What the driver and the executors of a SparkApplication are charged."""

from __future__ import annotations

import pytest

from tests.unit.jobs.custom_jobs import (
    Object,
    requests_of,
    roles,
    spark_application,
)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, {"cpu": "1", "memory": str(896 * 2**20)}, id="at least 384 MiB beside the memory"),
        pytest.param(
            {"type": "Scala", "driver": {"memory": "10g"}}, {"cpu": "1", "memory": str(11 * 2**30)}, id="a tenth"
        ),
        pytest.param({"driver": {"memory": "10g"}}, {"cpu": "1", "memory": str(14 * 2**30)}, id="more for Python"),
        pytest.param(
            {"memoryOverheadFactor": "0.5", "driver": {"memory": "2g"}},
            {"cpu": "1", "memory": str(3 * 2**30)},
            id="the factor that is named",
        ),
        pytest.param(
            {"driver": {"coreRequest": "500m", "memory": "1g", "memoryOverhead": "1g"}},
            {"cpu": "500m", "memory": str(2 * 2**30)},
            id="an overhead and cores of one's own",
        ),
        pytest.param(
            {"driver": {}, "sparkConf": {"spark.driver.memory": "2g", "spark.driver.memoryOverhead": "1g"}},
            {"cpu": "1", "memory": str(3 * 2**30)},
            id="what only sparkConf says",
        ),
        pytest.param(
            {"driver": {"memory": "a lot"}}, {"cpu": "1", "memory": str(1433 * 2**20)}, id="the default for nonsense"
        ),
    ],
)
def test_a_spark_driver_is_charged_what_spark_will_ask_for(changes: Object, want: Object) -> None:
    assert requests_of(roles(spark_application(**changes))["driver"])["requests"] == want


def test_spark_executors_are_charged_their_devices() -> None:
    resources = requests_of(roles(spark_application())["executor"])
    assert resources["limits"] == {"nvidia.com/gpu": 1}
    assert resources["requests"]["cpu"] == "2"
