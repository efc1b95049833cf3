import gzip
import json

import pytest

from focus_explorer.errors import NotFoundError
from focus_explorer.usecases.labels import label_run
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.web.requests.answers import KeptAnswers, guarded, of_objects, packed


def content(response):
    compressed = response.headers.get("content-encoding") == "gzip"
    return json.loads(gzip.decompress(response.body) if compressed else response.body)


@pytest.fixture
def counted():
    """Answers of states that a test chooses, and how often they were computed."""

    class Counted:
        def __init__(self):
            self.state, self.computed = "first", 0
            self.answers = KeptAnswers(lambda: self.state, most_bytes=60)

        def get(self, name="a", text="x"):
            def work():
                self.computed += 1
                return {"name": name, "text": text}

            return content(self.answers.packed(name, work))

    return Counted()


@pytest.mark.slow
def test_a_run_is_packed_once_until_the_database_changes(service, run_id):
    answers, computed = KeptAnswers(service.database.state), []

    def work():
        computed.append(1)
        return load_run(service.database, run_id)

    def opened():
        return content(answers.packed(run_id, work))

    first = opened()
    assert first == opened() == content(packed(guarded(lambda: load_run(service.database, run_id))))
    assert len(computed) == 1
    before = first["run"]["name"]
    try:
        label_run(service, run_id, name="another name")
        assert opened()["run"]["name"] == "another name"
    finally:
        label_run(service, run_id, name=before)
    assert opened() == first


def test_an_answer_belongs_to_one_state_and_one_name(counted):
    assert counted.get() == counted.get() == {"name": "a", "text": "x"}
    assert counted.computed == 1
    assert counted.get("b")["name"] == "b"
    counted.state = "second"
    assert counted.get(text="new")["text"] == "new"
    assert counted.computed == 3


def test_what_nobody_can_get_any_more_takes_no_room(counted):
    counted.state = (1, 2, 10, 100)  # device, number, size and time of a file
    counted.get("a")
    counted.state = (1, 2, 11, 101)
    counted.get("b")
    assert list(counted.answers._kept) == ["b"]
    counted.state = (1, 3, 11, 101)  # another file
    counted.get("c")
    assert list(counted.answers._kept) == ["b", "c"]
    assert counted.answers._bytes == sum(len(kept[1]) for kept in counted.answers._kept.values())


def test_nothing_is_kept_while_the_state_is_unknown(counted):
    counted.state = None
    counted.get()
    counted.get()
    assert counted.computed == 2


def test_the_oldest_goes_where_there_is_no_room(counted):
    for name in "abc":  # of 23 bytes each
        counted.get(name)
    counted.get("b")
    assert counted.computed == 3
    counted.get("a")
    assert counted.computed == 4


def test_a_problem_is_not_kept(counted):
    def missing():
        counted.computed += 1
        raise NotFoundError("there is no run 'a'")

    for _ in range(2):
        assert content(counted.answers.packed("a", missing)) == {"error": "there is no run 'a'"}
    assert counted.computed == 2
    assert counted.get()["text"] == "x"


def test_a_request_that_is_no_object_is_refused_in_words():
    def echo(request):
        return {"got": request}

    [function] = of_objects([echo])
    assert function.__name__ == "echo"
    assert function({"run": "a"}) == {"got": {"run": "a"}}
    assert function(None) == {"got": {}}
    for wrong in ("a", 3, ["a"], True):
        assert function(wrong) == {"error": f"the request is a {type(wrong).__name__}; expected a JSON object"}
