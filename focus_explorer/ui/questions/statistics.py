"""The page's questions about statistics: computed in the background, once per run, and answered as far as they are."""

from __future__ import annotations

import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.services.jobs import Job, run_job
from focus_explorer.services.service import Service
from focus_explorer.services.statistics import measure_run
from focus_explorer.statistics.run_sample import stored_measurements
from focus_explorer.statistics.run_statistics import RunStatistics, agreement_between, run_statistics
from focus_explorer.statistics.warnings import ENOUGH_UNITS, FEW_UNITS
from focus_explorer.views.statistics import SHOWN, columns, compact, judged, of_layer

Question = dict[str, Any]

NEEDED = {
    "overview": ("statistics",),
    "groups": ("statistics", "characteristic", "categories"),
    "pairs": ("distances", "pairs", "links"),
}
KEPT_WORKS = 12
LINKS = 20  # of each kind
PATIENCE = 0.4  # seconds an answer may keep the page waiting before it says how far it is
_VIEWS: WeakKeyDictionary[Service, StatisticsViews] = WeakKeyDictionary()


@dataclass(slots=True)
class Work:
    """One part of a run's statistics, computed on a thread of its own."""

    fraction: float = 0.0
    result: Any = None
    problem: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def step(self, done: int, total: int) -> None:
        """Layers done so far."""
        self.fraction = done / total


