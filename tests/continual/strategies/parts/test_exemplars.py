"""Exemplars of every class: at random and by herding, of one task and of all samples seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.base import Samples
from everlight.continual.strategies.parts import exemplars
from everlight.continual.strategies.parts.memory import empty_buffer
from tests.continual.draw_frequencies import assert_equal_chances
from tests.refusals import refused

CLASSES, SLOTS = 4, 3
# Class 0 has five samples, class 1 two, class 2 none and class 3 four; slots 3 and 8 are padding.
INDEX = np.array([10, 11, 12, 99, 13, 20, 21, 14, 98, 40, 41, 42, 43])
LABEL = np.array([0, 0, 0, 0, 0, 1, 1, 0, 3, 3, 3, 3, 3])
MASK = ~np.isin(INDEX, [98, 99])
SAMPLES = Samples(jnp.asarray(INDEX), jnp.asarray(LABEL[:, None]), jnp.asarray(MASK))
MEMBERS = {c: set(INDEX[MASK & (c == LABEL)].tolist()) for c in range(CLASSES)}
ALL = jnp.ones(CLASSES, bool)

random_exemplars = jax.jit(exemplars.add_random_exemplars)
herded_exemplars = jax.jit(exemplars.add_herded_exemplars)


def held(buffer, label):
    """Return the indices that are stored for a class, in their slots' order."""
    slots = buffer.index.shape[0] // CLASSES
    part = slice(label * slots, (label + 1) * slots)
    assert np.all(np.asarray(buffer.labels[part, 0])[np.asarray(buffer.mask[part])] == label)
    return np.asarray(buffer.index[part])[np.asarray(buffer.mask[part])].tolist()


def features_of(seed=2, width=4):
    return np.random.default_rng(seed).normal(size=(len(INDEX), width)) + 0.5


