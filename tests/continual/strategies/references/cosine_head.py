"""Parameters whose head has a kernel and a scale: as a layer, and by name."""

from tests.continual import small_net as net


def nested(params):
    """Return float32 parameters with the head as a layer."""
    inputs = net.as_float32(params)
    head = {"kernel": inputs.pop("kernel"), "scale": inputs.pop("scale")}
    return inputs | {"head": head}


def flat(params):
    """Return the parameters by name."""
    return {name: leaf for name, leaf in params.items() if name != "head"} | params["head"]


def learner_of(setup, params, seen):
    """Return a learner with parameters by name that has seen some classes."""
    return net.small_learner(setup, seen)._replace(params=nested(params))
