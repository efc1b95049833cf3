"""Changes made to a run by hand: what a user asks "what if" about.

Each is one short text, the same on the page, on the command line and in the database:

    move:12:163:B        in layer 12, token 163 belongs to group B
    see:12:163:1         in layer 12, token 163 sees token 1; see:all:163:1 in every layer
    silence:12:B         in layer 12, group B links nothing: its tokens see near ones, sinks and their other groups
    full:12  full:12:0   full attention in layer 12, or in its key-value head 0
    k:12=2   k:12:0=2    another top-k; heads that have full attention keep it unless they are named
    window:12=256        another window
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from focus_runtime.budget import HeadCounts, HeadException, HeadSetting, heads_of, query_settings, to_budget
from focus_runtime.config import MAX_GROUPS, FocusConfig
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.mask.rule import group_label, group_number

if TYPE_CHECKING:
    from focus_runtime.routing.router import Assignment

EXPECTED = "one such as move:12:163:B, see:12:163:1, silence:12:B, full:12, full:12:0, k:12=2 or window:12:0=256"
MOST_CHANGES = 50


@dataclass(frozen=True, slots=True)
class MoveToken:
    """A token's most probable group in one layer; with k > 1 its next groups follow in their order."""

    layer: int
    token: int
    group: int

    def __str__(self) -> str:
        return f"move:{self.layer}:{self.token}:{group_label(self.group)}"


@dataclass(frozen=True, slots=True)
class LinkTokens:
    """A pair that attends in every head of one layer, or of all layers where `layer` is None."""

    layer: int | None
    query: int
    key: int

    def __str__(self) -> str:
        return f"see:{'all' if self.layer is None else self.layer}:{self.query}:{self.key}"


@dataclass(frozen=True, slots=True)
class SilenceGroup:
    """A group of one layer that links no tokens."""

    layer: int
    group: int

    def __str__(self) -> str:
        return f"silence:{self.layer}:{group_label(self.group)}"


@dataclass(frozen=True, slots=True)
class ChangeHeads:
    """Full attention, another top-k or another window in a layer or one key-value head of it."""

    exception: HeadException

    @property
    def layer(self) -> int:
        return self.exception.layer

    def __str__(self) -> str:
        entry = self.exception
        place = str(entry.layer) if entry.head is None else f"{entry.layer}:{entry.head}"
        if entry.full:
            return f"full:{place}"
        return f"k:{place}={entry.top_k}" if entry.top_k is not None else f"window:{place}={entry.window}"


Change = MoveToken | LinkTokens | SilenceGroup | ChangeHeads

_FORMS = (
    (r"move:(\d{1,9}):(\d{1,9}):(\w{1,3})", lambda a, b, c: MoveToken(int(a), int(b), group_number(c))),
    (r"see:(\d{1,9}):(\d{1,9}):(\d{1,9})", lambda a, b, c: LinkTokens(int(a), int(b), int(c))),
    (r"see:all:(\d{1,9}):(\d{1,9})", lambda b, c: LinkTokens(None, int(b), int(c))),
    (r"silence:(\d{1,9}):(\w{1,3})", lambda a, b: SilenceGroup(int(a), group_number(b))),
    (r"full:(\d{1,9})(?::(\d{1,9}))?", lambda a, b: ChangeHeads(_exception(a, b, full=True))),
    (r"k:(\d{1,9})(?::(\d{1,9}))?=(\d{1,9})", lambda a, b, n: ChangeHeads(_exception(a, b, top_k=int(n)))),
    (r"window:(\d{1,9})(?::(\d{1,9}))?=(\d{1,9})", lambda a, b, n: ChangeHeads(_exception(a, b, window=int(n)))),
)


def _exception(layer: str, head: str | None, **settings: int | bool) -> HeadException:
    return HeadException(layer=int(layer), head=None if head is None else int(head), **settings)  # type: ignore[arg-type]


def read_changes(texts: Iterable[str]) -> tuple[Change, ...]:
    """Changes from their texts; ConfigError for a text that is no change, and for too many."""
    changes: list[Change] = []
    for text in texts:
        matches = ((re.fullmatch(form, text.strip()), make) for form, make in _FORMS)
        read = next((make(*match.groups()) for match, make in matches if match), None)
        if read is None:
            raise ConfigError(f"{text!r} is no change", expected=EXPECTED)
        changes.append(read)
    if len(changes) > MOST_CHANGES:
        raise ConfigError(f"there are {len(changes)} changes", expected=f"at most {MOST_CHANGES}")
    return tuple(changes)


def last_token(change: Change) -> int:
    """Position of the last token that a change names; 0 where it names none."""
    return max(_tokens(change), default=0)


def _tokens(change: Change) -> tuple[int, ...]:
    if isinstance(change, MoveToken):
        return (change.token,)
    return (change.query, change.key) if isinstance(change, LinkTokens) else ()


