"""Requests of the page, links and corpora with hostile values: an answer or one message, never a traceback."""

from __future__ import annotations

import json
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_explorer.errors import InputError
from focus_explorer.exports.kinds import KINDS
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_explorer.web.requests.table import PAGE
from focus_runtime.run.source import Document, Skipped, Source
from tests.security.mutations import EXAMPLES, FUZZ, HOSTILE_TEXTS, REMOVED, VALUES, damaged, mutated

pytestmark = [pytest.mark.fuzz, pytest.mark.long]
STARTS = {name for name in PAGE if "start" in name or "measure" in name or name in ("what_if_save", "map")}
USUAL = {
    "layer": 0,
    "token": 3,
    "part": 0,
    "text": "The harbour",
    "session": "s",
    "other": "",
    "first": 0,
    "last": 5,
    "kind": "table",
    "name": "groups",
    "format": "csv",
    "preset": "paper",
    "changes": ["silence:0:A"],
    "rows": [0, 4],
    "columns": [0, 4],
    "head": 0,
    "group": 0,
    "position": 2,
    "positions": [1, 2],
    "id": "x",
    "size": 64,
    "query": 2,
    "key": 1,
    "count": 5,
}


@pytest.fixture(scope="module")
def service(stored):
    return Service(stored[0])


def _fields(values, what):
    """A request that is refused for no field that it does not know."""
    known = {"run", *PAGE[what].request.model_fields}
    return {"what": what} | {name: value for name, value in values.items() if name in known}


@pytest.mark.long
@pytest.mark.slow
def test_requests_of_the_page(service, stored):
    usual = USUAL | {"run": stored[1], "other": stored[1]}
    keys = sorted(usual)

    @settings(FUZZ, max_examples=4 * EXAMPLES)
    @given(
        what=st.sampled_from(sorted(PAGE.keys() - STARTS)),
        changes=st.lists(st.tuples(st.sampled_from(keys), VALUES), min_size=1, max_size=3),
    )
    def check(what, changes):
        request = _fields(usual, what)
        for key, value in changes:
            if value is REMOVED:
                request.pop(key, None)
            else:
                request[key] = value
        with suppress(InputError):
            json.dumps(dispatch(service, request), default=str, allow_nan=False)

    check()


@pytest.mark.slow
def test_work_that_a_request_starts_is_refused_before_it_starts_or_ends_in_a_message(service, stored):
    """Few of them: what is accepted runs."""
    usual = USUAL | {"run": stored[1], "seconds": 1, "top_k": [1], "window": [8], "repeats": 1, "tokens": 4}
    started = sorted(STARTS - {"map", "export_start"})

    @settings(FUZZ, max_examples=max(20, EXAMPLES // 10), deadline=30_000)
    @given(what=st.sampled_from(started), key=st.sampled_from(sorted(usual)), value=VALUES)
    def check(what, key, value):
        request = _fields(usual, what) | ({} if value is REMOVED else {key: value})
        with suppress(InputError):
            dispatch(service, request)

    check()


@pytest.mark.long
@pytest.mark.slow
def test_files_that_are_asked_for(service, stored):
    good = {"what": "export_command", "run": stored[1], "kind": "figure", "name": "groups", "format": "svg"}
    good |= {"preset": "paper", "layer": 0, "first": "0", "last": "3", "text": True}

    @settings(FUZZ, max_examples=2 * EXAMPLES)
    @given(kind=st.sampled_from(list(KINDS)), request=mutated(good))
    def check(kind, request):
        request = {"kind": kind} | request
        with suppress(InputError):
            dispatch(service, request | {"what": "export_command"})

    check()


@pytest.mark.slow
def test_links(private, capfd):
    parts = st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=30))

    @settings(FUZZ, max_examples=max(20, EXAMPLES // 4))
    @given(query=st.dictionaries(st.sampled_from(["run", "view", "layer", "page", "q", "__theme"]), parts, max_size=4))
    def check(query):
        query = {key: value.encode("utf-8", "replace").decode() for key, value in query.items()}
        assert private.client.get("/", params=query).status_code < 500
        assert "Traceback" not in "".join(capfd.readouterr())

    check()


def _read(path):
    """Every document of a source, each a text or a reason."""
    source = Source(path)
    with suppress(InputError):
        source.names()
    with suppress(InputError):
        for document in source.read():
            assert isinstance(document, Document | Skipped)


def test_corpora_of_lines(tmp_path):
    lines = [{"text": "The harbour was quiet."}, {"text": "Again.", "more": [1, {"a": None}]}, {"other": 1}]

    @FUZZ
    @given(rows=mutated(lines), data=damaged("\n".join(map(json.dumps, lines)).encode()))
    def check(rows, data):
        rows = rows if isinstance(rows, list) else [rows]
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        _read(tmp_path / "a.jsonl")
        (tmp_path / "b.jsonl").write_bytes(data)
        _read(tmp_path / "b.jsonl")

    check()


def test_corpora_of_rows(tmp_path):
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"text": ["The harbour was quiet.", None, "Again."], "n": [1, 2, 3]}), good)

    @FUZZ
    @given(data=damaged(good.read_bytes()))
    def check(data):
        (tmp_path / "c.parquet").write_bytes(data)
        _read(tmp_path / "c.parquet")

    check()
