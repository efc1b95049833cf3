"""What groups were balanced on, from records that may be anything."""

from __future__ import annotations

import pytest

from focus_explorer.usecases.centroids.files import balanced_on, domain_names


@pytest.mark.parametrize("record", [None, 3, "novels", [], {}, {"domains": "novels"}, {"domains": [{"name": 3}, "x"]}])
def test_a_record_without_names_gives_none(record):
    assert domain_names(record) == []
    assert balanced_on({"balanced": record}) == []


def test_the_domains_are_named_and_else_the_amount_of_text():
    record = {"sequences": 1200, "seq_len": 1024}
    assert balanced_on({"balanced": record}) == ["1,200 sequences of 1,024 tokens"]
    assert balanced_on({"balanced": record | {"domains": [{"name": "novels"}, {"name": "code"}]}}) == ["novels", "code"]
    assert balanced_on({}) == []