class StatisticsViews:
    """Answers about statistics for one database; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._works: OrderedDict[tuple[str, ...], Work] = OrderedDict()
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._computing = threading.Lock()  # one at a time: the views want to stay quick

    def overview(self, run_id: str) -> Question:
        """What the statistics rest on, and all of the run and of its layers."""
        found = self._part(run_id, "overview")
        return self._with_job(run_id, found if isinstance(found, dict) else _overview(found, self.measured(run_id)))

    def layer(self, run_id: str, layer: int) -> Question:
        """Groups of one layer, with their tokens and categories."""
        found = self._part(run_id, "groups")
        return found if isinstance(found, dict) else _groups(found, layer)

    def pairs(self, run_id: str, layer: int) -> Question:
        """Pairs kept by distance in one layer and over layers, and its strongest distant pairs and links."""
        found = self._part(run_id, "pairs")
        return found if isinstance(found, dict) else _pairs(found, layer)

    def agreement(self, run_id: str, other_id: str) -> Question:
        """Two runs of the same tokens, layer by layer."""
        database = self.service.database
        key = (run_id, "agreement", other_id, repr(self.measured(run_id)))
        found = self._result(key, lambda work: agreement_between(database, run_id, other_id))
        return found if isinstance(found, dict) else {"state": "done", "rows": columns(found)}

    def measured(self, run_id: str) -> Question:
        """What the run was measured with."""
        return stored_measurements(self.service.database, run_id)

    def measure(self, run_id: str, *, attention: bool) -> Question:
        """Measure what is missing, on a thread of its own."""
        fetch_run(self.service.database, run_id)
        with self._lock:
            job = self._jobs.get(run_id)
            if job is None or not job.live:
                job = self._jobs[run_id] = Job("statistics", run_id)
                threading.Thread(target=run_job, args=(job, self._measuring(run_id, attention)), daemon=True).start()
        return {"job": job.told()}

    def _measuring(self, run_id: str, attention: bool) -> Callable[[Job], None]:
        def work(job: Job) -> None:
            said = measure_run(
                self.service, run_id, attention=attention, progress=job.step, cancelled=job.stopped.is_set
            )
            job.message = " ".join(said)

        return work

    def stop(self, run_id: str) -> Question:
        """Stop measuring at the next step; what is stored already stays."""
        job = self._jobs.get(run_id)
        if job is not None:
            job.stopped.set()
        return self.job(run_id)

    def job(self, run_id: str) -> Question:
        """How far the measurement is."""
        job = self._jobs.get(run_id)
        return {"job": None if job is None else job.told()}

    def _with_job(self, run_id: str, answer: Question) -> Question:
        return answer | self.job(run_id)

    def _part(self, run_id: str, part: str) -> RunStatistics | Question:
        """The study once the tables of a part are there; until then how far they are."""

        def compute(work: Work) -> RunStatistics:
            found = run_statistics(self.service.database, run_id)
            if part != "groups":
                found.measured(work.step)
            for name in NEEDED[part]:
                found.table(name)
            return found

        result: RunStatistics | Question = self._result((run_id, part, repr(self.measured(run_id))), compute)
        return result

    def _result(self, key: tuple[str, ...], compute: Callable[[Work], Any]) -> Any:
        with self._lock:
            work = self._works.get(key)
            if work is None or work.problem:
                work = self._works[key] = Work()
                threading.Thread(target=self._compute, args=(work, compute), daemon=True).start()
                while len(self._works) > KEPT_WORKS:
                    self._works.popitem(last=False)
            self._works.move_to_end(key)
        if not work.done.wait(PATIENCE):
            return {"state": "computing", "fraction": work.fraction}
        if work.problem:
            raise InputError(work.problem)
        return work.result

    def _compute(self, work: Work, compute: Callable[[Work], Any]) -> None:
        try:
            with self._computing:
                work.result = compute(work)
        except InputError as error:
            work.problem = str(error)
        except Exception:
            work.problem = "something went wrong inside Focus Explorer; see the server's log"
            traceback.print_exc()
        finally:
            work.done.set()


def _overview(found: RunStatistics, measured: Question) -> Question:
    table, sample = found.table("statistics"), found.sample
    run, layers = judged(table, "run"), judged(table, "layer")
    units = run[0]["units"] if run else 0
    mass_missing = "focus" not in sample.mass or (sample.random is not None and "random" not in sample.mass)
    return {
        "state": "done",
        "about": {
            "tokens": sample.num_tokens,
            "units": units,
            "unit": sample.unit,
            "tagger": measured.get("tagger"),
            "random_seed": measured.get("random_seed"),
            "attention_tokens": measured.get("attention_tokens") if sample.mass else None,
            "notes": list(sample.notes),
            "length": "few" if units < FEW_UNITS else "rough" if units < ENOUGH_UNITS else "enough",
        },
        "missing": {
            "tags": not measured.get("tagger"),
            "random": sample.random is None,
            "attention": mass_missing,
        },
        "run": compact(run, SHOWN),
        "layers": compact(layers, SHOWN),
    }


def _groups(found: RunStatistics, layer: int) -> Question:
    rows = [row for row in judged(found.table("statistics"), "group") if row["layer"] == layer]
    if not rows:
        raise InputError(f"the run {found.run_id!r} has no layer {layer}", fix="choose a layer of this run")
    return {
        "state": "done",
        "groups": compact(rows, SHOWN),
        "characteristic": columns(of_layer(found.table("characteristic"), layer)),
        "categories": columns(of_layer(found.table("categories"), layer)),
    }


def _pairs(found: RunStatistics, layer: int) -> Question:
    distances = found.table("distances").to_pylist()
    links = found.table("links")
    mine = of_layer(links, layer).sort_by([("probability", "descending")])
    kinds = {kind: mine.filter(pa.compute.equal(mine["kind"], kind)) for kind in ("kept", "dropped")}
    return {
        "state": "done",
        "distances": compact([row for row in distances if row["layer"] in (layer, None)], list(distances[0])),
        "pairs": columns(of_layer(found.table("pairs"), layer)),
        "links": columns(pa.concat_tables([rows.slice(0, LINKS) for rows in kinds.values()])),
        "links_stored": {kind: rows.num_rows for kind, rows in kinds.items()},
        "links_measured": links.num_rows > 0,
    }


def _views(service: Service) -> StatisticsViews:
    return _VIEWS.setdefault(service, StatisticsViews(service))


def _layer(question: Question) -> int:
    layer = question.get("layer")
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise InputError(f"the layer is {layer!r}", expected="a layer number")
    return layer


STATISTICS_ANSWERS: dict[str, Callable[[Service, Question], Question]] = {
    "statistics": lambda service, asked: _views(service).overview(str(asked.get("run"))),
    "statistics_layer": lambda service, asked: _views(service).layer(str(asked.get("run")), _layer(asked)),
    "statistics_pairs": lambda service, asked: _views(service).pairs(str(asked.get("run")), _layer(asked)),
    "statistics_agreement": lambda service, asked: _views(service).agreement(
        str(asked.get("run")), str(asked.get("other"))
    ),
    "statistics_measure": lambda service, asked: _views(service).measure(
        str(asked.get("run")), attention=asked.get("attention") is True
    ),
    "statistics_stop": lambda service, asked: _views(service).stop(str(asked.get("run"))),
    "statistics_job": lambda service, asked: _views(service).job(str(asked.get("run"))),
}
