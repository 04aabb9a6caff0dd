"""The base of the benchmarks' configurations, with the values that identify a run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from everlight_data.runs.descriptions import as_json


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
