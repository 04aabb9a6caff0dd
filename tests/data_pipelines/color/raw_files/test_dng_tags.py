"""Opening a TIFF silences tifffile for its reader alone, and only while the file is open."""

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from everlight_data.color.raw_files.dng_tags import opened_tiff
from tests.dng_writer import write_dng


def test_only_reads_of_an_open_file_are_not_logged(tmp_path, caplog):
    path = write_dng(tmp_path / "a.dng", np.full((24, 24, 3), 0.5), 512, 16383)
    logger = logging.getLogger("tifffile")
    logger.warning("before")
    with opened_tiff(path), ThreadPoolExecutor(1) as pool:
        logger.warning("inside")
        pool.submit(logger.warning, "of another thread").result()
    logger.warning("after")
    assert caplog.messages == ["before", "of another thread", "after"]
