"""What Muster reads of Kubernetes' dynamic resource allocation (resource.k8s.io/v1): classes, claims, claim templates.

Only what quota rests on is typed: which class is asked for, how often, and how the devices are chosen. Which devices a
claim was given is the scheduler's business; it is never read.
"""

from __future__ import annotations

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.schema import Object, always

EXACT_COUNT = "ExactCount"
ALL = "All"

#: The resource name under which a device class can be asked for without a claim (Kubernetes' own form).
DEVICE_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"


class DeviceClassSpec(Object, frozen=True):
    """`extended_resource_name`: pods that ask for this resource get devices of the class."""

    extended_resource_name: str = ""


class DeviceClass(Object, frozen=True):
    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("DeviceClass")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = DeviceClassSpec()


class ExactDeviceRequest(Object, frozen=True):
    device_class_name: str = always("")
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool = False


class DeviceSubRequest(Object, frozen=True):
    """One alternative of a request."""

    name: str = always("")
    device_class_name: str = always("")
    allocation_mode: str = ""
    count: int = 0


class DeviceRequest(Object, frozen=True):
    """One of `exactly` and `first_available`."""

    name: str = always("")
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceClaim(Object, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(Object, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(Object, frozen=True):
    """Shared by all pods that name it."""

    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceClaim")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplateSpec(Object, frozen=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True):
    """Each pod that names it gets a claim of its own."""

    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceClaimTemplate")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
