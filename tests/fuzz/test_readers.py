"""Damaged files: each is read, or refused by an error that names it; soon, and in little memory.

Hypothesis damages a small whole file for half a second, always in the same ways, or for
FUZZ_SECONDS in others.
"""

from __future__ import annotations

import os
import time
import unittest
import warnings
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.fuzz.corpus import TARGETS, Target

ASKED = os.environ.get("FUZZ_SECONDS")
SECONDS = float(ASKED or 0.5)
LONGEST = 5.0  # seconds to read a file
MOST_MEMORY = 1e9  # bytes

# Numbers at which sizes and signs wrap around.
EDGES = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    b"\xff" * 8,
)
PLACES = st.floats(0, 1, exclude_max=True)
CHANGES = st.one_of(
    st.tuples(st.just("flip"), PLACES, st.integers(0, 7)),
    st.tuples(st.just("set"), PLACES, st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("set"), PLACES, st.sampled_from(EDGES)),
    st.tuples(st.just("insert"), PLACES, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("remove"), PLACES, st.integers(1, 64)),
    st.tuples(st.just("repeat"), PLACES, st.integers(1, 64)),
    st.tuples(st.just("cut"), PLACES, st.none()),
)


def damaged(content: bytes, changes: list[tuple[str, float, object]]) -> bytes:
    """Apply changes, each at a share of the length."""
    for kind, share, value in changes:
        at = int(share * len(content))
        head, tail = content[:at], content[at:]
        if kind == "flip" and tail:
            content = head + bytes([tail[0] ^ 1 << value]) + tail[1:]
        elif kind == "set":
            content = head + value + tail[len(value) :]
        elif kind == "insert":
            content = head + value + tail
        elif kind == "remove":
            content = head + tail[value:]
        elif kind == "repeat":
            content = head + tail[:value] + tail
        elif kind == "cut":
            content = head
    return content


def check(target: Target, folder, path, content: bytes) -> None:
    """Read a damaged file; raise unless it is read, or refused by an error that names it."""
    path.write_bytes(content)
    target.repair(folder)
    start = time.perf_counter()
    try:
        target.read(folder)
    except (ValueError, TypeError, OSError) as error:
        if str(folder) not in str(error):
            raise AssertionError(f"no file is named in {error!r}") from error
    assert time.perf_counter() - start < LONGEST


def peak_memory() -> float:
    resource = pytest.importorskip("resource")
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_file_is_read_or_refused_by_name(tmp_path, name):
    target = TARGETS[name]
    path = target.write(tmp_path)
    whole, before = path.read_bytes(), peak_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target.read(tmp_path)  # the whole file
        end = time.monotonic() + SECONDS

        @settings(
            max_examples=10**7,
            deadline=None,
            database=None,
            derandomize=not ASKED,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(CHANGES, min_size=1, max_size=4))
        def attack(changes):
            if time.monotonic() > end:
                raise unittest.SkipTest  # which Hypothesis lets through
            check(target, tmp_path, path, damaged(whole, changes))

        with suppress(unittest.SkipTest):
            attack()
    assert peak_memory() - before < MOST_MEMORY