def check_changes(
    changes: Sequence[Change], config: FocusConfig, num_tokens: int, layers: Collection[int], counts: HeadCounts
) -> None:
    """Refuse changes that are impossible together for a run of `num_tokens` tokens in which `layers` run Focus."""
    for change in changes:
        _check_layer(change, config, layers, counts)
        if isinstance(change, MoveToken | SilenceGroup) and change.group >= config.num_groups:
            raise InputError(
                f"{change}: there is no group {group_label(change.group)}",
                expected=f"A to {group_label(config.num_groups - 1)}",
            )
        for token in _tokens(change):
            if token >= num_tokens:
                raise InputError(f"{change}: there is no token {token:,}", expected=f"0 to {num_tokens - 1:,}")
        if isinstance(change, LinkTokens) and change.key > change.query:
            raise InputError(
                f"{change}: a token cannot see a later one", expected="the later token first, then the one it sees"
            )
        if isinstance(change, ChangeHeads) and (change.exception.top_k or 1) > config.num_groups:
            raise InputError(f"{change}: there are {config.num_groups} groups", expected=f"k up to {config.num_groups}")
    room = MAX_GROUPS - config.num_groups  # bits that the groups leave
    for layer in layers:
        links = sum(isinstance(change, LinkTokens) and change.layer in (None, layer) for change in changes)
        if links > room:
            raise InputError(f"{links} links in layer {layer}", expected=f"at most {room} in one layer")


def _check_layer(change: Change, config: FocusConfig, layers: Collection[int], counts: HeadCounts) -> None:
    if change.layer is not None and change.layer not in layers:
        raise InputError(
            f"{change}: layer {change.layer} does not run Focus",
            expected=f"a layer from {min(layers)} to {max(layers)} that does",
        )
    if isinstance(change, ChangeHeads):
        head = change.exception.head
        if head is not None and head >= counts.key:
            raise InputError(
                f"{change}: there is no key-value head {head}", expected=f"0 to {counts.key - 1}", fix="count from 0"
            )
    elif change.layer is not None and all(group.setting.full for group in config.head_groups(change.layer, counts)):
        raise InputError(
            f"{change}: every head of layer {change.layer} has full attention, which no group changes",
            fix="take another layer",
        )


def changed_budget(config: FocusConfig, changes: Iterable[Change], counts: HeadCounts) -> tuple[HeadException, ...]:
    """The budget of a configuration with settings of heads changed; later changes win.

    Heads with full attention keep it where k or window of their whole layer is changed.
    """
    usual = HeadSetting(config.top_k, config.window)
    touched = [change.exception for change in changes if isinstance(change, ChangeHeads)]
    layers = {entry.layer for entry in touched}
    settings = {
        (layer, head): setting
        for layer in layers
        for head, setting in enumerate(query_settings(config.head_groups(layer, counts), counts))
    }
    for entry in touched:
        for head in heads_of(entry, counts):
            before = settings[entry.layer, head]
            if not before.full or entry.full or entry.head is not None:
                # a head without full attention again has what heads usually have
                settings[entry.layer, head] = entry.applied(usual if before.full else before)
    untouched = tuple(entry for entry in config.budget if entry.layer not in layers)
    return untouched + to_budget(settings, usual, counts.shared_by)


@dataclass(slots=True)
class LayerEdit:
    """Changes of one layer's groups, positions counted from the text's first token."""

    moves: dict[int, int] = field(default_factory=dict)  # token -> its most probable group
    links: dict[int, int] = field(default_factory=dict)  # token -> bits shared with those it is linked to, from K on
    silenced: int = 0  # bit set of groups that link nothing

    def applied(self, assignment: Assignment, first: int, top_k: int) -> Assignment:
        """The same groups, of the tokens from `first` on, with the changes; tokens in all groups stay there."""
        from focus_runtime.routing.router import MembershipEdit, all_groups, top_k_membership  # the page reads changes

        probabilities_BTK, membership_BT = assignment.probabilities, assignment.membership
        batch, count = membership_BT.shape
        if batch != 1:
            raise InputError(f"changes cannot be made to {batch} texts at once", expected="one text")
        moves = {token - first: group for token, group in self.moves.items() if first <= token < first + count}
        if moves:
            probabilities_BTK = probabilities_BTK.clone()
            for token, group in moves.items():
                row_K = probabilities_BTK[0, token]
                best = int(row_K.argmax())
                row_K[[best, group]] = row_K[[group, best]]
            membership_BT = top_k_membership(probabilities_BTK.detach(), top_k)
            if assignment.everywhere is not None:
                membership_BT = membership_BT | all_groups(assignment.everywhere, probabilities_BTK.shape[-1])
        links_T = membership_BT.new_zeros(count)
        for token, bits in self.links.items():
            if first <= token < first + count:
                links_T[token - first] = bits
        edit = MembershipEdit(links_T, self.silenced)
        return replace(
            assignment,
            probabilities=probabilities_BTK,
            membership=edit.applied(membership_BT),
            exact=False,
            edit=edit,
            by_top_k=None,
        )


def layer_edits(changes: Sequence[Change], layers: Collection[int], num_groups: int) -> dict[int, LayerEdit]:
    """Changes of groups by layer, those of heads left out; of two that move one token the later wins."""
    edits: dict[int, LayerEdit] = {}
    for change in changes:
        if isinstance(change, MoveToken):
            edits.setdefault(change.layer, LayerEdit()).moves[change.token] = change.group
        elif isinstance(change, SilenceGroup):
            edits.setdefault(change.layer, LayerEdit()).silenced |= 1 << change.group
        elif isinstance(change, LinkTokens):
            for layer in layers if change.layer is None else (change.layer,):
                links = edits.setdefault(layer, LayerEdit()).links
                free = 1 << max(num_groups, *(bits.bit_length() for bits in links.values()), 0)
                for token in (change.query, change.key):
                    links[token] = links.get(token, 0) | free
    return edits
