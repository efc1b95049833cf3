"""All statistics of a run of 100,000 tokens and 30 layers: seconds of each table and the memory of the process.

The run is made without a model (benchmarks/synthetic_runs.py): groups and the groups of random centroids are drawn, the
text and its tags are real. Attention is not measured beyond 4,096 tokens anywhere, so its rows are those of 4,096.

    PYTHONPATH=runtime:. python benchmarks/statistics_scale.py --out benchmarks/results/statistics.json
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.synthetic_runs import LAYERS, layer_of, text_of, write_long_run
from focus_explorer.statistics import NAMES
from focus_explorer.statistics.tables import RunStatistics
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import tag_run
from focus_runtime.config import FocusConfig
from focus_runtime.measure.timing import machine
from focus_runtime.run.random_baseline import RandomGroups
from focus_runtime.store.measurements import write_attention_queries, write_baseline

LIMITS = {"seconds": 30.0, "memory_mb": 4096.0}
ATTENTION_TOKENS = 4096


def prepare(service: Service, num_tokens: int) -> str:
    """A stored run with groups of random centroids and attention by query; tags are left to be timed."""
    run_id = write_long_run(service.database, num_tokens)
    generator = np.random.default_rng(1)
    config = FocusConfig(num_groups=8, top_k=1, window=128, routing_dim=16)
    ids = np.array(text_of(num_tokens).ids, dtype=np.int64)
    layers, queries = [], {}
    for number in range(LAYERS):
        layers.append(layer_of(number, ids, config, generator))
        queries[number] = generator.dirichlet(np.ones(4), ATTENTION_TOKENS)
    write_baseline(service.database, run_id, RandomGroups(layers, 1, 0, np.ones(num_tokens - 1)))
    write_attention_queries(service.database, run_id, {"focus": queries, "random": queries})
    return run_id


def main() -> None:
    """Time every table once: what they share is computed once and kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "runs.duckdb")
        run_id = prepare(service, arguments.tokens)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds: dict[str, float] = {}
        busy = time.process_time()
        begun = started = time.perf_counter()
        tag_run(service, run_id)
        seconds["tagging"] = time.perf_counter() - started
        started = time.perf_counter()
        statistics = RunStatistics(service.database, run_id)
        seconds["reading"] = time.perf_counter() - started
        for name in NAMES:
            started = time.perf_counter()
            statistics.table(name)
            seconds[name] = time.perf_counter() - started
        processor = time.process_time() - busy
        total = time.perf_counter() - begun
    report = {
        "machine": machine(),
        "tokens": arguments.tokens,
        "layers": LAYERS,
        "sentences": int(statistics.sample.units.max()) + 1,
        "limits": LIMITS,
        "seconds": seconds,
        "total_seconds": total,
        "processor_seconds": processor,
        "before_mb": before,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
