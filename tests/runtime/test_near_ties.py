"""A failure at a near tie is run again with another seed; a real failure, and ties that persist, still fail."""

from __future__ import annotations

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from tests.runtime.near_ties import ATTEMPT, pytest_runtest_call, pytest_runtest_protocol

made, undone = [], []

@pytest.fixture
def near_ties():
    return [float("inf")]

@pytest.fixture
def seed(request, near_ties):
    made.append(request.node.stash.get(ATTEMPT, 0))
    yield made[-1]
    undone.append(made[-1])
"""


TESTS = """
from conftest import made, undone

def test_a_tie(seed, near_ties):
    near_ties[0] = 1e-6
    assert seed == 2

def test_fixtures_were_fresh():
    assert made == undone == [0, 1, 2]
    made.clear()

def test_a_tie_that_persists(seed, near_ties):
    near_ties[0] = 1e-6
    assert False, "still apart"

def test_a_real_failure(seed, near_ties):
    near_ties[0] = 1e-2
    assert False

def test_another_error(seed, near_ties):
    near_ties[0] = 1e-6
    raise ValueError

def test_the_last_two_ran_once():
    assert made == [0, 1, 2, 0, 0]
"""


def test_only_ties_are_run_again_and_those_that_persist_fail_and_say_so(pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        ["*AssertionError: still apart*", "*every one of 3 attempts failed*by 1.0e-06 in the last*"]
    )
