"""Tuning files of libcamera's pipelines for Raspberry Pi: their colours, read and replaced.

A file is JSON with a list of algorithms. `ct_curve` of `rpi.awb` and `rpi.nn.awb` is the camera's
locus; `ccms` of `rpi.ccm` are colour matrices by temperature (libcamera,
`src/ipa/rpi/controller/rpi`). Files are edited in place: every character outside of the replaced
lists stays.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.json_spans import Node, parse_with_spans
from everlight_data.sets.camera_tuning import ColorMatrices, TemperatureCurve, Tuning
from everlight_data.writing import written_whole

MAX_BYTES = 1_000_000
"""Limit on the size of a tuning file; those of libcamera have up to 90,000 bytes."""
BAYES, NETWORK, MATRICES = "rpi.awb", "rpi.nn.awb", "rpi.ccm"
DISABLED = "disable."
"""Beginning of the name of an algorithm that libcamera does not run."""
TARGETS = ("bcm2835", "pisp")
REMEDY = (
    "Give a tuning file of libcamera for Raspberry Pi, version 2, such as those in "
    "/usr/share/libcamera/ipa/rpi."
)
CURVE_DIGITS, _MATRIX_DIGITS = 4, 5
"""Decimals of libcamera's own files."""


def read_tuning(path: Path) -> Tuning:
    """Read a tuning file.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is no tuning file, or its colours are not what libcamera accepts.
    """
    content = read_bytes(path, MAX_BYTES, REMEDY)
    with refusing(path, REMEDY):
        return parse_tuning(path, content.decode("utf-8"))


def parse_tuning(path: Path, text: str) -> Tuning:
    """Return the tuning that a text holds.

    Raises:
      ValueError: the text is no tuning file, or its colours are not what libcamera accepts.
    """
    root = parse_with_spans(text)
    fields = _object(root, "the file")
    version, target = (_field(fields, name).value for name in ("version", "target"))
    if not _is_number(version) or version < 2 or target not in TARGETS:
        raise ValueError(f"version {version!a} and target {target!a} are not 2 and {TARGETS}")
    algorithms = _algorithms(_field(fields, "algorithms"))
    curves, sensitivities = {}, {}
    for name, algorithm in algorithms.items():
        if name in (BAYES, NETWORK) and "ct_curve" in algorithm.value:
            sensitivities[name] = _sensitivities(algorithm)
            curves[name] = _curve(algorithm, sensitivities[name])
    return Tuning(
        path,
        text,
        str(target),
        next(iter(curves.values()), None),
        _matrices(algorithms[MATRICES]) if MATRICES in algorithms else None,
        algorithms,
        sensitivities,
    )


def replace_colors(
    tuning: Tuning,
    curve: TemperatureCurve | None = None,
    matrices: ColorMatrices | None = None,
) -> str:
    """Return the text of a tuning file with another locus or other matrices.

    The `ct_curve` of `rpi.awb` and of `rpi.nn.awb` are replaced, each in the scale of its
    sensitivities, and the list `ccms`. Every other character stays.

    Raises:
      DataError: the file has no list to replace, or libcamera would not read the result.
    """
    replacements: list[tuple[Node, str]] = []
    for name in (BAYES, NETWORK) if curve is not None else ():
        if name in tuning.sensitivities:
            scaled = curve.chromaticities * tuning.sensitivities[name]
            node = tuning.algorithms[name].value["ct_curve"]
            rows = np.column_stack([curve.temperatures, scaled])
            replacements.append((node, _written_list(tuning.text, node, rows, _curve_row)))
    if curve is not None and not replacements:
        tuning.needed_curve()
    if matrices is not None:
        tuning.needed_matrices()
        node = tuning.algorithms[MATRICES].value["ccms"]
        replacements.append((node, _written_matrices(tuning.text, node, matrices)))
    text = tuning.text
    for node, written in sorted(replacements, key=lambda part: -part[0].start):
        text = text[: node.start] + written + text[node.end :]
    with refusing(tuning.path, "Give temperatures that ascend, and colours above 0."):
        parse_tuning(tuning.path, text)
    return text


def searched_temperatures(tuning: Tuning) -> tuple[float, float] | None:
    """Return the lowest and highest temperature in kelvin of the modes of white balance.

    None stands for a file without such modes.
    """
    modes = [
        mode.value
        for name in (BAYES, NETWORK)
        if name in tuning.sensitivities
        and (listed := tuning.algorithms[name].value.get("modes")) is not None
        and isinstance(listed.value, dict)
        for mode in listed.value.values()
    ]
    ends = [
        mode[end].value
        for mode in modes
        if isinstance(mode, dict)
        for end in ("lo", "hi")
        if end in mode and _is_number(mode[end].value)
    ]
    return (min(ends), max(ends)) if ends else None


def write_tuning(path: Path, text: str) -> None:
    """Write the text of a tuning file, unchanged to the byte.

    Raises:
      DataError: the file cannot be written.
    """
    with written_whole(path) as unfinished:
        unfinished.write_bytes(text.encode("utf-8"))


