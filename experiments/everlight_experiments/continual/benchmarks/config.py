"""The base of the benchmarks' configurations, and the types of options that several have."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

import tyro

from everlight.checks import Between
from everlight.continual import Protocol
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


def part_of(option: str) -> str:
    """Return the part of a configuration that an option belongs to, or the option itself."""
    return option.partition(".")[0]


def refuse_options(options: Iterable[str], unread: Mapping[str, str]) -> None:
    """Refuse options of a user that are not read; `BenchmarkConfig.unread` has the reasons.

    Raises:
      DataError: the message has the first of them and the remedy.
    """
    for option in options:
        if reason := unread.get(option, unread.get(part_of(option))):
            raise DataError(f"--{option} is not read {reason}")


def unread_of_protocol(protocol: Protocol) -> dict[str, str]:
    """Return the options of a schedule that the protocol does not have: reason and remedy."""
    plateau = "without --plateau-factor; give this too"
    most = protocol.most_epochs
    late = any(number >= most for number in protocol.milestones)
    schedules = {
        "milestones": f"from the last of {most} epochs on; give smaller ones" if late else "",
        "plateau-patience": plateau if protocol.plateau_factor == 1 else "",
        "plateau-threshold": plateau if protocol.plateau_factor == 1 else "",
        "milestone-factor": "" if protocol.milestones else "without --milestones; give them too",
    }
    return {option: reason for option, reason in schedules.items() if reason}


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

    def unread(
        self, benchmark: str = "", settings: Collection[str] = (), has_rows: bool = False
    ) -> dict[str, str]:
        """Return the options, or parts with options, that are not read: reason and remedy by name.

        Args:
          benchmark: name of the benchmark; empty where a configuration has one alone.
          settings: names of the settings.
          has_rows: whether the data are rows of numbers, which are features without `--features`.
        """
        if not (has_rows or self.has_features):
            return {"features-learning-rate": "without --features; give --learning-rate"}
        source = "rows of numbers" if has_rows else "--features"
        replaced = dict.fromkeys(self.replaced_by_features, f"with {source}; leave it out")
        if "learning-rate" in replaced:
            replaced["learning-rate"] = f"with {source}; give --features-learning-rate"
        return replaced

    def fingerprint(self) -> dict[str, Any]:
        """Return the values that identify a run as JSON holds them, those of parts in mappings."""

        def identifying(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
            return {name: value for name, value in fields if name not in self.not_identifying}

        return as_json(asdict(self, dict_factory=identifying))
