"""Cohort: a node of the quota tree, with quota on top of its children's. One that is only named exists too."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.names import API_VERSION
from admission.api.quota import FairSharing, FairSharingStatus, ResourceGroups
from admission.api.schema import Definition, Object, Subdomain, always


class CohortSpec(Object, frozen=True):
    parent_name: Subdomain | None = None
    resource_groups: ResourceGroups = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(Object, frozen=True):
    fair_sharing: FairSharingStatus | None = None


class Cohort(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("Cohort")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: CohortSpec = msgspec.field(default_factory=CohortSpec)
    status: CohortStatus = CohortStatus()

    DEFINITION: ClassVar[Definition] = Definition(plural="cohorts", short_names=("co",), has_status=True)
