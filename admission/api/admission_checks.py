"""AdmissionCheck: a question that another controller answers before a workload with quota may start."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import Conditions, ObjectMeta
from admission.api.names import API_VERSION
from admission.api.schema import DNS_LABEL_PATTERN, SUBDOMAIN_PATTERN, Cel, Definition, Object, Schema, always


class AdmissionCheckParametersReference(Object, frozen=True):
    api_group: Annotated[str, Schema(required=True, min_length=1, max_length=253, pattern=SUBDOMAIN_PATTERN)] = always(
        ""
    )
    kind: Annotated[
        str, Schema(required=True, min_length=1, max_length=63, pattern=r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$")
    ] = always("")
    name: Annotated[str, Schema(required=True, min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)] = always("")


class AdmissionCheckSpec(Object, frozen=True):
    controller_name: Annotated[
        str,
        Schema(required=True, min_length=1, max_length=253, cel=(Cel("self == oldSelf", "field is immutable"),)),
    ] = always("")
    parameters: AdmissionCheckParametersReference | None = None


class AdmissionCheckStatus(Object, frozen=True):
    conditions: Conditions = ()


class AdmissionCheck(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("AdmissionCheck")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: AdmissionCheckSpec = msgspec.field(default_factory=AdmissionCheckSpec)
    status: AdmissionCheckStatus = AdmissionCheckStatus()

    DEFINITION: ClassVar[Definition] = Definition(plural="admissionchecks", short_names=("ac",), has_status=True)
