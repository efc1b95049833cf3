"""Triton's compiler without a GPU: what kernels become for one, and whether calls that share a compiled kernel may.

For a process of its own, in which Triton does not interpret. Prints one JSON object.

    python -m tests.runtime.attention.cuda.compiler calls SEED
    python -m tests.runtime.attention.cuda.compiler kernels
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from focus_runtime.attention.cuda import grouped
from focus_runtime.attention.cuda.decoding import Sinks, decide_on_gpu, decode_on_gpu
from focus_runtime.attention.cuda.grouped import Heads, grouped_attention
from focus_runtime.attention.cuda.pairwise import pairwise_attention
from focus_runtime.attention.cuda.sorting import sort_by_group
from focus_runtime.attention.cuda.tiles import HeadFactors, HeadSets, multiplied_on_gpu
from focus_runtime.attention.reference import Scoring
from focus_runtime.gpu import Launches, alike, compile_options, kinds_of
from focus_runtime.mask.rule import Extent, PairRule
from focus_runtime.routing.on_gpu import TextSinks, route_on_gpu

GROWTH = (1024, 8192)
RULES = ((PairRule(128, 4), None), (PairRule(64, 4, 256, GROWTH), 3.0))  # with no softcap, and one
TARGETS = ((80, 128), (80, 256), (90, 64), (120, 256))  # capability and head size: an A100, an H100, an RTX 5090
COPIES_FROM = WHOLE = 90
LARGE = (90, 100, 103)  # whose multiprocessors share more than 163 KiB and have a copy engine
ROUNDS = 5
MORE = (0, 1, 8, 16)  # numbers between one row and the next
BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Compiler:
    """Stands for Triton's driver: a device is numbered by its compute capability."""

    capability = 90

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, _: int) -> int:
        return 0


