"""Row of a raw file for tests, a photograph of a colour chart."""

from everlight_data.formats.originals import Original
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import copies

_FILE = "colorchart.dng"
_ORIGINAL = Original(3_906_864, "592dba160b03770752667847f60ef07e9d96c17bf841e78e2b0cb5cbc5616edd")

DATA_SETS = {
    "raw": DataSet(
        "camera raw file with a colour chart, for tests",
        files=(f"raw_samples/{_FILE}",),
        owner="syoyo/tinydngloader on GitHub, MIT",
        source=_FILE,
        size_bytes=4_000_000,
        prepare=file_by_file(copies(10_000_000, {_FILE: _ORIGINAL})),
    )
}
