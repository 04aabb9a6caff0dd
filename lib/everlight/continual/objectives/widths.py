"""Refusal of networks whose outputs do not fit a benchmark's classes."""

from jaxtyping import Array, Bool, Float

from everlight.errors import ArgumentError


def refuse_other_widths(logits: Float[Array, "b o"], among: Bool[Array, "*b c"]) -> None:
    """Refuse logits of another number than that of the classes.

    Args:
      logits: the network's outputs, `[b, o]`.
      among: the classes that count, `[c]`, or those of each sample, `[b, c]`.

    Raises:
      ValueError: while tracing, the numbers differ.
    """
    outputs, classes = logits.shape[1], among.shape[-1]
    if outputs != classes:
        raise ArgumentError(
            f"the network has {outputs} outputs and the tasks have {classes} classes; give it "
            f"{classes} outputs"
        )
