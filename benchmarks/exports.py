"""Exports of a table of three million rows: seconds and memory of each format, each in a process of its own.

Writes a run of 100,000 tokens and 30 layers without a model (benchmarks/synthetic_runs.py) unless --db names a database
with such a run. `memory_mb` is the largest resident memory of the process, `growth_mb` what of it came with the export;
`cpu_seconds` tells how much of a busy machine's wall time was the export's own.

    PYTHONPATH=runtime:. python benchmarks/exports.py --out benchmarks/results/exports.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.synthetic_runs import write_long_run
from focus_explorer.data.queries import fetch
from focus_explorer.exports.tables.write import SUFFIXES, write_table
from focus_runtime.measure.timing import machine
from focus_runtime.store.database import Database

TOKENS = 100_000
TABLE = "assignments"
LIMITS = {"parquet": 5.0, "csv": 20.0}  # seconds, from the project's goals


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def export_once(database: str, run_id: str, file_format: str, out: str) -> dict[str, float]:
    """One export in this process."""
    store = Database(Path(database))
    fetch(store, "run", run_id=run_id)  # libraries and file are loaded by now
    before, start, busy = _resident_mb(), time.perf_counter(), time.process_time()
    path = write_table(store, run_id, TABLE, file_format, out)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - busy,
        "memory_mb": _resident_mb(),
        "growth_mb": _resident_mb() - before,
        "file_mb": path.stat().st_size / 2**20,
    }


def measure(database: Path, run_id: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Every format that streams, each time in a new process."""
    results = {}
    for file_format in ("parquet", "csv", "json"):
        runs = []
        for _ in range(repeats if file_format in LIMITS else 1):
            out = folder / f"table{SUFFIXES[file_format]}"
            command = [sys.executable, __file__, "--one", str(database), run_id, file_format, str(out)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append(json.loads(done.stdout))
            out.unlink()
        seconds = [run["seconds"] for run in runs]
        results[file_format] = {
            "seconds": {
                "median": statistics.median(seconds),
                "low": min(seconds),
                "high": max(seconds),
                "repeats": len(runs),
            },
            "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
            "memory_mb": max(run["memory_mb"] for run in runs),
            "growth_mb": max(run["growth_mb"] for run in runs),
            "file_mb": runs[0]["file_mb"],
            "limit_seconds": LIMITS.get(file_format),
        }
    return results


def main() -> None:
    """Measure and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", help="database whose newest run is exported; made when missing")
    parser.add_argument("--out", default="benchmarks/results/exports.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(export_once(*arguments.one)))
        return
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(arguments.db or Path(folder) / "runs.duckdb")
        database = Database(path)
        if not path.exists():
            write_long_run(database, TOKENS)
        run = fetch(database, "runs").to_pylist()[0]
        layers = fetch(database, "layer_numbers", run_id=run["run_id"]).num_rows
        result = {
            "what": f"the table {TABLE} of a made-up run, {run['num_tokens']:,} tokens, {layers} layers; each "
            "export in a new process, from a warm file",
            "machine": machine(),
            "load_average_before": load,
            "rows": run["num_tokens"] * layers,
            "formats": measure(path, run["run_id"], Path(folder), arguments.repeats),
        }
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["formats"], indent=1))


if __name__ == "__main__":
    main()
