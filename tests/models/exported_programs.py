"""Operations in the text of exported programs."""

import re


def convolutions(text):
    """Return batch groups, feature groups and kernel sides of a program's convolutions."""
    results = []
    for line in text.splitlines():
        if "stablehlo.convolution(" in line:
            groups = {name: int(n) for name, n in re.findall(r"(\w+)_group_count = (\d+)", line)}
            labels = re.search(r"x\[([^\]]*)\]->", line)[1].split(", ")
            kernel = re.search(r", tensor<([\dx]+)x\w+>\) ->", line)[1].split("x")
            sides = [int(kernel[labels.index(axis)]) for axis in ("0", "1")]
            results.append((groups["batch"], groups["feature"], sides))
    return results
