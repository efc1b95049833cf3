"""Balance the groups of a centroid file on a user's text, and write a copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from focus_explorer.errors import InputError
from focus_explorer.progress import StageBar, no_stages
from focus_explorer.usecases.centroids.files import check_new, find_centroids
from focus_explorer.usecases.centroids.fit import check_model
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.domains import gather_domains, parse_domains
from focus_runtime.text.special import DEFAULT


@dataclass(frozen=True, kw_only=True, slots=True)
class BalanceRequest:
    """What is balanced on which text.

    Attributes:
        file: a centroid file, or its name.
        text: by domain, NAME=PATH[:WEIGHT] each, or paths alone; see `parse_domains`.
        out: the new file.
        model: name of the model that the file is for.
        sequences: of all domains together, each with its share of them but at least one.
        seq_len: tokens of a sequence.
        device, dtype: as `place` takes them.
        special_tokens: "auto" where every sequence begins with what the tokenizer puts before a text, or "none".
    """

    file: str
    text: tuple[str, ...]
    out: str
    model: str
    sequences: int = 32
    seq_len: int = 1024
    device: str = "auto"
    dtype: str = "auto"
    special_tokens: str = DEFAULT


@dataclass(frozen=True, slots=True)
class Balanced:
    """A copy that was written.

    Attributes:
        sha256: of the file.
        sequences: that the groups were balanced on.
        notes: about the file and the model.
    """

    sha256: str
    sequences: int
    notes: list[str]


def balance(service: Service, request: BalanceRequest, *, bar: StageBar = no_stages) -> Balanced:
    """Write a copy of a centroid file whose groups are as large as each other on the given text.

    Args:
        service: whose model and centroid files are used.
        request: what is balanced.
        bar: opens a progress display.

    Raises:
        InputError: file, text or model cannot be used, or there is a file of that name.
    """
    from focus_runtime.files import cannot_write, check_writable
    from focus_runtime.fit.calibrate import balance_groups
    from focus_runtime.fit.domains import TextDomain
    from focus_runtime.routing.centroid_file import save_centroids

    out = Path(request.out).expanduser()
    check_new(out)
    check_writable(out, explain=cannot_write("choose another --out"))
    for name, value, least in (("--sequences", request.sequences, 1), ("--seq-len", request.seq_len, 16)):
        if value < least:
            raise InputError(f"{name} is {value}", expected=f"at least {least}")
    centroids = find_centroids(service.database, request.file)[1]
    domains = gather_domains(parse_domains(request.text, "--text", weighted=True))
    named = [TextDomain(one.name, one.texts, one.weight) for one in domains if one.name]
    plain = [text for one in domains for text in one.texts]
    with bar() as progress:
        progress("Loading the model", 0.0)
        with service.models.lease(request.model, device=request.device, dtype=request.dtype) as loaded:
            check_model(centroids, loaded)
            progress("Balancing the groups", 0.2)
            balance_groups(
                loaded.model,
                loaded.tokenizer,
                centroids,
                named or plain,
                count=request.sequences,
                length=request.seq_len,
                special_tokens=request.special_tokens,
            )
        progress("Writing the file", 0.95)
        sha256 = save_centroids(centroids, out)
    return Balanced(sha256, centroids.training["balanced"]["sequences"], centroids.warnings)
