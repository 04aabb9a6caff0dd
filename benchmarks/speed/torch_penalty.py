"""EWC's quadratic penalties of all earlier tasks in PyTorch, as two sums: everlight's form."""

from collections.abc import Iterable, Sequence

from torch import Tensor


class SummedPenalty:
    """Sum over tasks of importance times squared distance, which costs the same for any number."""

    def __init__(self):
        self.importance: list[Tensor] = []
        self.weighted_anchor: list[Tensor] = []

    def add(self, importance: Sequence[Tensor], anchor: Sequence[Tensor]) -> None:
        """Add a task's importances and the parameters at its end."""
        weighted = [weight * value for weight, value in zip(importance, anchor, strict=True)]
        if not self.importance:
            self.importance, self.weighted_anchor = list(importance), weighted
            return
        for total, part in zip(self.importance, importance, strict=True):
            total += part
        for total, part in zip(self.weighted_anchor, weighted, strict=True):
            total += part

    def distance(self, params: Iterable[Tensor]) -> Tensor | int:
        """Return the sum without its constant, which has no gradient; 0 before the first task."""
        if not self.importance:
            return 0
        parts = zip(self.importance, self.weighted_anchor, params, strict=True)
        return sum(((weight * now - 2 * pull) * now).sum() for weight, pull, now in parts)
