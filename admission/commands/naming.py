"""How a person names an object on the command line: NAME, NAMESPACE/NAME, KIND NAME or KIND/NAME.

Read from the text and the namespace that holds where none is said. It never looks whether the object exists.
"""

from __future__ import annotations

from typing import Final

from admission.commands.faults import USAGE, Fault

#: What queues may be called, by what they are.
QUEUE_KINDS: Final = {
    "clusterqueue": "ClusterQueue",
    "clusterqueues": "ClusterQueue",
    "cq": "ClusterQueue",
    "localqueue": "LocalQueue",
    "localqueues": "LocalQueue",
    "lq": "LocalQueue",
    "queue": "LocalQueue",
    "queues": "LocalQueue",
}


def namespace_and_name(text: str, namespace: str) -> tuple[str, str]:
    """Of NAME or NAMESPACE/NAME."""
    before, slash, after = text.rpartition("/")
    if not after or "/" in before or (slash and not before):
        raise Fault(f"{text!r} is neither NAME nor NAMESPACE/NAME", USAGE)
    return before or namespace, after


def queues(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Kind and name of each queue that `KIND NAME...` or `KIND/NAME...` names."""
    if not words:
        raise Fault("name a queue: clusterqueue NAME, localqueue NAME, or KIND/NAME", USAGE)
    if "/" not in words[0]:
        kind = _kind(words[0])
        if len(words) == 1:
            raise Fault(f"name the {kind} too, as in `{words[0]} NAME`", USAGE)
        return [(kind, name) for name in words[1:]]
    found = []
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash or not name:
            raise Fault(f"{word!r} is not KIND/NAME", USAGE)
        found.append((_kind(kind), name))
    return found


def _kind(word: str) -> str:
    found = QUEUE_KINDS.get(word.lower())
    if found is None:
        raise Fault(f"{word!r} is no kind of queue; write clusterqueue (cq) or localqueue (lq)", USAGE)
    return found
