"""A failure at a near tie is run again with another seed; a real failure, and ties that persist, still fail."""

from __future__ import annotations

import pytest

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


@pytest.fixture
def run(pytester):
    pytester.makeconftest(CONFTEST)

    def outcomes(code):
        pytester.makepyfile(code)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")

    return outcomes


def test_a_failure_at_a_tie_is_run_again_with_fresh_fixtures(run):
    result = run("""
        from conftest import made, undone

        def test_a_tie(seed, near_ties):
            near_ties[0] = 1e-6
            assert seed == 2

        def test_after():
            assert made == undone == [0, 1, 2]
    """)
    result.assert_outcomes(passed=2)


def test_ties_that_persist_fail_and_say_so(run):
    result = run("""
        from conftest import made

        def test_a_tie(seed, near_ties):
            near_ties[0] = 1e-6
            assert False, "still apart"

        def test_after():
            assert made == [0, 1, 2]
    """)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*AssertionError: still apart*", "*every one of 3 attempts failed*by 1.0e-06 in the last*"]
    )


@pytest.mark.parametrize(("gap", "statement"), [(1e-2, "assert False"), (1e-6, "raise ValueError"), (1e-6, "1 / 0")])
def test_a_real_failure_fails_at_once(gap, statement, run):
    result = run(f"""
        from conftest import made

        def test_wrong(seed, near_ties):
            near_ties[0] = {gap}
            {statement}

        def test_after():
            assert made == [0]
    """)
    result.assert_outcomes(passed=1, failed=1)
