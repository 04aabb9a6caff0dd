"""The base of the benchmarks' configurations, and the types of options that several have."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

import tyro

from everlight.checks import Between
from everlight_data.errors import DataError
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

    @property
    def has_features(self) -> bool:
        """True if the option `--features`, which not every benchmark has, replaces the images."""
        return getattr(self, "features", None) is not None

    @property
    def replaced_by_features(self) -> tuple[str, ...]:
        """Options of images and networks that are not read where features replace the images."""
        return ()

    def check_method_names(self, names: Sequence[str]) -> None:
        """Refuse options for single methods that are none of these names.

        Most benchmarks have no such option.

        Raises:
          DataError: the message has the option and the nearest names.
        """

    def is_replaced(self, option: str, has_rows: bool = False) -> bool:
        """Return True if features replace an option, or the part that it belongs to.

        Args:
          option: name of the option, without `--`.
          has_rows: whether the data are rows of numbers, which are features without `--features`.
        """
        replaces = has_rows or self.has_features
        return replaces and option.partition(".")[0] in self.replaced_by_features

    def refuse_replaced(self, options: Collection[str], has_rows: bool = False) -> None:
        """Refuse options that features replace; see `is_replaced`.

        Raises:
          DataError: the message has the first of them and the remedy.
        """
        source = "rows of numbers" if has_rows else "--features"
        for option in options:
            if self.is_replaced(option, has_rows):
                rate = option == "learning-rate"
                remedy = "give --features-learning-rate" if rate else "leave it out"
                raise DataError(f"--{option} is not read with {source}; {remedy}")

    def fingerprint(self) -> dict[str, Any]:
        """Return the values that identify a run as JSON holds them, those of parts in mappings."""

        def identifying(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
            return {name: value for name, value in fields if name not in self.not_identifying}

        return as_json(asdict(self, dict_factory=identifying))