def fill(choice, buffer, samples=SAMPLES, classes=ALL, features=None):
    if choice == "random":
        return random_exemplars(buffer, samples, classes, jax.random.key(5))
    features = features_of() if features is None else features
    label, rank = np.divmod(np.arange(len(buffer.index)), len(buffer.index) // len(classes))
    recorded = exemplars.ExemplarBuffer(buffer, jnp.asarray(label), jnp.asarray(rank))
    inputs = recorded, samples, classes, jnp.float32(features)
    return herded_exemplars(*inputs).samples


both_choices = pytest.mark.parametrize("choice", ["random", "herded"])


@both_choices
def test_every_class_holds_its_own_samples_once(choice):
    buffer = fill(choice, empty_buffer(CLASSES * SLOTS, 1))
    for label, members in MEMBERS.items():
        result = held(buffer, label)
        assert len(result) == len(set(result)) == min(SLOTS, len(members))
        assert set(result) <= members


@both_choices
def test_a_buffer_larger_than_the_data_holds_all_of_it_and_no_more(choice):
    """20 slots per class are more than there are samples."""
    buffer = fill(choice, empty_buffer(CLASSES * 20, 1))
    assert jnp.sum(buffer.mask) == np.sum(MASK)
    for label, members in MEMBERS.items():
        assert sorted(held(buffer, label)) == sorted(members)


@both_choices
def test_other_classes_keep_their_slots_and_a_chosen_class_without_samples_loses_them(choice):
    old = Samples(
        jnp.arange(100, 112), jnp.repeat(jnp.arange(CLASSES), SLOTS)[:, None], jnp.ones(12, bool)
    )
    buffer = fill(choice, old, classes=jnp.array([True, False, True, False]))
    assert set(held(buffer, 0)) <= MEMBERS[0]
    assert held(buffer, 1) == [103, 104, 105]
    assert held(buffer, 2) == []
    assert held(buffer, 3) == [109, 110, 111]


@both_choices
@pytest.mark.parametrize("seed", range(3))
def test_padding_never_changes_the_choice(choice, seed):
    """The content, the amount and the place of padding have no effect."""
    rng = np.random.default_rng(seed)
    place = np.sort(rng.choice(30, MASK.sum(), replace=False))
    index, label, mask = rng.integers(0, 50, 30), rng.integers(-1, CLASSES, 30), np.zeros(30, bool)
    features = rng.normal(size=(30, 4))
    index[place], label[place], mask[place] = INDEX[MASK], LABEL[MASK], True
    features[place] = features_of()[MASK]
    features[~mask] = np.nan
    wide = Samples(jnp.asarray(index), jnp.asarray(label[:, None]), jnp.asarray(mask))
    empty = empty_buffer(CLASSES * SLOTS, 1)
    plain, padded = fill(choice, empty), fill(choice, empty, wide, features=features)
    for label in range(CLASSES):
        assert held(plain, label) == held(padded, label)


def test_random_exemplars_are_each_as_likely():
    """3 of 5 are stored: each of them 600 times in 1,000 keys, to 5 standard deviations of 15."""
    empty = empty_buffer(CLASSES * SLOTS, 1)
    keys = jax.random.split(jax.random.key(0), 1000)
    buffers = jax.jit(
        jax.vmap(lambda key: exemplars.add_random_exemplars(empty, SAMPLES, ALL, key))
    )(keys)
    counts = [int(jnp.sum((buffers.index == index) & buffers.mask)) for index in MEMBERS[0]]
    assert sum(counts) == 3000
    assert np.all(np.abs(np.array(counts) - 600) < 75)
    # The order within the class is random too.
    first = [int(jnp.sum(buffers.index[:, 0] == index)) for index in MEMBERS[0]]
    assert np.all(np.abs(np.array(first) - 200) < 65)


def herd_by_hand(rows, count):
    """Herd by iCaRL's algorithm 4 as it is written, over the rows of one class."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    mean, chosen = rows.mean(axis=0), []
    while len(chosen) < min(count, len(rows)):
        best, nearest = None, np.inf
        for candidate in range(len(rows)):
            if candidate in chosen:
                continue
            distance = np.linalg.norm(mean - rows[[*chosen, candidate]].mean(axis=0))
            if distance < nearest:
                best, nearest = candidate, distance
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("slots", [3, 20])
@pytest.mark.parametrize("seed", range(4))
def test_herding_is_the_greedy_loop(slots, seed):
    features = features_of(seed) * np.random.default_rng(seed).uniform(0.1, 9, (len(INDEX), 1))
    buffer = fill("herded", empty_buffer(CLASSES * slots, 1), features=features)
    # Class 1 is left out: its two unit vectors are equally far from their mean.
    for label in (0, 3):
        rows = np.flatnonzero(MASK & (label == LABEL))
        expected = INDEX[rows[herd_by_hand(features[rows], slots)]].tolist()
        assert held(buffer, label) == expected


# Samples have up to two classes; image 50 is there twice, once with one label. Slot 4 is padding.
TWO_LABELS = np.array(
    [[0, 1], [1, 0], [0, -1], [1, 3], [0, 1], [3, 0], [0, -1], [1, -1], [0, 3], [1, 3], [3, -1]]
)
TWO_INDEX = np.array([50, 51, 50, 52, 99, 53, 54, 55, 56, 57, 58])
TWO = Samples(jnp.asarray(TWO_INDEX), jnp.asarray(TWO_LABELS), jnp.asarray(TWO_INDEX < 99))


@both_choices
def test_a_sample_of_two_labels_may_stand_for_both_and_keeps_them(choice):
    """Every class stores all its samples; those of two labels are stored twice."""
    features = np.random.default_rng(0).normal(size=(len(TWO_INDEX), 4))
    buffer = fill(choice, empty_buffer(CLASSES * 12, 2), TWO, features=features)
    rows = list(zip(TWO_INDEX.tolist(), *TWO_LABELS.T.tolist(), strict=True))
    for label in range(CLASSES):
        part = slice(label * 12, (label + 1) * 12)
        mask = np.asarray(buffer.mask[part])
        pairs = np.asarray(buffer.labels[part])[mask].T.tolist()
        result = list(zip(np.asarray(buffer.index[part])[mask].tolist(), *pairs, strict=True))
        assert sorted(result) == sorted(row for row in rows if label in row[1:] and row[0] < 99)


@pytest.mark.parametrize("seed", range(3))
def test_herding_counts_a_sample_of_two_labels_in_both_means(seed):
    features = np.random.default_rng(seed).normal(size=(len(TWO_INDEX), 4)) + 0.5
    buffer = fill("herded", empty_buffer(CLASSES * SLOTS, 2), TWO, features=features)
    orders = []
    for label in (0, 1, 3):
        rows = np.flatnonzero((TWO_INDEX < 99) & np.any(label == TWO_LABELS, axis=1))
        chosen = rows[herd_by_hand(features[rows], SLOTS)]
        part = slice(label * SLOTS, (label + 1) * SLOTS)
        np.testing.assert_array_equal(buffer.index[part], TWO_INDEX[chosen])
        np.testing.assert_array_equal(buffer.labels[part], TWO_LABELS[chosen])
        orders.append({row: place for place, row in enumerate(chosen)})
    # One rank per sample would not do: some sample has another in its other class.
    assert any(a.get(row, SLOTS) != b.get(row, SLOTS) for a in orders for b in orders for row in a)


def test_the_same_image_with_fewer_labels_is_drawn_apart():
    """2 of 6 samples of class 0 are stored: each in 1/3 of 1,000 keys, both images of 50 in 1/15.

    The standard deviations are 14.9 and 7.9.
    """
    keys = jax.random.split(jax.random.key(3), 1000)
    empty = empty_buffer(CLASSES * 2, 2)
    buffers = jax.jit(jax.vmap(lambda key: exemplars.add_random_exemplars(empty, TWO, ALL, key)))(
        keys
    )
    index, second = np.asarray(buffers.index[:, :2]), np.asarray(buffers.labels[:, :2, 1])
    twice = (index == 50) & (second == 1)
    once = (index == 50) & (second == -1)
    for held_there in (twice, once, index == 54):
        assert abs(held_there.sum() - 1000 / 3) < 75
    assert abs(np.sum(twice.any(axis=1) & once.any(axis=1)) - 1000 / 15) < 40


# A class comes in three parts, of 5, 2 and 6 samples, beside two of another class.
AGAIN = np.array([100, 101, 102, 103, 104, 200, 110, 111, 201, 120, 121, 122, 123, 124, 125])
AGAIN_LABEL = np.where(AGAIN < 200, 0, 3)


seen_exemplars = jax.jit(exemplars.add_seen_exemplars, static_argnums=2)


def seen_buffer(parts, key, slots=SLOTS):
    """Return the buffer after successive parts of (index, label, mask), each padded to 20."""
    buffer = empty_buffer(CLASSES * slots, 1)
    for part in parts:
        index, label, mask = (np.pad(leaf, (0, 20 - len(leaf))) for leaf in part)
        samples = Samples(jnp.asarray(index), jnp.asarray(label)[:, None], jnp.asarray(mask, bool))
        buffer = seen_exemplars(buffer, samples, CLASSES, key)
    return buffer


def parts_of(order, cuts):
    pieces = np.split(np.asarray(order), cuts)
    return [(AGAIN[p], AGAIN_LABEL[p], np.ones(len(p))) for p in pieces if len(p)]


def test_every_sample_seen_of_a_class_is_held_with_equal_chance_whatever_its_task():
    """13 samples of three tasks compete for 3 slots: each is in 3/13 of 4,000 buffers."""
    parts = parts_of(np.arange(15), [6, 9])
    keys = jax.random.split(jax.random.key(2), 4000)
    buffers = jax.jit(jax.vmap(lambda key: seen_buffer(parts, key)))(keys)
    index, mask = np.asarray(buffers.index[:, :SLOTS]), np.asarray(buffers.mask[:, :SLOTS])
    assert mask.all()
    # None is held twice.
    assert all(len(set(row)) == SLOTS for row in index.tolist())
    counts = [np.sum(index == sample) for sample in AGAIN[AGAIN_LABEL == 0]]
    assert_equal_chances(counts, 4000, 3 / 13)
    # The other class has fewer samples than slots: both stay.
    assert np.all(np.sort(buffers.index[:, 3 * SLOTS : 3 * SLOTS + 2]) == [200, 201])
    assert np.all(buffers.mask[:, 3 * SLOTS :].sum(axis=1) == 2)


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(15)), st.sets(st.integers(1, 14), max_size=5))
def test_any_order_and_any_parts_of_the_same_samples_give_the_same_buffer(order, cuts):
    key = jax.random.key(4)
    at_once = seen_buffer(parts_of(np.arange(15), []), key)
    in_parts = seen_buffer(parts_of(order, sorted(cuts)), key)
    for label in range(CLASSES):
        assert held(in_parts, label) == held(at_once, label)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_any_implementation_choose_the_same_in_any_parts_and_under_vmap(impl):
    """The order of arrival, the parts, and the key's place in a batch of keys change nothing."""
    rng = np.random.default_rng(3)
    keys = jax.random.split(jax.random.key(4, impl=impl), 4)
    at_once = [seen_buffer(parts_of(np.arange(15), []), key) for key in keys]
    for cuts in ([6, 9], [1, 2, 14]):
        parts = parts_of(rng.permutation(15), cuts)
        together = jax.vmap(lambda key, parts=parts: seen_buffer(parts, key))(keys)
        for number, key in enumerate(keys):
            in_parts = seen_buffer(parts, key)
            in_vmap = jax.tree.map(lambda leaf, number=number: leaf[number], together)
            for label in range(CLASSES):
                expected = held(at_once[number], label)
                assert held(in_parts, label) == expected
                assert held(in_vmap, label) == expected
    # Another key chooses others.
    assert len({tuple(held(buffer, 0)) for buffer in at_once}) > 1


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_every_word_of_a_key_changes_what_is_chosen(impl):
    words = jax.random.key_data(jax.random.key(4, impl=impl))
    parts, results = parts_of(np.arange(15), [6, 9]), set()
    for place in range(words.shape[0]):
        key = jax.random.wrap_key_data(words.at[place].add(1), impl=impl)
        results.add(tuple(held(seen_buffer(parts, key), 0)))
    assert len(results) == words.shape[0]


def test_a_sample_that_comes_again_is_held_once():
    key = jax.random.key(4)
    parts = parts_of(np.arange(15), [6, 9])
    for slots in (SLOTS, 20):
        once, again = seen_buffer(parts, key, slots), seen_buffer([*parts, *parts], key, slots)
        for label in range(CLASSES):
            assert held(again, label) == held(once, label)


@pytest.mark.parametrize("seed", range(3))
def test_padding_never_changes_which_of_the_seen_stay(seed):
    rng, key = np.random.default_rng(seed), jax.random.key(4)
    parts, padded = parts_of(np.arange(15), [6, 9]), []
    for index, label, _ in parts:
        place = np.sort(rng.choice(20, len(index), replace=False))
        wide = rng.integers(90, 210, 20), rng.integers(-1, CLASSES, 20), np.zeros(20)
        wide[0][place], wide[1][place], wide[2][place] = index, label, 1
        padded.append(wide)
    for label in range(CLASSES):
        assert held(seen_buffer(parts, key), label) == held(seen_buffer(padded, key), label)


def test_a_buffer_of_another_kind_is_refused():
    plain, herded = empty_buffer(6, 1), exemplars.empty_exemplars(6, 1)
    samples, seen, key = empty_buffer(4, 1), jnp.ones(3, bool), jax.random.key(0)
    refused(
        "add_seen_exemplars: buffer is of type ExemplarBuffer; give Samples",
        lambda: exemplars.add_seen_exemplars(herded, samples, 3, key),
    )
    refused(
        "add_random_exemplars: buffer is of type ExemplarBuffer; give Samples",
        lambda: exemplars.add_random_exemplars(herded, samples, seen, key),
    )
    refused(
        "add_herded_exemplars: buffer is of type Samples; give ExemplarBuffer",
        lambda: exemplars.add_herded_exemplars(plain, samples, seen, jnp.zeros((4, 2))),
    )
