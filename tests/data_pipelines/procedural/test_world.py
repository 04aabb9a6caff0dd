"""The procedural world: its ids, its outlines against closed forms, and its difficulty."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.base import Setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import run_sequence
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.naive import naive
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios.class_incremental import class_incremental, equal_tasks
from everlight_data.errors import DataError
from everlight_data.procedural import shapes
from everlight_data.procedural.render import Ids, World, render
from everlight_data.procedural.world import (
    class_names,
    illuminant_colors,
    load_procedural,
    render_frames,
    superclass_of,
)
from everlight_data.sets.image_set import PerClass, shrink_images

WORLD = World(superclasses=5, subclasses=4)
SMOOTH = WORLD._replace(noise=0.0)


def frames_of(world, subclass, instance, session, frame):
    ids = np.broadcast_arrays(*np.atleast_1d(subclass, instance, session, frame))
    return render_frames(world, *ids)


def mean_difference(first, second):
    return np.abs(first.astype(float) - second).mean()


# ---- Frames and their ids


def test_frames_are_images_and_each_id_changes_them():
    base = {"subclass": 7, "instance": 3, "session": 5, "frame": 2}
    image = frames_of(SMOOTH, **base)
    assert image.shape == (1, 32, 32, 3)
    assert image.dtype == np.uint8
    assert image.std() > 10
    for name in base:
        other = frames_of(SMOOTH, **(base | {name: base[name] + 1}))
        assert mean_difference(image, other) > 0.3, name


def test_a_frame_alone_is_the_frame_in_a_block_and_across_blocks():
    """262 frames are more than one block of 256."""
    number = np.arange(262)
    ids = (number % 20, number, number % 7, number // 3)
    block = render_frames(WORLD, *ids)
    np.testing.assert_array_equal(render_frames(WORLD, *ids), block)
    for chosen in (0, 100, 255, 256, 261):
        single = render_frames(WORLD, *(part[[chosen]] for part in ids))
        np.testing.assert_array_equal(single[0], block[chosen])


def test_the_pure_function_renders_what_the_blocks_render():
    """In one program XLA rounds differently, by at most a level."""
    ids = Ids(*(np.array(part) for part in ([1, 9, 17], [0, 4, 2], [3, 1, 8], [0, 30, 60])))
    one = functools.partial(render, size=32)
    images = jax.jit(jax.vmap(one, (None, None, 0)))(WORLD, illuminant_colors(), ids)
    assert np.all((images >= 0) & (images <= 1))
    np.testing.assert_allclose(255 * images, render_frames(WORLD, *ids), atol=0.51 + 0.1)


def test_another_seed_is_another_world():
    number = np.arange(20)
    first, second = (frames_of(SMOOTH._replace(seed=seed), number, 0, number, 0) for seed in (0, 1))
    assert mean_difference(first, second) > 10
    assert class_names(SMOOTH) != class_names(SMOOTH._replace(seed=1))


def test_noise_has_the_stated_deviation_and_is_redrawn_for_every_frame():
    """Greys far from black and white are not clipped: the noise is 0.2 of 255."""
    noisy = SMOOTH._replace(noise=0.25, background=0.0, illuminant=0.0)
    still = {"subclass": 0, "instance": 0, "session": np.arange(40)}
    clean = frames_of(noisy._replace(noise=0.0), **still, frame=0).astype(float)
    moved = noisy._replace(pose=0.0)
    first, second = (frames_of(moved, **still, frame=frame).astype(float) for frame in (0, 1))
    corner = (slice(None), slice(0, 4), slice(0, 4))
    noise = (first - clean)[corner]
    expected = 0.2 * 0.25 * 255
    assert abs(noise.mean()) < 1.0
    assert noise.std() == pytest.approx(expected, rel=0.05)
    correlation = np.corrcoef(noise.ravel(), (second - clean)[corner].ravel())[0, 1]
    assert abs(correlation) < 0.1
    # Channels share a random word but not a number.
    assert np.abs(np.corrcoef(noise.reshape(-1, 3).T) - np.eye(3)).max() < 0.15


def test_sessions_are_temporally_coherent():
    """Neighbouring frames differ by some levels, frames of different sessions by many more."""
    frame = np.arange(40)
    paths = [frames_of(SMOOTH, 6, 0, session, frame) for session in range(4)]
    steps = [mean_difference(path[1:], path[:-1]) for path in paths]
    apart = [mean_difference(paths[i], paths[j]) for i in range(4) for j in range(i)]
    assert min(steps) > 0.1, "the object moves"
    assert 5 * max(steps) < min(apart)


def test_a_session_is_one_background_and_illuminant_whatever_object_is_in_it():
    corner = (slice(None), slice(0, 3), slice(0, 3))
    placed = SMOOTH._replace(pose=0.0)
    shared = frames_of(placed, np.arange(20), np.arange(20), 4, 0)[corner]
    other = frames_of(placed, np.arange(20), np.arange(20), np.arange(20), 0)[corner]
    assert np.ptp(shared.astype(int), axis=0).max() <= 4  # an object's shadow may reach it
    assert np.ptp(other.astype(int), axis=0).min() > 40


def test_sizes_show_the_same_scene():
    """Images are averaged down to 16 x 16, so that only antialiasing differs."""
    number = np.arange(20)
    small, large = (
        frames_of(SMOOTH._replace(size=side), number, 0, number, 0)
        .astype(float)
        .reshape(20, 16, side // 16, 16, side // 16, 3)
        .mean((2, 4))
        for side in (32, 80)
    )
    assert mean_difference(small, large) < 2
    assert mean_difference(small, np.roll(large, 1, axis=1)) > 4


# ---- Classes


def test_subclasses_of_a_superclass_share_no_texture_with_a_palette():
    world = World(superclasses=3, subclasses=100)
    names = np.array([name.split() for name in class_names(world)]).reshape(3, 100, 3)
    for superclass, shape in enumerate(shapes.SHAPES[:3]):
        assert set(names[superclass, :, 2]) == {shape}
        assert len({tuple(name) for name in names[superclass].tolist()}) == 100
        assert set(names[superclass, :10, 0]) == set(shapes.TEXTURES)
        assert set(names[superclass, :10, 1]) == set(shapes.PALETTES)
    assert not np.array_equal(names[0, :, :2], names[1, :, :2])
    assert superclass_of(world, np.array([0, 99, 100, 299])).tolist() == [0, 0, 1, 2]


def test_loaded_images_are_those_of_disjoint_instances_and_sessions():
    loaded = load_procedural(WORLD, PerClass(6, 2))
    assert loaded.images.shape == (160, 32, 32, 3)
    np.testing.assert_array_equal(loaded.train_labels, np.tile(np.arange(20), 6))
    np.testing.assert_array_equal(loaded.test_labels, np.tile(np.arange(20), 2))
    assert loaded.class_names == class_names(WORLD)
    assert len(set(loaded.class_names)) == 20
    instance = np.concatenate([np.repeat([0, 2, 4, 6, 8, 10], 20), np.repeat([1, 3], 20)])
    subclass = np.tile(np.arange(20), 8)
    session = instance * 20 + subclass
    assert len(set(session)) == 160
    expected = render_frames(WORLD, subclass, instance, session, np.zeros_like(subclass))
    np.testing.assert_array_equal(loaded.images, expected)


def test_more_images_leave_the_earlier_ones_as_they_are():
    few, many = load_procedural(WORLD, PerClass(2, 1)), load_procedural(WORLD, PerClass(3, 2))
    np.testing.assert_array_equal(few.images[:40], many.images[:40])
    np.testing.assert_array_equal(few.images[40:], many.images[60:80])


# ---- Shapes, textures and colours


@given(
    st.integers(0, 2**31 - 1),
    st.integers(3, 8),
    st.floats(0.3, 1.5),
    st.integers(0, shapes.VERTICES - 8),
)
@settings(max_examples=20)
def test_distance_to_a_polygon_is_that_of_dense_points_on_it(seed, corners, radius, padding):
    """Polygons are star-shaped; a point is inside if the outline turns around it."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * (np.arange(corners) + rng.uniform(-0.3, 0.3, corners)) / corners
    reach = radius * rng.uniform(0.5, 1, corners)
    polygon = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
    padded = np.pad(polygon, ((0, padding), (0, 0)), mode="edge")
    x, y = rng.uniform(-2, 2, (2, 5, 5))
    steps = np.linspace(0, 1, 400, endpoint=False)[:, None, None]
    outline = polygon + steps * (np.roll(polygon, -1, axis=0) - polygon)
    places = np.stack([x, y], axis=-1)
    ring = np.swapaxes(outline, 0, 1).reshape(-1, 2) - places[..., None, :]
    distance = np.hypot(*np.moveaxis(ring, -1, 0)).min(axis=-1)
    complex_ring = ring[..., 0] + 1j * ring[..., 1]
    turned = np.angle(np.roll(complex_ring, -1, axis=-1) / complex_ring).sum(axis=-1)
    signed = np.where(np.abs(turned) > np.pi, -distance, distance)
    result = shapes.polygon_distance(*(jnp.asarray(part, jnp.float32) for part in (x, y, padded)))
    clear = distance > 0.02
    np.testing.assert_allclose(np.asarray(result)[clear], signed[clear], atol=2e-3)


