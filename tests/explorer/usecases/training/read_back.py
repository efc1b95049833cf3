"""What the programs' own files say, read the way the programs read them: (step, numbers) rows and the settings."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections import defaultdict

BLOCK = 32 * 1024  # of a .wandb file, which is a log in LevelDB's format behind seven bytes of its own
WHOLE, FIRST, LAST = 1, 2, 4


def tensorboard(folder):
    """Scalars by name as [(step, value)], and texts by name, of the one training in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    [run] = folder.iterdir()
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()
    scalars = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in tags["scalars"]}
    texts = {
        name.removesuffix("/text_summary"): events.Tensors(name)[-1].tensor_proto.string_val[0].decode()
        for name in tags["tensors"]
    }
    return run.name, scalars, texts


def trackio(folder, project):
    """The same of trackio's file: name of the one run, values by name, and its settings."""
    with sqlite3.connect(folder / f"{project}.db") as connection:
        rows = connection.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        [(settings,)] = connection.execute("SELECT config FROM configs").fetchall()
    [name] = {row[0] for row in rows}
    return name, _by_name((step, json.loads(metrics)) for _, step, metrics in rows), json.loads(settings)


def wandb(folder):
    """The same of all parts of one offline run: id, values by name, settings, summary."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows, settings, summary, keys = [], {}, {}, set()
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for content in _records(path.read_bytes()):
            record = Record.FromString(content)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                keys.add(record.run.run_id)
                settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                items = _items(record.history.item)
                rows.append((items.pop("_step", record.history.step.num), items))
            elif kind == "summary":
                summary |= _items(record.summary.update)
    [key] = keys
    return key, _by_name(rows), settings, summary


def _items(items):
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def _by_name(rows):
    values = defaultdict(list)
    for step, numbers in rows:
        for name, value in numbers.items():
            values[name].append((step, value))
    return dict(values)


def _records(content):
    """Payloads of a log of records, up to the first that is not whole, as after a kill."""
    assert content[:4] == b":W&B"
    place, parts = 7, []
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        part = content[place + 7 : place + 7 + length]
        if not kind or len(part) < length:
            return
        place += 7 + length
        parts = [part] if kind in (WHOLE, FIRST) else [*parts, part]
        if kind in (WHOLE, LAST):
            yield b"".join(parts)
