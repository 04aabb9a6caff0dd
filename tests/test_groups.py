"""Tests of a group run one after another on one worker, on which the suite's speed depends."""

import os

import pytest


@pytest.mark.xdist_group("kept together")
def test_groups_of_tests_are_kept_together(request):
    """Pytest 9.2 with pytest-xdist 3.8 drops groups: programs are compiled once for every test."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process; groups are for several")
    assert request.node.nodeid.endswith("@kept together")


def test_a_file_is_a_group_apart_from_files_of_its_name_elsewhere(request):
    mark = request.node.get_closest_marker("xdist_group")
    assert mark.args == ("tests/test_groups.py",)
