"""WorkloadPriorityClass: a priority in the queues that says nothing of the priority of the pods."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.names import API_VERSION
from admission.api.schema import REQUIRED, Column, Definition, Int32, Object, Schema, always


class WorkloadPriorityClass(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("WorkloadPriorityClass")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: Annotated[Int32, REQUIRED] = always(0)
    description: Annotated[str, Schema(max_length=2048)] = ""

    DEFINITION: ClassVar[Definition] = Definition(
        plural="workloadpriorityclasses", short_names=("wpc",), columns=(Column("Value", ".value", "integer"),)
    )