def test_disc_and_box_have_the_areas_of_disc_and_box():
    """Rounded by r, a polygon of area A and perimeter P has A + P r + pi r² (Steiner)."""
    axis = jnp.linspace(-1.2, 1.2, 600)
    x, y = jnp.meshgrid(axis, axis)
    cell = float(axis[1] - axis[0]) ** 2

    def area(name):
        row = shapes.SHAPES.index(name)
        distance = shapes.polygon_distance(x, y, jnp.asarray(shapes.OUTLINES.vertices[row]))
        return float(jnp.sum(distance < shapes.OUTLINES.rounding[row])) * cell

    side, rounding = 0.93 * np.sqrt(2), 0.06
    square = side**2 + 4 * side * rounding + np.pi * rounding**2
    assert area("box") == pytest.approx(square, rel=3e-3)
    assert area("disc") == pytest.approx(np.pi * 0.8**2, rel=0.02)


def test_every_outline_fits_its_table_and_is_about_one_in_radius():
    radius = np.linalg.norm(shapes.OUTLINES.vertices, axis=-1).max(axis=1)
    radius += shapes.OUTLINES.rounding + shapes.OUTLINES.hollow
    assert np.all((radius > 0.7) & (radius < 1.4))
    assert shapes.OUTLINES.vertices.shape == (len(shapes.SHAPES), shapes.VERTICES, 2)


