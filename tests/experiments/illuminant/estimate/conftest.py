"""A fixture: the network that `everlight illuminant estimate` loads."""

import pytest

from everlight_experiments.illuminant.estimate import command
from tests.illuminant.closed_form_net import (
    ClosedFormNet,
)


@pytest.fixture
def use_net(monkeypatch):
    """Return a function that sets the network; at first it is the one in closed form."""

    def use(net):
        monkeypatch.setattr(command, "load_any_model", lambda path: net)

    use(ClosedFormNet())
    return use
