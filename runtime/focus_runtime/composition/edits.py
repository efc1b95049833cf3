"""What changes made by hand do to the groups of one layer.

Shape suffixes: B batch, T tokens, K groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch

from focus_runtime.composition.changes import Change, LinkTokens, MoveToken, SilenceGroup
from focus_runtime.errors import InputError
from focus_runtime.routing.router import Assignment, MembershipEdit, all_groups, top_k_membership


@dataclass(slots=True)
class LayerEdit:
    """Changes of one layer's groups, positions counted from the text's first token.

    Attributes:
        moves: token -> its most probable group.
        links: token -> bits that it shares with the tokens it is linked to, beyond those of the K groups.
        silenced: bit set of groups that link nothing.
    """

    moves: dict[int, int] = field(default_factory=dict)
    links: dict[int, int] = field(default_factory=dict)
    silenced: int = 0

    def applied(self, assignment: Assignment, first: int, top_k: int) -> Assignment:
        """The same groups with the changes; those of tokens in all groups stay, whatever is moved.

        Args:
            assignment: of the tokens from `first` on.
            first: position of the first token at hand.
            top_k: k of the assignment's membership.

        Raises:
            InputError: there are several texts.
        """
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
        links_T = torch.zeros(count, dtype=torch.int64)
        for token, bits in self.links.items():
            if first <= token < first + count:
                links_T[token - first] = bits
        edit = MembershipEdit(links_T.to(membership_BT.device), self.silenced)
        return replace(
            assignment,
            probabilities=probabilities_BTK,
            membership=edit.applied(membership_BT),
            uniform=False,
            beyond=False,
            edit=edit,
            by_top_k=None,
        )


def layer_edits(changes: Sequence[Change], layers: Collection[int], num_groups: int) -> dict[int, LayerEdit]:
    """Changes of groups by layer; of two that move one token the later wins.

    Args:
        changes: checked ones of any kind; those of heads are left out.
        layers: layers that run Focus.
        num_groups: K.
    """
    edits: dict[int, LayerEdit] = {}
    for change in changes:
        if isinstance(change, MoveToken):
            edits.setdefault(change.layer, LayerEdit()).moves[change.token] = change.group
        elif isinstance(change, SilenceGroup):
            edits.setdefault(change.layer, LayerEdit()).silenced |= 1 << change.group
        elif isinstance(change, LinkTokens):
            for layer in layers if change.layer is None else (change.layer,):
                _link(edits.setdefault(layer, LayerEdit()), change, num_groups)
    return edits


def _link(edit: LayerEdit, change: LinkTokens, num_groups: int) -> None:
    """Give both tokens the next bit that is free."""
    bit = 1 << max(num_groups, *(bits.bit_length() for bits in edit.links.values()), 0)
    for token in (change.query, change.key):
        edit.links[token] = edit.links.get(token, 0) | bit
