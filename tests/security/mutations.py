"""Hostile variants of a good input: values of a JSON tree replaced or removed, bytes of a file changed."""

from __future__ import annotations

import copy
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))  # of each test; `make fuzz` gives many more
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=5000,  # no hang over five seconds
    database=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
FUZZ_SLOW = settings(FUZZ, max_examples=max(5, EXAMPLES // 12))  # a model is loaded each time
REMOVED = object()
HOSTILE_TEXTS = ["", "x", "\x00", "../../../../../../etc/passwd", "/etc/passwd", "\ud800", "=1+1", "__proto__", "NaN"]
HOSTILE_NUMBERS = [0, -1, 1, 2**31, 2**63, 10**30, 10**400, 1e308, 1e-320, float("nan"), float("inf")]
HOSTILE = [None, True, False, *HOSTILE_TEXTS, *HOSTILE_NUMBERS, [], {}, [[]], {"": []}, [None] * 1000]
VALUES = st.one_of(
    st.sampled_from(HOSTILE),
    st.just(REMOVED),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=8,
    ),
)


def places(tree, above=()):
    """Paths of all values of a JSON tree; of a list only the first and last."""
    if above:
        yield above
    if isinstance(tree, dict):
        for key in tree:
            yield from places(tree[key], (*above, key))
    elif isinstance(tree, list) and tree:
        for index in {0, len(tree) - 1}:
            yield from places(tree[index], (*above, index))


def mutated(tree):
    """A strategy of JSON trees that differ from a good one in up to three places.

    Args:
        tree: the good one; it is left as it is.
    """
    paths = sorted(places(tree), key=str)

    def apply(changes):
        made = copy.deepcopy(tree)
        for path, value in changes:
            inside = made
            try:
                for key in path[:-1]:
                    inside = inside[key]
                if value is REMOVED:
                    del inside[path[-1]]
                else:
                    inside[path[-1]] = copy.deepcopy(value)
            except (LookupError, TypeError):  # an earlier change has taken the place away
                continue
        return made

    return st.lists(st.tuples(st.sampled_from(paths), VALUES), min_size=1, max_size=3).map(apply)


def damaged(data):
    """A strategy of files: cut, with bytes changed, or with some put in.

    Args:
        data: bytes of a good one.
    """
    position = st.integers(0, max(0, len(data) - 1))

    def change(places):
        made = bytearray(data)
        for place, byte in places:
            made[place] = byte
        return bytes(made)

    return st.one_of(
        position.map(lambda end: data[:end]),
        st.lists(st.tuples(position, st.integers(0, 255)), min_size=1, max_size=8).map(change),
        st.tuples(position, st.binary(min_size=1, max_size=64)).map(lambda p: data[: p[0]] + p[1] + data[p[0] :]),
        st.binary(max_size=256),
    )