def test_wave_is_a_sine_within_six_hundredths():
    phase = np.linspace(-3, 3, 1001)
    approximate = np.asarray(shapes.wave(jnp.asarray(phase, jnp.float32)))
    assert np.abs(approximate - np.sin(2 * np.pi * phase)).max() < 0.06


def test_textures_mix_two_colors_and_differ_from_each_other():
    axis = jnp.linspace(-1, 1, 64)
    u, v = jnp.meshgrid(axis, axis)
    depth = 0.9 - jnp.hypot(u, v)
    form = jnp.array(1.5), jnp.array([0.2, 0.3]), jnp.array(0.03)
    kinds = map(jnp.array, range(len(shapes.TEXTURES)))
    drawn = np.stack([shapes.texture(kind, u, v, depth, *form) for kind in kinds])
    assert np.all((drawn >= 0) & (drawn <= 1))
    assert not drawn[shapes.TEXTURES.index("plain")].any()
    assert np.all(drawn[1:].std(axis=(1, 2)) > 0.2)
    apart = np.abs(drawn[:, None] - drawn).mean(axis=(2, 3)) + np.eye(len(shapes.TEXTURES))
    assert apart.min() > 0.15


def test_oklab_of_the_primaries():
    """In Ottosson's table linear sRGB red is (0.628, 0.225, 0.126), white (1, 0, 0)."""
    lab = jnp.array([[1.0, 0.0, 0.0], [0.62796, 0.22486, 0.12585], [0.0, 0.0, 0.0]])
    expected = [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(shapes.oklab_to_linear(lab), expected, atol=1e-3)


def test_illuminants_run_from_incandescent_to_blue_sky():
    illuminants = illuminant_colors()
    np.testing.assert_allclose(illuminants.mean(axis=1), 1, rtol=1e-5)
    ratio = illuminants[:, 0] / illuminants[:, 2]
    assert ratio.min() < 1 < 3 < ratio.max()
    assert np.isclose(illuminants, 1, atol=1e-5).all(axis=1).any(), "D65 itself is white"


# ---- Refusals


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("superclasses", 0), ("superclasses", 13), ("subclasses", 101), ("subclasses", 2.0)),
        *(("size", 31), ("size", 129), ("noise", -0.1), ("pose", float("nan"))),
        *(("illuminant", 1.5), ("seed", -1)),
    ],
)
def test_a_setting_out_of_range_is_named(name, value):
    with pytest.raises(DataError, match=rf"World\.{name}={value}"):
        load_procedural(WORLD._replace(**{name: value}), PerClass(1, 1))


