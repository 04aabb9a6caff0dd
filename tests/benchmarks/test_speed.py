"""Speed cases: contestants do the same work, and times are those of the contestants."""

import equinox as eqx
import jax
import numpy as np
import pytest
from flax import nnx

from benchmarks.speed import arrays, color, growth, networks, timing
from benchmarks.speed.__main__ import CASES, main
from benchmarks.speed.picture import growth_of
from benchmarks.speed.timing import Case, Machine, Timed, table

MACHINE = Machine(bandwidth=1e10, flops=1e11)


def contestants(name):
    (case,) = CASES[name](MACHINE, small=True)
    return [run() for run in case.contestants.values()]


def test_times_are_those_of_the_contestants_and_ratios_are_taken_round_by_round(monkeypatch):
    clock = iter(np.cumsum([0, 2, 0, 2, 0, 4, 0, 8, 0, 1, 0, 3]).tolist())
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    timed = timing.measure(
        Case("counted", {"first": lambda: 0, "second": lambda: 0}, floor=None, rounds=3)
    )
    # The first takes 2, 4 and 1 seconds, the second 2, 8 and 3; medians are of these and of ratios.
    assert timed.seconds == {"first": 2, "second": 3}
    assert timed.ratios == {"first": 1, "second": 2}


def test_the_table_has_a_row_per_contestant():
    timed = Timed(
        "sums",
        {"everlight": 0.0123, "NumPy": 2.5},
        {"everlight": 1, "NumPy": 203.25},
        None,
        (0.5, 1),
    )
    assert table([timed]).splitlines()[2:] == [
        "| sums | everlight | 12.3 ms | 1.00 | – | 0.5 to 1.0 |",
        "| sums | NumPy | 2.5 s | 203.25 | – | 0.5 to 1.0 |",
    ]


def test_growth_is_relative_to_the_smallest_size():
    timed = Timed(
        "by tasks", {"tasks: 5": 2.0, "tasks: 1,000": 80.0}, {"a": 1, "b": 40}, None, (0, 0)
    )
    assert growth_of(timed) == ("tasks", [1, 200], [1, 40])
    assert growth_of(timed._replace(seconds={"everlight": 1, "PyTorch": 2}))[0] == ""


def test_the_floor_is_the_slower_of_memory_and_arithmetic():
    assert MACHINE.floor(1e10, 1e10) == 1
    assert MACHINE.floor(1e9, 1e11) == 1


def test_fits_are_equal():
    everlight, *others = contestants("fits")
    for other in others:
        np.testing.assert_allclose(everlight, other, atol=1e-4)


def test_herding_in_numpy_chooses_as_everlight_does():
    values, labels = arrays.clustered_features(classes=5, samples=60, features=16)
    everlight = arrays.everlight_herding(values, labels, 20)().reshape(5, 20)
    np.testing.assert_array_equal(everlight, arrays.numpy_herding(values, labels, 20))


def test_ranks_are_equal():
    everlight, other = contestants("fact-ranking")
    for actual, reference in zip(everlight, other, strict=True):
        np.testing.assert_array_equal(actual, reference)


def test_the_penalty_by_two_sums_has_the_gradient_of_the_sum_over_tasks():
    torch = pytest.importorskip("torch")
    from benchmarks.speed.torch_penalty import SummedPenalty

    now = [torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    tasks = [[(torch.rand_like(p), torch.randn_like(p)) for p in now] for _ in range(3)]
    listed = sum(
        (w * (p - old) ** 2).sum() for task in tasks for (w, old), p in zip(task, now, strict=True)
    )
    expected = torch.autograd.grad(listed, now)
    penalty = SummedPenalty()
    assert penalty.distance(now) == 0
    for task in tasks:
        importance, anchor = map(list, zip(*task, strict=True))
        penalty.add(importance, anchor)
    for actual, gradient in zip(
        torch.autograd.grad(penalty.distance(now), now), expected, strict=True
    ):
        torch.testing.assert_close(actual, gradient)


def test_a_picture_without_the_case_that_it_shows_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["fits", "--picture", "growth.png"])
    assert "--picture is of the case growth; name it" in capsys.readouterr().err


def test_a_program_does_not_grow_with_the_number_of_tasks():
    few, many = (growth.compiled(tasks).as_text().count(" = ") for tasks in (3, 30))
    assert abs(many - few) < 0.02 * few


def test_parameters_are_the_papers():
    counts = [sum(color.weight_counts(depth)) + 9 * depth + 2 for depth in (2, 5, 16)]
    assert counts == [200, 470, 1460]


def test_pytorchs_net_has_the_published_size_and_its_windows_are_of_the_padded_images():
    torch = pytest.importorskip("torch")
    from benchmarks.speed import torch_sequences
    from everlight.models import ReducedResNet

    net = torch_sequences.torch_net(ReducedResNet(115, 5), side=32)
    assert sum(p.numel() for p in net.parameters()) == 473_731
    images = torch.randint(1, 256, (200, 3, 6, 6), dtype=torch.uint8)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)))
    mirrored = 0
    for window, image in zip(torch_sequences.crop_and_flip(images).numpy(), padded, strict=True):
        places = [
            sign
            for row, column, sign in np.ndindex(9, 9, 2)
            if np.array_equal(
                window[..., :: 1 - 2 * sign], image[:, row : row + 6, column : column + 6]
            )
        ]
        assert places
        mirrored += places[0]
    # The number is half of 200, to five standard deviations of 7.
    assert abs(mirrored - 100) < 36


def test_resnet18_of_every_framework_has_mammoths_size():
    """PyTorch counted the weights of `reduced_resnet18`."""
    linen = jax.eval_shape(
        lambda: networks.LinenNet(20).init(jax.random.key(0), np.zeros((1, 32, 32, 3)), False)
    )["params"]
    nnx_net = nnx.eval_shape(lambda: networks.NnxNet(20, nnx.Rngs(0)))
    equinox_net, _ = eqx.nn.make_with_state(networks.EquinoxNet)(20, jax.random.key(0))
    trees = (linen, nnx.state(nnx_net, nnx.Param), eqx.filter(equinox_net, eqx.is_inexact_array))
    for tree in trees:
        assert sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(tree)) == 1_094_750
    pytest.importorskip("torch")
    from benchmarks.speed.torch_networks import torch_net

    assert sum(p.numel() for p in torch_net(20).parameters()) == 1_094_750


def test_a_case_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["herdin"])
    assert "no case 'herdin'; there are fits, nets" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_runs_at_its_least_sizes(name, capsys):
    if name.startswith("iirc-t") or name == "iirc-race":
        pytest.importorskip("iirc")
    main([name, "--small"])
    printed = capsys.readouterr().out
    assert "| everlight" in printed
    assert f"{jax.device_count()} devices" in printed