def _algorithms(node: Node) -> dict[str, Node]:
    """Return algorithms of colour by name, first those that run."""
    if not isinstance(node.value, list):
        raise ValueError("algorithms are not a list")
    running: dict[str, Node] = {}
    disabled: dict[str, Node] = {}
    for entry in node.value:
        for written, parameters in _object(entry, "an algorithm").items():
            name = written.removeprefix(DISABLED)
            if name in (BAYES, NETWORK, MATRICES):
                enabled = _object(parameters, name).get("enabled")
                runs = written == name and (enabled is None or enabled.value is not False)
                (running if runs else disabled)[name] = parameters
    return running | {name: node for name, node in disabled.items() if name not in running}


def _sensitivities(algorithm: Node) -> tuple[float, float]:
    red, blue = (
        _positive(algorithm.value[name], name) if name in algorithm.value else 1.0
        for name in ("sensitivity_r", "sensitivity_b")
    )
    return red, blue


def _curve(algorithm: Node, sensitivities: tuple[float, float]) -> TemperatureCurve:
    numbers = _numbers(algorithm.value["ct_curve"], "ct_curve")
    if len(numbers) % 3 or len(numbers) < 6:
        raise ValueError(f"ct_curve has {len(numbers)} numbers, not three of each of two points")
    table = numbers.reshape(-1, 3)
    _check_temperatures(table[:, 0], "ct_curve")
    if not (table > 0).all():
        raise ValueError("ct_curve has a number that is not above 0")
    return TemperatureCurve(table[:, 0], table[:, 1:] / sensitivities)


def _matrices(algorithm: Node) -> ColorMatrices:
    entries = _field(algorithm.value, "ccms").value
    if not isinstance(entries, list) or not entries:
        raise ValueError("ccms are not a list of matrices")
    fields = [_object(entry, "an entry of ccms") for entry in entries]
    temperatures = np.array([_positive(_field(entry, "ct"), "ct") for entry in fields])
    matrices = [_numbers(_field(entry, "ccm"), "ccm") for entry in fields]
    if any(len(matrix) != 9 for matrix in matrices):
        raise ValueError("a ccm has not nine numbers")
    _check_temperatures(temperatures, "ccms")
    return ColorMatrices(temperatures, np.array(matrices).reshape(-1, 3, 3))


def _object(node: Node, what: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise ValueError(f"{what} is not an object")
    return node.value


def _field(fields: Mapping[str, Node], name: str) -> Node:
    if name not in fields:
        raise ValueError(f"{name} is missing")
    return fields[name]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e12 and math.isfinite(value)


def _positive(node: Node, name: str) -> float:
    if not _is_number(node.value) or node.value <= 0:
        raise ValueError(f"{name} is {node.value!a}, not a number above 0")
    return float(node.value)


def _numbers(node: Node, name: str) -> Float[np.ndarray, "n"]:
    values = node.plain()
    if not isinstance(values, list) or not all(map(_is_number, values)):
        raise ValueError(f"{name} is not a list of numbers")
    return np.array(values, float)


def _check_temperatures(temperatures: Float[np.ndarray, "k"], name: str) -> None:
    if not (np.diff(temperatures) > 0).all():
        raise ValueError(f"temperatures of {name} do not ascend")


def _margin(text: str, place: int) -> str:
    """Return the white space before the line of a place."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _number(value: float, digits: int) -> str:
    """Return a number with at least one decimal, as libcamera's own tools write it."""
    rounded = round(float(value), digits)
    return repr(rounded + 0.0)


def _curve_row(row: Sequence[float]) -> str:
    return ", ".join([_number(row[0], 1), *(_number(value, CURVE_DIGITS) for value in row[1:])])


def _matrix_row(row: Sequence[float]) -> str:
    return ", ".join(_number(value, _MATRIX_DIGITS) for value in row)


def _written_list(text: str, node: Node, rows: Float[np.ndarray, "k 3"], write: Any) -> str:
    """Return a list of numbers with three on each line, in libcamera's indentation."""
    margin, end = _margin(text, node.start), _newline(text)
    lines = f",{end}".join(f"{margin}    {write(row)}" for row in rows)
    return f"[{end}{lines}{end}{margin}]"


def _written_matrices(text: str, node: Node, matrices: ColorMatrices) -> str:
    margin, end = _margin(text, node.start), _newline(text)
    entry, field, row = (margin + " " * spaces for spaces in (4, 8, 12))
    written = []
    for temperature, matrix in zip(*matrices, strict=True):
        lines = f",{end}".join(f"{row}{_matrix_row(values)}" for values in matrix)
        # A whole number of kelvin, as in libcamera's files.
        written.append(
            f'{entry}{{{end}{field}"ct": {round(temperature)},{end}{field}"ccm":{end}'
            f"{field}[{end}{lines}{end}{field}]{end}{entry}}}"
        )
    return f"[{end}{f',{end}'.join(written)}{end}{margin}]"