class Inputs:
    """Tensors of one layer, on the CPU: a compiler looks at their types and addresses alone."""

    def __init__(self, dtype: torch.dtype, size: int, length: int, *, heads: int = 6, kv_heads: int = 3) -> None:
        self.dtype, self.size, self.length, self.heads, self.kv_heads = dtype, size, length, heads, kv_heads

    def whole(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value = (self.rows(self.length, count) for count in (self.heads, self.kv_heads, self.kv_heads))
        return query, key, value

    def step(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.rows(1, self.heads), *self.whole()[1:]

    def rows(self, tokens: int, heads: int) -> torch.Tensor:
        """(1, heads, tokens, D), laid out as models hand it over."""
        return torch.zeros(1, tokens, heads, self.size, dtype=self.dtype).transpose(1, 2)

    def numbers(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.int32)

    def sets(self, count: int) -> torch.Tensor:
        return torch.ones(count, 1, self.length, dtype=torch.int64)

    def factors(self) -> HeadFactors:
        return HeadFactors(torch.ones(self.heads), torch.ones(self.heads), torch.ones(self.heads), GROWTH)


def attention_calls(given: Inputs, rule: PairRule, scoring: Scoring, *, copied: bool) -> Iterator[Callable[[], Any]]:
    """Every kernel of attention, with and without what it may be given."""
    whole, member = given.whole(), given.sets(1)[0]
    by_head = HeadSets(given.numbers(given.heads), given.numbers(given.heads))
    some = Heads(given.numbers(2), given.numbers(given.heads))
    extents = {
        "one": Extent(8, 1, uniform=True),
        "two": Extent(8, 2, uniform=True),
        "beyond": Extent(8, 1, uniform=False, beyond=True),
    }
    yield lambda: pairwise_attention(*whole, given.sets(1), rule, scoring, num_groups=8)
    yield lambda: pairwise_attention(*whole, given.sets(1), rule, scoring, num_groups=8, lse=torch.zeros(1))
    yield lambda: pairwise_attention(
        *whole, given.sets(2), rule, scoring, num_groups=40, heads=by_head, factors=given.factors()
    )
    for extent in extents.values():
        yield lambda e=extent: grouped_attention(*whole, member, rule, scoring, extent=e, copied=False)
        if copied and not extent.beyond:
            yield lambda e=extent: grouped_attention(*whole, member, rule, scoring, extent=e, copied=True)
    yield lambda: grouped_attention(*whole, member, rule, scoring, extent=extents["beyond"], heads=some)
    yield lambda: multiplied_on_gpu(whole[0], given.factors(), given.length)
    yield lambda: multiplied_on_gpu(given.step()[0], given.factors(), given.length, 90)
    by_key, by_query = (HeadSets(given.numbers(n), given.numbers(n)) for n in (given.kv_heads, given.heads))
    for settings in (None, by_key, by_query):
        yield lambda s=settings: decode_on_gpu(*given.step(), given.sets(2), rule, scoring, s)


def routing_calls(given: Inputs) -> Iterator[Callable[[], Any]]:
    """Every kernel that decides groups."""
    width, length = given.heads * given.size, given.length
    hidden, weights, potential = torch.zeros(1, length, width, dtype=given.dtype), torch.zeros(width, 8), torch.zeros(8)
    known = torch.zeros(1, length, dtype=torch.bool)
    sinks = TextSinks(hidden[:, 0].contiguous(), known, 0.6, 4, torch.zeros(1, dtype=torch.int64))
    yield lambda: route_on_gpu(hidden, weights, potential, (1,))
    yield lambda: route_on_gpu(hidden, weights, potential, (2, 0, 1), sinks)
    many = torch.ones(1, 16 * length, dtype=torch.int64)
    yield lambda: sort_by_group(many, Extent(8, 2, uniform=True))
    new, query, groups = hidden[:, :1].contiguous(), given.step()[0], given.sets(2)
    yield lambda: decide_on_gpu(new, weights, potential, groups, length - 1, (1, 2), query)
    first = Sinks(known[:, :1].contiguous(), new[:, 0], 0.6)
    yield lambda: decide_on_gpu(
        new, weights, potential, groups, length - 1, (1, 2), query, sinks=first, factors=given.factors()
    )


def tiled_calls(given: Inputs, rule: PairRule, scoring: Scoring, *, copied: bool) -> Iterator[Callable[[], Any]]:
    """The kernels whose tiles depend on the GPU."""
    whole, member, extent = given.whole(), given.sets(1)[0], Extent(8, 2, uniform=True)
    yield lambda: grouped_attention(*whole, member, rule, scoring, extent=extent, copied=False)
    if copied:
        yield lambda: grouped_attention(*whole, member, rule, scoring, extent=extent, copied=True)


def every_call(given: Inputs) -> Iterator[Callable[[], Any]]:
    """Every kernel, plain and with all that it may be given."""
    for rule, softcap in RULES:
        yield from attention_calls(given, rule, Scoring(0.125, softcap), copied=True)
    yield from routing_calls(given)


def compiled(compiler: Compiler) -> list[dict[str, Any]]:
    """What each kernel takes of a GPU: registers, bytes a program shares, bytes of a thread that left the registers."""
    found: dict[tuple[int, str], dict[str, Any]] = {}

    def compile_only(
        self: Launches,
        name: str,
        kernel: Any,
        grid: Any,
        arguments: Any,
        warps: int,
        stages: int,
        registers: int | None = None,
    ) -> None:
        made = kernel.warmup(*arguments, grid=grid, **compile_options(warps, stages, registers))
        key = (compiler.capability, made.hash)
        if key not in found:
            row = {"capability": compiler.capability, "kernel": kernel.__name__, "name": name, "warps": warps}
            own = {"shared": made.metadata.shared, "kinds": kinds_of(made)}
            found[key] = row | own | resources(made.asm["cubin"])

    Launches.run = compile_only  # type: ignore[method-assign]
    rule, softcap = RULES[-1]
    for compiler.capability, size in TARGETS:
        grouped._takes_large_tiles = lambda _: compiler.capability in LARGE
        alike.cache_clear()  # plans know nothing of the capability
        given = Inputs(torch.bfloat16, size, 300)
        scoring, copied = Scoring(0.125, softcap), compiler.capability >= COPIES_FROM
        if compiler.capability == WHOLE:
            calls = (*attention_calls(given, rule, scoring, copied=copied), *routing_calls(given))
        else:
            calls = tuple(tiled_calls(given, rule, scoring, copied=copied))
        for call in calls:
            call()
    return list(found.values())


def resources(cubin: bytes) -> dict[str, int]:
    """Registers and spilled bytes of a thread, as the tool that comes with Triton says."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [BINARIES / "cuobjdump", "-res-usage", file.name]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", words)}
    return {"registers": usage["REG"], "spilled": usage["STACK"] + usage["LOCAL"]}


def mistaken(compiler: Compiler, seed: int) -> tuple[int, list[str]]:
    """Launches of calls that are alike by their facts, and those for which Triton would compile another kernel."""
    compiler.capability = 90
    specialised: dict[tuple[Launches, str], str] = {}
    launches, wrong = 0, []

    def compare(
        self: Launches, name: str, kernel: Any, grid: Any, arguments: Any, warps: int, stages: int, *_: Any
    ) -> None:
        nonlocal launches
        launches += 1
        binder = kernel.device_caches[compiler.capability][-1]
        own = str(binder(*arguments, **compile_options(warps, stages))[1:])
        first = specialised.setdefault((self, name), own)
        if first != own:
            wrong.append(f"{kernel.__name__} {name}: {first} and {own}")

    Launches.run = compare  # type: ignore[method-assign]
    drawn = random.Random(seed)
    for _ in range(ROUNDS):  # each time the same shapes, twice as far apart, and three times anywhere
        length = drawn.choice([1, 2, 15, 16, 17, 48, 100, 128, 129, 256, 300, 1000])
        heads, kv_heads = drawn.choice([(6, 3), (3, 3), (9, 3)])
        size, dtype = drawn.choice([16, 40, 64, 128]), drawn.choice([torch.bfloat16, torch.float16])
        for more in drawn.sample(MORE, 2):
            given = Strided(dtype, size, length, heads=heads, kv_heads=kv_heads, drawn=drawn, more=more)
            for call in [call for _ in range(3) for call in every_call(given)]:
                call()
    return launches, wrong


class Strided(Inputs):
    """The same where tensors begin anywhere and rows are any distance apart, as views of others are."""

    def __init__(self, *given: Any, drawn: random.Random, more: int, **named: Any) -> None:
        super().__init__(*given, **named)
        self.drawn, self.more = drawn, more

    def rows(self, tokens: int, heads: int) -> torch.Tensor:
        before, width = self.drawn.choice([0, 0, 1, 8]), heads * self.size + self.more
        flat = torch.zeros(before + tokens * width, dtype=self.dtype)[before:]
        return flat.as_strided((1, heads, tokens, self.size), (tokens * width, self.size, width, 1))

    def sets(self, count: int) -> torch.Tensor:
        before = self.drawn.choice([0, 0, 1])
        return torch.ones(count, 1, self.length + before, dtype=torch.int64)[..., before:]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["calls", "kernels"], help="compare calls, or compile every kernel")
    parser.add_argument("seed", type=int, nargs="?", help="of the calls that are compared")
    chosen, compiler = parser.parse_args(), Compiler()
    driver.set_active(compiler)
    with torch.no_grad():
        if chosen.what == "kernels":
            print(json.dumps(compiled(compiler)))
        else:
            launches, wrong = mistaken(compiler, chosen.seed)
            print(json.dumps({"launches": launches, "mistaken": wrong}))


if __name__ == "__main__":
    main()
