"""Twenty people at one served page for ten minutes: how long their requests take, which fail, and what memory does.

Starts `focus-explorer serve` on a new database with the default model, stores a run, and drives it first by one client
and then by all of them at once. A client does what the page's own script does, with pauses as people make them: opens
the page and a stored run, goes through its layers, looks at its groups and pairs, downloads a table, explores a text of
its own. Requests that fail, answers that hold an error and texts that are turned away are counted by their words.

    PYTHONPATH=runtime:. python benchmarks/load.py --out benchmarks/results/load.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.served_page import Served, served
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import all_samples
from focus_runtime.measure.timing import machine

PORT = 7963
PAUSE = (0.5, 2.5)  # seconds between two things a client does
DEADLINE = 120.0  # seconds
ALONE = 60  # seconds of one client before the others come
CALM = 300  # last seconds of the load, over which memory is to be flat
WORDS = ("harbour", "quiet", "letter", "house", "winter", "nobody", "read", "again", "came", "back", "the", "and", "to")
ACTIONS = {"open": 6, "layers": 5, "groups": 3, "pairs": 3, "export": 1, "explore": 2}  # how often, in proportion


class RequestFailedError(Exception):
    """An answer that a user would call an error."""


class Load:
    """What all clients have in common: the page's address and components, times and failures."""

    def __init__(self, address: str, run_id: str, layers: list[int], config: dict[str, Any]) -> None:
        self.address, self.run_id, self.layers = address, run_id, layers
        self.components = {
            one["props"].get("elem_id"): one for one in config["components"] if one["props"].get("elem_id")
        }
        self.values = {one["id"]: one["props"].get("value") for one in config["components"]}
        [self.explore] = [one for one in config["dependencies"] if one["api_name"] == "analyze_form"]
        self.times: dict[str, list[float]] = defaultdict(list)
        self.failures: Counter[str] = Counter()

    async def timed(self, name: str, work: Awaitable[Any]) -> Any:
        """The result of some work; its time, or its failure, is counted."""
        start = time.monotonic()
        try:
            result = await work
        except (httpx.HTTPError, RequestFailedError) as error:
            self.failures[f"{name}: {type(error).__name__} {error}"[:300]] += 1
            return None
        self.times[name].append(time.monotonic() - start)
        return result


class Client:
    """One person's browser.

    Args:
        load: shared by all.
        seed: of what this person does.
    """

    def __init__(self, load: Load, seed: int) -> None:
        self.load, self.random = load, random.Random(seed)
        self.session = f"client{seed}"
        self.http = httpx.AsyncClient(base_url=load.address, timeout=DEADLINE)

    async def stay(self, until: float) -> None:
        """Do one thing after another."""
        names, weights = zip(*ACTIONS.items(), strict=True)
        while time.monotonic() < until:
            [name] = self.random.choices(names, weights)
            work: Callable[[], Awaitable[Any]] = getattr(self, name)
            await work()
            await asyncio.sleep(self.random.uniform(*PAUSE))
        await self.http.aclose()

    async def open(self) -> None:
        """The page, and the stored run in it."""
        await self.load.timed("page", self._get(f"/?run={self.load.run_id}"))
        await self.load.timed("open a stored run", self._ask("load_run", {"run": self.load.run_id}))

    async def layers(self) -> None:
        """Masks and maps of some layers, as a slider goes through them."""
        for layer in self.random.sample(self.load.layers, 4):
            await self.load.timed("mask of a layer", self._ask("load_mask", {"run": self.load.run_id, "layer": layer}))
            await asyncio.sleep(0.2)

    async def groups(self) -> None:
        """What the groups of all layers hold."""
        await self.load.timed("groups", self._question("groups"))
        await self.load.timed("map", self._question("map", layer=self.random.choice(self.load.layers), quick=True))

    async def pairs(self) -> None:
        """Pairs of a layer by distance, and its groups in order of probability."""
        layer = self.random.choice(self.load.layers)
        await self.load.timed("pairs by distance", self._question("pair_distances", layer=layer))
        await self.load.timed("orders of groups", self._question("group_orders", layer=layer))

    async def export(self) -> None:
        """A table as a file."""
        await self.load.timed("export", self._export())

    async def explore(self) -> None:
        """A short text of this person's own."""
        await self.load.timed("explore a short text", self._explore())

    async def _get(self, path: str) -> httpx.Response:
        response = await self.http.get(path)
        if response.status_code != 200:
            raise RequestFailedError(f"{response.status_code} {response.text[:200]}")
        return response

    async def _ask(self, function: str, data: Any) -> dict[str, Any]:
        body = {
            "data": data,
            "fn_name": function,
            "component_id": self.load.components["fe-view"]["id"],
            "session_hash": self.session,
        }
        response = await self.http.post("/gradio_api/component_server", json=body)
        if response.status_code != 200:
            raise RequestFailedError(f"{response.status_code} {response.text[:200]}")
        answer: dict[str, Any] = response.json()
        if "error" in answer:
            raise RequestFailedError(answer["error"])
        return answer

    async def _question(self, what: str, **details: Any) -> dict[str, Any]:
        return await self._ask("ask", {"what": what, "run": self.load.run_id, **details})

    async def _export(self) -> None:
        answer = await self._question("export_start", kind="table", name="groups", format="csv")
        while answer["job"]["state"] in ("waiting", "running"):
            await asyncio.sleep(0.2)
            answer = await self._question("export_state", id=answer["id"])
        if answer["job"]["state"] != "done":
            raise RequestFailedError(answer["job"]["message"] or answer["job"]["state"])
        await self._get(answer["file"]["address"])

    async def _explore(self) -> None:
        words = self.random.choices(WORDS, k=60)
        form = [self.load.values.get(number) for number in self.load.explore["inputs"]]
        form[0] = " ".join(words)
        body = {
            "data": form,
            "fn_index": self.load.explore["id"],
            "session_hash": self.session,
            "trigger_id": self.load.components["fe-run"]["id"],
            "event_data": None,
        }
        joined = await self.http.post("/gradio_api/queue/join", json=body)
        if joined.status_code != 200:
            raise RequestFailedError(f"{joined.status_code} {joined.text[:200]}")
        event = joined.json()["event_id"]
        async for message in self._messages():
            if message.get("event_id") != event:
                continue
            if message["msg"] == "process_completed":
                words_of_status = re.sub(r"<[^>]+>", " ", str(message["output"].get("data", [""])[0]))
                if not message["success"]:
                    raise RequestFailedError(f"{message['output']}")
                if "stored" not in words_of_status and message["output"].get("data"):
                    raise RequestFailedError(words_of_status.strip())
                return
        raise RequestFailedError("the stream ended before the text was explored")

    async def _messages(self) -> AsyncIterator[dict[str, Any]]:
        parameters = {"session_hash": self.session}
        async with self.http.stream("GET", "/gradio_api/queue/data", params=parameters) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))