@pytest.mark.parametrize("name", ["train", "test"])
def test_no_image_is_refused(name):
    with pytest.raises(DataError, match=rf"PerClass\.{name}=0"):
        load_procedural(WORLD, PerClass(1, 1)._replace(**{name: 0}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("subclass", [20], "subclass holds 20; give 0 to 19"),
        ("session", [-1], "session holds -1"),
        ("instance", [0, 1], r"instance is int64 of shape \(2,\); give 1 integer"),
        ("frame", [0.5], "frame is float64"),
    ],
)
def test_wrong_ids_are_named(name, value, message):
    ids = dict.fromkeys(("subclass", "instance", "session", "frame"), np.array([0]))
    with pytest.raises(DataError, match=message):
        render_frames(WORLD, **(ids | {name: np.array(value)}))


# ---- Difficulty


TRAIN, TEST = 100, 40


@functools.cache
def loaded():
    """Load the default difficulty, shrunk so that the test is short."""
    return shrink_images(load_procedural(WORLD, PerClass(TRAIN, TEST)), 16)


def learn(train_labels, test_labels, tasks, classes, epochs):
    """Return accuracies of a small net that learns the tasks in turn."""
    net = SmallCNN(classes, channels=(8, 16), hidden=64, dropout=(0.0, 0.0, 0.2))

    def apply(params, batch_stats, inputs, train, key):
        rngs = {"dropout": key} if train else None
        return net.apply({"params": params}, inputs, train, rngs=rngs), batch_stats

    def build(data):
        setup = Setup(
            init=lambda key: (net.init(key, jnp.zeros((1, 16, 16, 3)), False)["params"], {}),
            apply=apply,
            objective=softmax_objective(),
            optimizer=optax.adam(3e-3),
            gather=lambda index, key: (data[index].astype(jnp.float32) - 128) / 64,
        )
        return setup, naive(setup)

    sequence = class_incremental(train_labels, test_labels, tasks, classes)
    protocol = Protocol(epochs=epochs, batch_size=32)
    program = jax.jit(lambda d, s, k: run_sequence(Run(build, protocol, d, s, k)).evaluation)
    return program(jnp.asarray(loaded().images), sequence, jax.random.key(0))


@pytest.mark.slow
def test_joint_training_reaches_70_to_90_percent_and_superclasses_are_easier():
    data = loaded()
    labels = data.train_labels, data.test_labels
    subclasses = float(learn(*labels, [list(range(20))], 20, 12).class_incremental[0, 0])
    families = [superclass_of(WORLD, part) for part in labels]
    superclasses = float(learn(*families, [list(range(5))], 5, 12).class_incremental[0, 0])
    assert 0.7 < subclasses < 0.9
    assert superclasses > subclasses + 0.03


@pytest.mark.slow
def test_naive_training_forgets():
    """The five tasks have four subclasses each, of different superclasses."""
    data = loaded()
    tasks = equal_tasks(np.arange(20).reshape(5, 4).T.ravel().tolist(), 5)
    accuracy = learn(data.train_labels, data.test_labels, tasks, 20, 6)
    learned, left = np.diag(accuracy.class_incremental)[:4], accuracy.class_incremental[-1][:4]
    assert learned.min() > 0.6
    assert left.max() < 0.2
    right_after, stored = np.diag(accuracy.task_masked)[:4], accuracy.task_masked[-1][:4]
    assert stored.mean() < right_after.mean() - 0.1, "it is forgotten even with the task identity"
