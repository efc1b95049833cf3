"""Kills operations at moments drawn at random, or fills the disk, and looks at what is left: run by test_kills.py.

    python -m tests.security.kill_driver OPERATION[,OPERATION...] FOLDER COUNT SEED

Everything is imported once, also what operations import late; every attempt is a fork, so that the moments lie within
the operation and not its imports.
Prints a JSON object by operation: attempts, how many were killed before they ended, and what was wrong afterwards.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

FULL_DISKS = 0.3  # of the attempts
LARGE = (".safetensors", ".zip", ".csv", ".json", ".parquet")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def command(words):
    from focus_explorer.cli.main import main

    return main([str(word) for word in words])


def operations(folder):
    """Operation -> (what it does, what it may write besides the database)."""
    from focus_explorer.exports.bundle.write import write_bundle
    from focus_explorer.exports.tables.write import write_table
    from focus_explorer.usecases.centroids.files import add_centroids
    from focus_explorer.usecases.labels import all_runs, delete_run, purge_deleted
    from focus_explorer.usecases.service import Service
    from focus_explorer.usecases.training.request import checkpoint_of

    db, model = ["--db", folder / "runs.duckdb"], ["--model", folder / "tiny"]
    chosen = [*model, "--centroids", folder / "c.safetensors"]

    def train():
        out = folder / "out" / "trained.safetensors"
        words = ["train", "--text", folder / "docs", *db, *model, "--out", out, "--groups", 4, "--window", 8]
        words += ["--top-k", 1, "--steps", 4, "--seq-len", 32, "--checkpoint-every", 1]
        if checkpoint_of(out).exists():  # of one that was killed: without the option it is refused
            words.append("--resume")
        return command(words)

    def delete():
        service = Service(folder / "runs.duckdb")
        for row in all_runs(service):
            if row["name"] != "kept":
                delete_run(service, row["run_id"])
        purge_deleted(service, days=0)

    def kept():
        service = Service(folder / "runs.duckdb")
        return service, next(row["run_id"] for row in all_runs(service) if row["name"] == "kept")

    def export():
        service, run_id = kept()
        for form in ("csv", "parquet", "json"):
            write_table(service.database, run_id, "tokens", form, folder / "out" / f"tokens.{form}")

    def bundle():
        service, run_id = kept()
        write_bundle(service, [run_id], folder / "out" / "bundle.zip")

    def migrate():
        with Service(folder / "old.duckdb").database.read():
            pass

    return {
        "analyze": lambda: command(["analyze", folder / "text.txt", *db, *chosen, "--repeats", 1]),
        "corpus": lambda: command(["analyze", folder / "docs", *db, *chosen, "--out", folder / "out" / "corpus"]),
        "train": train,
        "upload": lambda: add_centroids(Service(folder / "runs.duckdb"), folder / "c.safetensors", "c", None),
        "delete": delete,
        "export": export,
        "bundle": bundle,
        "migrate": migrate,
    }


def forked(work, most_bytes=None):
    """Pid of a child that does the work and ends; it meets files beyond a size as a full disk."""
    pid = os.fork()
    if pid:
        return pid
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    if most_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    code = 1
    try:
        code = work()
        code = code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def problems(folder):
    """What is not whole; looked at in a child, since a parent with an open database must not fork."""
    import pyarrow.parquet as pq

    from focus_explorer.usecases.database_care import check
    from focus_explorer.usecases.labels import all_runs
    from focus_explorer.usecases.service import Service
    from focus_runtime.errors import InputError
    from focus_runtime.routing.centroid_file import load_centroids

    found = []
    for name in ("runs.duckdb", "old.duckdb"):
        if (folder / name).exists():
            names = {row["name"] for row in all_runs(Service(folder / name))}  # opens it, and migrates
            findings = check(folder / name)
            found += [f"{name}: {findings.damaged} {findings.broken}"] if not findings.whole else []
            if name == "runs.duckdb" and "kept" not in names:
                found.append("the kept run is gone")
    for path in (folder / "out").rglob("*"):
        if path.is_file() and not path.name.startswith(".part-"):
            try:
                if path.suffix == ".safetensors":
                    load_centroids(path)
                elif path.suffix == ".parquet":
                    pq.read_table(path)
                elif path.suffix == ".zip":
                    assert zipfile.ZipFile(path).testzip() is None
            except (InputError, OSError, ValueError, AssertionError, zipfile.BadZipFile) as error:
                found.append(f"{path.name}: {error}")
    return found


def looked_at(folder):
    answer = folder / "problems.json"
    answer.unlink(missing_ok=True)
    pid = forked(lambda: answer.write_text(json.dumps(problems(folder))))
    _, status = os.waitpid(pid, 0)
    return json.loads(answer.read_text()) if answer.exists() else [f"it cannot be opened: status {status}"]


def import_late_ones(works, names, folder):
    """Import what a child has imported that has done those with most behind them, and has looked at what is there."""
    listed = folder / "modules.json"

    def once():
        for name in {"analyze", "train"} & {*names}:
            works[name]()
        problems(folder)
        listed.write_text(json.dumps([*sys.modules]))

    anew("train", folder)
    os.waitpid(forked(once), 0)
    for name in json.loads(listed.read_text()):
        with suppress(Exception):  # names that only stand for a part of a module
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def anew(name, folder):
    """What the operation finds when it is done for the first time."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir()
    if name == "upload":
        shutil.rmtree(folder / "centroids", ignore_errors=True)
    for own in (*folder.glob("runs.duckdb*"), *folder.glob("old.duckdb*")):
        own.unlink()
    shutil.copyfile(folder / ("many.duckdb" if name == "delete" else "before.duckdb"), folder / "runs.duckdb")
    if name == "migrate":
        shutil.copyfile(folder / "0.1.duckdb", folder / "old.duckdb")


def tortured(name, work, folder, count, draw):
    """An operation done once, then killed so many times, then done once more."""
    anew(name, folder)
    started = time.monotonic()
    _, status = os.waitpid(forked(work), 0)
    seconds = time.monotonic() - started
    largest = max(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".duckdb", *LARGE))
    wrong = looked_at(folder) + ([f"it fails unharmed: status {status}"] if status else [])
    killed = 0
    for number in range(count):
        if name != "analyze" or number % 4 == 0:  # runs of the killed ones before may stay
            anew(name, folder)
        if draw.random() < FULL_DISKS:
            pid = forked(work, int(draw.uniform(0, 1) * largest))
        else:
            pid = forked(work)
            time.sleep(draw.uniform(0, 1.1) * seconds)
            os.kill(pid, draw.choice(SIGNALS))
        _, status = os.waitpid(pid, 0)
        killed += status != 0
        wrong += looked_at(folder)
    _, status = os.waitpid(forked(work), 0)  # on what the last one left
    wrong += looked_at(folder) + ([f"it fails after all that: status {status}"] if status else [])
    return {"attempts": count, "killed": killed, "seconds": round(seconds, 2), "wrong": wrong}


def main():
    names, folder, count, seed = sys.argv[1].split(","), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    import torch

    import focus_runtime.run.text
    import focus_runtime.store.runs  # noqa: F401

    torch.set_num_threads(1)
    works, draw = operations(folder), random.Random(seed)
    import_late_ones(works, names, folder)
    print(json.dumps({name: tortured(name, works[name], folder, count, draw) for name in names}))


if __name__ == "__main__":
    main()
