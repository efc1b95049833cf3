"""Known vulnerabilities of the packages that deploy/requirements.lock names, from advisories.json beside this file.

    python .ci/audit.py             # without the network; ends with status 1 where a locked version is affected
    python .ci/audit.py --refresh   # asks the OSV database for every package first, and writes the list again

An advisory that is answered with a reason in advisories.json is printed, not counted.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).resolve().parent
LOCK, LIST = HERE.parent / "deploy" / "requirements.lock", HERE / "advisories.json"
OSV = "https://api.osv.dev/v1/query"
OLD_DAYS = 90  # after which the list says that it is old


def locked(text: str) -> dict[str, str]:
    """Version of every package that a lock file names, and of torch, which constraints.txt pins."""
    return {
        canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    }


def is_affected(version: str, ranges: list[dict[str, str]]) -> bool:
    """Whether a version lies in one of the ranges, each from `introduced` up to, not including, `fixed`."""
    own = Version(version)
    for each in ranges:
        begins = each["introduced"] in ("", "0") or own >= Version(each["introduced"])
        if begins and ("fixed" not in each or own < Version(each["fixed"])):
            return True
    return False


def findings(versions: dict[str, str], listed: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(package, version, advisory) of everything that affects a locked version."""
    for advisory in listed["advisories"]:
        version = versions.get(canonicalize_name(advisory["package"]))
        if version is not None and is_affected(version, advisory["ranges"]):
            yield advisory["package"], version, advisory


def ask_osv(package: str, address: str = OSV) -> dict[str, Any]:
    """What the OSV database answers about all versions of a package."""
    body = json.dumps({"package": {"name": package, "ecosystem": "PyPI"}}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def advisories_of(package: str, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The advisories of an answer, as the list keeps them."""
    for found in answer.get("vulns", []):
        if "withdrawn" in found:
            continue
        ranges = [
            each
            for affected in found.get("affected", [])
            if canonicalize_name(affected.get("package", {}).get("name", "")) == canonicalize_name(package)
            for one in affected.get("ranges", [])
            if one.get("type") == "ECOSYSTEM"
            for each in _ranges(one.get("events", []))
        ]
        ids = [found["id"], *found.get("aliases", [])]
        best = next((name for name in ids if name.startswith("CVE-")), ids[0])
        if ranges:
            yield {"package": package, "id": best, "ranges": ranges}


def _ranges(events: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    begun: str | None = None
    for event in events:
        if "introduced" in event:
            begun = event["introduced"]
        elif "fixed" in event and begun is not None:
            yield from _readable({"introduced": begun, "fixed": event["fixed"]})
            begun = None
    if begun is not None:
        yield from _readable({"introduced": begun})


def _readable(each: dict[str, str]) -> Iterator[dict[str, str]]:
    try:
        for bound in each.values():
            Version(bound)
    except InvalidVersion:  # of before there was a rule for versions
        return
    yield each


def refreshed(versions: dict[str, str], listed: dict[str, Any], ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The list with what the database knows now; answers stay with their advisories."""
    reasons = {(each["package"], each["id"]): each["answer"] for each in listed["advisories"] if "answer" in each}
    every = (each for package in sorted(versions) for each in advisories_of(package, ask(package)))
    found = {(each["package"], each["id"]): each for each in every}
    for key, reason in reasons.items():
        if key in found:
            found[key]["answer"] = reason
    today = datetime.now(UTC).date().isoformat()
    return {"source": "osv.dev", "checked": today, "advisories": [found[key] for key in sorted(found)]}


def main() -> int:
    """Print what affects the locked versions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refresh", action="store_true", help="ask the OSV database first")
    arguments = parser.parse_args()
    versions = locked(LOCK.read_text() + (HERE.parent / "constraints.txt").read_text())
    listed = json.loads(LIST.read_text())
    if arguments.refresh:
        try:
            listed = refreshed(versions, listed, ask_osv)
        except OSError as error:
            print(f"error: the OSV database cannot be reached: {error}; the list stays as it is", file=sys.stderr)
            return 2
        LIST.write_text(json.dumps(listed, indent=1) + "\n")
    age = (datetime.now(UTC).date() - datetime.fromisoformat(listed["checked"]).date()).days
    affected = list(findings(versions, listed))
    open_ones = [each for each in affected if "answer" not in each[2]]
    for package, version, advisory in affected:
        print(f"{package} {version}: {advisory['id']}" + (f" ({advisory['answer']})" if "answer" in advisory else ""))
    old = f", which is {age} days old: `make audit ARGS=--refresh`" if age > OLD_DAYS else ""
    print(
        f"{len(versions)} packages, {len(listed['advisories'])} advisories of {listed['checked']}{old}: "
        f"{len(open_ones)} affect a locked version, {len(affected) - len(open_ones)} more are answered"
    )
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
