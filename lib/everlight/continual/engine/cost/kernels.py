"""Kernels of a program compiled for a GPU, read from its text."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

KERNELS = ("fusion", "custom-call", "copy", "sort")
"""Operations that a GPU starts as kernels; a library call counts as one."""
INSTRUCTION = re.compile(
    r"\s+(?:ROOT )?%(?P<name>\S+) = (?P<type>\(.*?\)|\S+) (?P<operation>[\w-]+)"
    r"\((?P<operands>[^)]*)\)(?P<attributes>.*)"
)
COMPUTATION = re.compile(r"(?P<entry>ENTRY )?%(?P<name>\S+) \(.*\{$")
CALLED = re.compile(r"(?:body|condition|to_apply)=%([\w.-]+)")
BRANCHES = re.compile(r"(?:true|false)_computation=%([\w.-]+)|branch_computations=\{([^}]*)\}")
ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


class Instruction(NamedTuple):
    """A line of a program's text."""

    name: str
    type: str
    operation: str
    operands: tuple[str, ...]
    attributes: str


def kernel_bytes(text: str, uncounted: str) -> list[int]:
    """Return the bytes that each kernel of a program reads and writes.

    Loops count once, however often they run, and of a condition the branch with the most kernels.
    The bytes are those of operands and results, also where a kernel reads a part of an operand.

    Args:
      text: optimized program for a GPU (`Compiled.as_text`).
      uncounted: beginning of the names of arguments whose bytes are left out, since kernels read
        a few of their rows: the data set.
    """
    computations, entry = _computations(text)

    def kernels(name: str) -> Iterator[int]:
        size: dict[str, int] = {}
        for one in computations[name]:
            operands = [size.get(operand, 0) for operand in one.operands]
            size[one.name] = _size(one, operands, uncounted)
            if one.operation.removesuffix("-start") in KERNELS:
                yield sum(operands) + size[one.name]
            elif one.operation in ("while", "call"):
                for called in CALLED.findall(one.attributes):
                    yield from kernels(called)
            elif one.operation == "conditional":
                names = re.findall(r"[\w.-]+", " ".join(map("".join, BRANCHES.findall(one[-1]))))
                yield from max((list(kernels(branch)) for branch in names), key=len)

    return list(kernels(entry))


def _computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Return a program's computations by name, and the name of the first one to run."""
    computations: dict[str, list[Instruction]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        if head := COMPUTATION.match(line):
            lines = computations[head["name"]] = []
            entry = head["name"] if head["entry"] else entry
        elif fields := INSTRUCTION.match(line):
            operands = tuple(re.findall(r"%([\w.-]+)", fields["operands"]))
            lines.append(Instruction(**fields.groupdict())._replace(operands=operands))
    return computations, entry


def _size(one: Instruction, operands: list[int], uncounted: str) -> int:
    """Return the bytes of an instruction's result."""
    if one.operation == "parameter" and f'op_name="{uncounted}' in one.attributes:
        return 0
    if one.operation == "bitcast":
        return sum(operands)
    return sum(
        math.prod(map(int, filter(None, shape.split(",")))) * int(bits or 8) // 8
        for _, bits, shape in ARRAY.findall(one.type)
    )
