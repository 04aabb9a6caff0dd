"""The base of the benchmarks' configurations, and the types of options that several have."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

import tyro

from everlight.checks import Between
from everlight_data.runs.descriptions import as_json
from everlight_experiments.run_folder.options import Count

SettingName = Literal["task-incremental", "class-incremental", "online"]
SETTINGS: tuple[SettingName, ...] = get_args(SettingName)
UNNAMED = tyro.conf.arg(name="")
"""Mark of a part of a configuration whose options stand without the part's name."""
Dtype = Annotated[
    Literal["float32", "bfloat16"],
    tyro.conf.arg(
        help="Data type of the network's computation; parameters, statistics and losses are "
        "float32."
    ),
]
Features = Annotated[
    str | None,
    tyro.conf.arg(
        help="Features instead of images: efficientnet-lite0 computes them, FILE.npz holds "
        "features with labels."
    ),
]
Replay = Annotated[
    Count | None,
    tyro.conf.arg(help="Samples that methods replay per step; None is the batch size."),
]
Side = Annotated[int, Between(8, 512)]


@dataclass(frozen=True)
class BenchmarkConfig:
    """Configuration of a benchmark; runs are identified by all fields but those named here."""

    not_identifying: ClassVar[tuple[str, ...]] = ("chosen",)
    """Fields, also of a configuration's parts, that change no run, or that the fingerprint has in
    another form, such as checksums of the data."""

    def fingerprint(self) -> dict[str, Any]:
        """Return the values that identify a run as JSON holds them, those of parts in mappings."""

        def identifying(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
            return {name: value for name, value in fields if name not in self.not_identifying}

        return as_json(asdict(self, dict_factory=identifying))
