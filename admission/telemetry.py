"""Sends spans to an OpenTelemetry collector, over HTTP as OTLP, from a thread of its own and through a bounded buffer.

What a span says is decided by whoever gives it; ids follow from the uid of the Workload, so that every process, and the
one after a restart, means the same trace without asking. It must never block or fail who gives a span, and nothing of
OpenTelemetry is imported before there is a collector to send to.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from urllib.parse import urlsplit

from admission.settings import Tracing

logger = logging.getLogger(__name__)

#: Where a collector takes traces, as OTLP says.
_PATH: Final = "/v1/traces"
#: Spans that wait for the collector at most; about 20 MB.
_CAPACITY: Final = 20_000
_BATCH: Final = 512
_SAMPLES: Final = 2**64

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment of a span; seconds since the epoch."""

    name: str
    at: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a gang's life. `key` tells it from the others of its trace, `parent` is the key of the one above it.

    `trace` is the uid of the Workload, `links` those of Workloads whose traces belong to this. Times are seconds since
    the epoch. The root has an empty parent.
    """

    trace: str
    key: str
    name: str
    began: float
    ended: float
    parent: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    links: tuple[str, ...] = ()


def trace_id(uid: str) -> int:
    """The trace of a Workload: its uid without the dashes, so that a person who has one has the other."""
    digits = uid.replace("-", "")
    try:
        number = int(digits, 16) if len(digits) == 32 else 0
    except ValueError:
        number = 0
    return number or int.from_bytes(hashlib.sha256(uid.encode()).digest()[:16])


def span_id(uid: str, key: str) -> int:
    """Never 0, which would be no id."""
    return int.from_bytes(hashlib.sha256(f"{uid}/{key}".encode()).digest()[:8]) or 1


def is_sampled(uid: str, ratio: float) -> bool:
    """Whether this gang is among the share that is traced. Of the digest: the digits of a uid are not evenly spread."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[8:16]) < ratio * _SAMPLES


def endpoint(text: str) -> str:
    """The address for traces: the given one, or below it where only a host is named."""
    return text.rstrip("/") + _PATH if urlsplit(text).path in {"", "/"} else text


class Collector:
    """`put` from anywhere, `close` at the end. `send` sends a batch and says whether it arrived."""

    def __init__(self, tracing: Tracing, send: Callable[[Sequence[Span]], bool] | None = None) -> None:
        self._tracing = tracing
        self._send = send
        self._spans: deque[Span] = deque(maxlen=_CAPACITY)
        self._dropped = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Spans that were left out, since the collector is slow or away."""
        return self._dropped

    def put(self, span: Span) -> None:
        if len(self._spans) >= _CAPACITY:
            self._dropped += 1
        self._spans.append(span)

    def end(self) -> None:
        """Begin to send what waits; nothing comes any more."""
        self._ending.set()

    def close(self, timeout: float) -> None:
        """The same, and wait until it was sent, for at most `timeout` seconds."""
        self._ending.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        send = self._send or _exporter(self._tracing)
        told = 0
        is_last = False
        while not is_last:
            is_last = self._ending.wait(self._tracing.export_interval)
            while self._spans:
                batch = [self._spans.popleft() for _ in range(min(_BATCH, len(self._spans)))]
                if not _sent(send, batch):
                    self._dropped += len(batch)
                    break
            if self._dropped > told:
                logger.warning("spans were left out", extra={"spans": self._dropped - told})
                told = self._dropped


def _sent(send: Callable[[Sequence[Span]], bool], batch: Sequence[Span]) -> bool:
    try:
        return send(batch)
    except Exception as error:  # noqa: BLE001  # whatever the libraries raise, only these spans are lost
        logger.warning("a batch of spans could not be sent", extra={"error": str(error)[:500]})
        return False


def _exporter(tracing: Tracing) -> Callable[[Sequence[Span]], bool]:
    """OpenTelemetry's, which takes headers, certificates and more from the usual OTEL_EXPORTER_OTLP_* variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

    exporter = OTLPSpanExporter(endpoint=endpoint(tracing.endpoint))
    resource = Resource.create(
        {"service.name": "muster", "service.version": _version(), "service.instance.id": socket.gethostname()}
    )
    scope = InstrumentationScope("muster")

    def context(uid: str, key: str) -> Any:
        return SpanContext(
            trace_id(uid), span_id(uid, key), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )

    def made(span: Span) -> Any:
        return ReadableSpan(
            name=span.name,
            context=context(span.trace, span.key),
            parent=context(span.trace, span.parent) if span.parent else None,
            resource=resource,
            attributes=dict(span.attributes),
            events=[Event(mark.name, dict(mark.attributes), _nanoseconds(mark.at)) for mark in span.marks],
            links=[Link(context(uid, ROOT)) for uid in span.links],
            kind=SpanKind.INTERNAL,
            start_time=_nanoseconds(span.began),
            end_time=_nanoseconds(max(span.began, span.ended)),
            instrumentation_scope=scope,
        )

    def send(batch: Sequence[Span]) -> bool:
        return bool(exporter.export([made(span) for span in batch]) is SpanExportResult.SUCCESS)

    return send


def _version() -> str:
    try:
        return version("muster-queue")
    except PackageNotFoundError:
        return ""


#: The key of a trace's first span.
ROOT: Final = "gang"


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def stamp(began: float) -> str:
    """What the webhook notes of its own work: when it began and how long it took, in seconds."""
    return f"{began:.6f}+{max(0.0, time.time() - began):.6f}"


def read_stamp(text: str, created_at: float) -> tuple[float, float] | None:
    """Beginning and end of such a note; None for one that cannot be Muster's: it is not near the object's creation."""
    began, _, took = text.partition("+")
    try:
        since, lasted = float(began), float(took)
    except ValueError:
        return None
    # NaN is near nothing.
    return (since, since + lasted) if abs(since - created_at) <= _NEAR and 0.0 <= lasted <= _NEAR else None


#: Seconds that a webhook's clock and the API server's may differ, with the time that a create may take.
_NEAR: Final = 60.0
