"""What Muster reads of Kubernetes' dynamic resource allocation (resource.k8s.io/v1): classes, claims, devices.

Only what quota rests on is typed: which class is asked for, how often, how the devices are chosen, and what devices
there are. Which devices a claim was given is the scheduler's business; it is never read.
"""

from __future__ import annotations

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.schema import Object, always

EXACT_COUNT = "ExactCount"
ALL = "All"

#: The resource name under which a device class can be asked for without a claim (Kubernetes' own form).
DEVICE_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"


class CelDeviceSelector(Object, frozen=True):
    expression: str = always("")


class DeviceSelector(Object, frozen=True):
    """Which devices are meant, by an expression in CEL."""

    cel: CelDeviceSelector | None = None


class DeviceClassSpec(Object, frozen=True):
    """`extended_resource_name`: pods that ask for this resource get devices of the class."""

    extended_resource_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()


class DeviceClass(Object, frozen=True):
    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("DeviceClass")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(Object, frozen=True):
    """How much of a device that several may share is asked for, by qualified names."""

    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ExactDeviceRequest(Object, frozen=True):
    device_class_name: str = always("")
    selectors: tuple[DeviceSelector, ...] = ()
    capacity: CapacityRequirements | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool = False


class DeviceSubRequest(Object, frozen=True):
    """One alternative of a request."""

    name: str = always("")
    device_class_name: str = always("")
    selectors: tuple[DeviceSelector, ...] = ()
    capacity: CapacityRequirements | None = None
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


# ------------------------------------------------------------------ the devices that there are


class DeviceAttribute(Object, frozen=True):
    """One of them is set."""

    boolean: bool | None = msgspec.field(default=None, name="bool")
    integer: int | None = msgspec.field(default=None, name="int")
    string: str | None = None
    version: str | None = None


class CapacityRange(Object, frozen=True):
    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(Object, frozen=True):
    """What a share of a device may be: one of these values, or one of this range."""

    default: str | None = None
    valid_values: tuple[str, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Object, frozen=True):
    value: str | int | float = always("0")
    request_policy: CapacityRequestPolicy | None = None


class Counter(Object, frozen=True):
    value: str | int | float = always("0")


class CounterConsumption(Object, frozen=True):
    """What a device takes of the counters that it shares with others."""

    counter_set: str = always("")
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class Device(Object, frozen=True):
    name: str = always("")
    attributes: dict[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Object, frozen=True):
    """A pool is whole when there are `resource_slice_count` slices of its newest generation."""

    name: str = always("")
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Object, frozen=True):
    driver: str = always("")
    pool: ResourcePool = ResourcePool()
    devices: tuple[Device, ...] = ()


class ResourceSlice(Object, frozen=True):
    """Part of the devices that a driver has."""

    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceSlice")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = ResourceSliceSpec()