async def watched(process: psutil.Process, database: Path, samples: list[tuple[float, int, int]]) -> None:
    """Resident memory of the server and size of its database, which it reads from memory, once a second."""
    while True:
        samples.append((time.monotonic(), process.memory_info().rss, database.stat().st_size))
        await asyncio.sleep(1)


def a_minute(seconds: np.ndarray, mebibytes: np.ndarray) -> float:
    """Slope of a line through samples, in MiB a minute."""
    return round(60 * float(np.polyfit(seconds, mebibytes, 1)[0]), 2) if len(seconds) > 2 else 0.0


def spread(times: list[float]) -> dict[str, float]:
    """Number, median, 95th percentile and maximum of some seconds."""
    return {
        "requests": len(times),
        "median": round(float(np.median(times)), 4),
        "p95": round(float(np.percentile(times, 95)), 4),
        "max": round(max(times), 4),
    }


async def measured(
    page: Served, database: Path, run_id: str, layers: list[int], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Times, failures and memory of one client and then of all."""
    async with httpx.AsyncClient(base_url=page.address, timeout=DEADLINE) as http:
        config = (await http.get("/config")).json()
    samples: list[tuple[float, int, int]] = []
    watch = asyncio.create_task(watched(psutil.Process(page.pid), database, samples))
    result: dict[str, Any] = {}
    for name, clients, seconds in (("one", 1, ALONE), ("all", arguments.clients, 60 * arguments.minutes)):
        load, start = Load(page.address, run_id, layers, config), time.monotonic()
        await asyncio.gather(*(Client(load, seed).stay(start + seconds) for seed in range(clients)))
        memory = np.array([rss for at, rss, _ in samples if at >= start]) / 2**20
        calm = np.array([(at, rss / 2**20, size / 2**20) for at, rss, size in samples if at >= start + seconds - CALM])
        result[name] = {
            "clients": clients,
            "seconds": round(time.monotonic() - start),
            "times": {kind: spread(times) for kind, times in sorted(load.times.items())},
            "failures": dict(load.failures),
            "memory_mib": {
                "most": round(float(memory.max())),
                "end": round(float(memory[-1])),
                "mib_a_minute_at_the_end": a_minute(calm[:, 0], calm[:, 1]),
            },
            "database_mib": {
                "end": round(float(calm[-1, 2]), 1),
                "mib_a_minute_at_the_end": a_minute(calm[:, 0], calm[:, 2]),
            },
        }
        print(json.dumps(result[name], indent=2), flush=True)
    watch.cancel()
    return result


def run(arguments: argparse.Namespace) -> None:
    """Measure, and write the result."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "runs.duckdb"
        service = Service(database)
        run_id = analyze(service, all_samples(), AnalyzeRequest(max_tokens=1000, repeats=1))
        layers = load_run(service.database, run_id)["layer_ids"]
        with served(database, PORT) as page:
            result = asyncio.run(measured(page, database, run_id, layers, arguments))
            log = page.log.read_text()
    problems = [line for line in log.splitlines() if "Error" in line or "Traceback" in line]
    print(f"server's log: {len(problems)} lines of problems", *problems[:10], sep="\n")
    result = {"machine": machine(), **result}
    result["memory_ratio"] = round(result["all"]["memory_mib"]["most"] / result["one"]["memory_mib"]["most"], 3)
    Path(arguments.out).write_text(json.dumps(result, indent=2) + "\n")
    print(f"memory of all over one: {result['memory_ratio']}")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="JSON file")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    run(arguments)


if __name__ == "__main__":
    main()
