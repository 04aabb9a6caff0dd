"""The smallest folder of raw pairs: its files are found, and none can be decoded."""

from everlight_data.color.charts.pair_files import MIN_PAIRS

CONTENT = b"no raw file"


def write_pairs(root):
    """Write the files into a new folder and return it."""
    for view in ("main", "second"):
        (root / "in" / view).mkdir(parents=True)
        for index in range(MIN_PAIRS):
            (root / "in" / view / f"IMG_{index}.dng").write_bytes(CONTENT)
    return root / "in"
