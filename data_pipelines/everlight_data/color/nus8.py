"""Row of NUS-8's official release; its reader, `nus`, needs JAX."""

from everlight_data.sets.data_set import DataSet

DATA_SETS = {
    "nus8": DataSet(
        "NUS-8: the official release, 16-bit PNG, for paper two-camera --preset nus-paper",
        files=("nus8/NikonD5200", "nus8/Canon1DsMkIII"),
        owner="Cheng, Prasad and Brown 2014",
        source="PNG, ground truth and CHECKER archives of both cameras, unpacked",
    )
}
