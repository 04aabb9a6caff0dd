"""Names that a user gives: those near a wrong one."""

import pytest

from everlight_data.errors import DataError
from everlight_data.names import check_name, nearest_names


def test_the_nearest_names_come_first_whatever_their_case():
    known = ["EWC", "ER", "DER++", "joint", "SI"]
    assert nearest_names("ewc", known)[0] == "EWC"
    assert nearest_names("jiont", known) == ["joint"]
    assert nearest_names("xyz", known) == []
    check_name("method", "ER", known)
    with pytest.raises(DataError, match=r"^no method 'ewc'; did you mean 'EWC'.*There are 'EWC', "):
        check_name("method", "ewc", known)
    with pytest.raises(DataError, match=r"^no method 'xyz'\. There are 'EWC', "):
        check_name("method", "xyz", known)
