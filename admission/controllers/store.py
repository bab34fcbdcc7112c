"""What the cluster last said: objects by kind and key, with indexes, and never older than what was seen before.

It decides only which of two versions of an object is the newer one, from their resource versions, and keeps the
indexes that the controllers look things up by. It must never talk to the API server or know what an object means.

Every operation costs the number of index entries of one object; a replacement of a whole kind costs that kind's size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

#: Deleted objects whose uid is remembered, so that the late answer of a write does not bring one back.
_REMEMBERED_DEAD = 20_000


class Metadata(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Object(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=Object)


class Key(NamedTuple):
    """Namespace (empty for cluster-scoped kinds) and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Change(msgspec.Struct, Generic[T], frozen=True):
    """What one object was and is; None on either side where it did not or does not exist."""

    before: T | None
    after: T | None

    @property
    def either(self) -> T:
        found = self.after if self.after is not None else self.before
        if found is None:
            raise ValueError("a change from nothing to nothing")
        return found


IndexKeys = Callable[[T], Iterable[Hashable]]


def key_of(obj: Object) -> Key:
    return Key(obj.metadata.namespace or "", obj.metadata.name)


def is_newer(candidate: str, known: str) -> bool:
    """Whether one resource version is later than the other; what is not a number is taken as it comes."""
    if candidate.isdecimal() and known.isdecimal():
        return int(candidate) > int(known)
    return candidate != known


class Table(Generic[T]):
    """All objects of one kind."""

    def __init__(self, indexes: Mapping[str, IndexKeys[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._index_keys = dict(indexes or {})
        # Dictionaries stand in for ordered sets: walking an index has to be deterministic.
        self._indexes: dict[str, dict[Hashable, dict[Key, None]]] = {name: {} for name in self._index_keys}
        self._by_uid: dict[str, Key] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def keys(self) -> list[Key]:
        """As they are now: what comes and goes later does not matter to who walks them."""
        return list(self._objects)

    def get(self, namespace: str, name: str) -> T | None:
        return self._objects.get(Key(namespace, name))

    def by_uid(self, uid: str) -> T | None:
        key = self._by_uid.get(uid)
        return None if key is None else self._objects.get(key)

    def key(self, obj: T) -> Key:
        """The very key that the object is filed under, so that whoever remembers it holds no other one like it."""
        key = key_of(obj)
        filed = self._by_uid.get(obj.metadata.uid)
        return filed if filed == key else key

    def where(self, index: str, value: Hashable) -> list[T]:
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def has(self, index: str, value: Hashable) -> bool:
        return bool(self._indexes[index].get(value))

    def values(self, index: str) -> list[Hashable]:
        return list(self._indexes[index])

    def upsert(self, obj: T) -> Change[T] | None:
        """Takes an object as seen or as a write returned it; None when that is no news."""
        key, meta = self.key(obj), obj.metadata
        known = self._objects.get(key)
        if meta.uid in self._dead:
            return None
        if known is not None and not is_newer(meta.resource_version, known.metadata.resource_version):
            return None
        if known is not None and known.metadata.uid != meta.uid:
            self._drop(key, known)
            self._bury(known.metadata.uid)
            self._file(key, None, obj)
        else:
            self._file(key, known, obj)
        self._objects[key] = obj
        return Change(known, obj)

    def remove(self, namespace: str, name: str, uid: str = "") -> Change[T] | None:
        """Forgets an object that is gone. With a uid, only if it is still that one."""
        key = Key(namespace, name)
        known = self._objects.get(key)
        if known is None or (uid and known.metadata.uid and known.metadata.uid != uid):
            if uid:
                self._bury(uid)
            return None
        self._drop(key, known)
        del self._objects[key]
        self._bury(known.metadata.uid)
        return Change(known, None)

    def replace(self, items: Iterable[T], resource_version: str = "") -> list[Change[T]]:
        """Takes a whole new listing. What it lacks is gone, unless it was written after the listing was made."""
        listed = list(items)
        keys = {key_of(obj) for obj in listed}
        newest = resource_version or max(
            (obj.metadata.resource_version for obj in listed if obj.metadata.resource_version.isdecimal()),
            key=int,
            default="",
        )
        changes = []
        for key, known in list(self._objects.items()):
            written_since = newest and is_newer(known.metadata.resource_version, newest)
            if key not in keys and not written_since:
                change = self.remove(key.namespace, key.name)
                if change is not None:
                    changes.append(change)
        changes.extend(change for obj in listed if (change := self.upsert(obj)) is not None)
        return changes

    def _file(self, key: Key, known: T | None, obj: T) -> None:
        """Under what it is to be found by now. Mostly that is what it was found by before."""
        uid = obj.metadata.uid
        if uid:
            # Under the uid's string of this version, or that of the first one would be kept as well.
            self._by_uid.pop(uid, None)
            self._by_uid[uid] = key
        for name, keys_of in self._index_keys.items():
            before = () if known is None else tuple(keys_of(known))
            after = tuple(keys_of(obj))
            if before != after:
                index = self._indexes[name]
                _take_out(index, before, key)
                for value in after:
                    index.setdefault(value, {})[key] = None

    def _drop(self, key: Key, known: T) -> None:
        if self._by_uid.get(known.metadata.uid) == key:
            del self._by_uid[known.metadata.uid]
        for name, keys_of in self._index_keys.items():
            _take_out(self._indexes[name], keys_of(known), key)

    def _bury(self, uid: str) -> None:
        if not uid:
            return
        self._dead[uid] = None
        if len(self._dead) > _REMEMBERED_DEAD:
            self._dead.popitem(last=False)


def _take_out(index: dict[Hashable, dict[Key, None]], values: Iterable[Hashable], key: Key) -> None:
    for value in values:
        entry = index.get(value)
        if entry is not None:
            entry.pop(key, None)
            if not entry:
                del index[value]
