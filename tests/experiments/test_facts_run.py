"""The run of lifelong fact learning, on a tiny plan of the procedural world, and its parts."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from everlight_experiments.continual.run import run_continual
from everlight_experiments.continual.table import ContinualRun
from everlight_experiments.facts.benchmarks import (
    Size,
    WordFile,
    load_source,
    make_benchmark,
    make_images,
    spaced_examples,
)
from everlight_experiments.facts.findings import CLAIMS, findings_table
from everlight_experiments.facts.layout import layout_embeddings
from everlight_experiments.facts.lifelong import LifelongRun, run_lifelong
from everlight_experiments.facts.paper_tables import FEW_SHOT, TOP5, TRANSFER
from everlight_experiments.facts.record import BenchmarkPlan, Net, Plan, gate_features
from everlight_experiments.facts.release import open_photographs, read_benchmark
from everlight_experiments.facts.scores import Outcome
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from everlight.continual.engine.protocol import Protocol
from everlight.metrics.ranking import Means
from everlight_data.errors import DataError
from everlight_data.facts.splits import read_images, write_split
from everlight_experiments.facts import record

MID = BenchmarkPlan(
    Size(24, 2, (10, 5)),
    ("MAS", "joint"),
    Protocol(epochs=1, batch_size=32, select="last"),
    seeds=1,
    hyperparameters_tried=1,
)
MID_OF_EIGHT = replace(MID, size=Size(None, 8, (10, 5)))
TINY = Plan("procedural", Net(8, (2,), 2, 4), {"mid-scale": MID}, "not chosen", scenes=(200, 40))


def test_it_reports_both_splits_and_refuses_parts_of_another_plan(tmp_path):
    settings = LifelongRun(runs=tmp_path)
    report = run_lifelong(settings, {"demo": TINY})
    page = report.read_text()
    for wanted in ("no photographs", "other data", "single linkage", "layout only"):
        assert wanted in page
    assert "too few of ExpertGate, joint were run" in page
    with np.load(report.parent / "results.npz") as results:
        first = dict(results)
    for split in ("random", "semantic"):
        for method in ("MAS", "joint"):
            name = f"mid-scale/{split}/{method}"
            drop = first[f"{name}/drop/by_task"]
            assert drop.shape == (1, 2 if method == "MAS" else 1, 2)
            assert np.all(drop >= 0)
            with np.load(report.parent / "units" / f"mid-scale-{split}-{method}-0.npz") as kept:
                size = first[f"{name}/hits"].shape[1]
                within = kept["generalised"][-1, :size] <= 5
            np.testing.assert_array_equal(first[f"{name}/hits"], [within])
            last = first[f"{name}/generalised/over_examples"][0, -1]
            np.testing.assert_allclose(last, within.mean(), rtol=1e-6)
    # All splits test on the same images, and what learns all at once knows no split.
    layout = [first[f"mid-scale/{s}/layout only/hits"] for s in ("random", "semantic")]
    np.testing.assert_array_equal(*layout)
    assert np.isfinite(first["mid-scale/random/MAS/backward"]).all()
    assert np.isnan(first["mid-scale/random/joint/backward"]).all()
    other = replace(TINY, net=replace(TINY.net, hidden=5))
    with pytest.raises(DataError, match=r"'hidden': 4.* there, .*'hidden': 5.* now"):
        run_lifelong(settings, {"demo": other})


@pytest.mark.slow
def test_the_one_runner_has_it_for_any_method(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "PLANS", {"demo": TINY})
    asked = {"methods": ("ER-balanced",), "seeds": 1, "validation_seeds": 1, "published": False}
    report = run_continual(ContinualRun(benchmark="facts", runs=tmp_path, **asked))
    with np.load(report.parent / "results.npz") as results:
        for split in ("random", "semantic"):
            curve = results[f"{split}/ER/over_time"]
            assert curve.shape == (1, 2)
            # Five of 24 facts are right by chance alone.
            assert 0.05 < curve[0, -1] < 1
    page = report.read_text()
    assert "generalised Top-5" in page
    with pytest.raises(DataError, match="LwF works on scores of classes; here outputs are"):
        run_continual(ContinualRun(benchmark="facts", runs=tmp_path, methods=("LwF",)))


@pytest.fixture
def release(tmp_path):
    """The files of the authors: both splits in two tasks, photographs, vectors of all words."""
    facts = load_source("procedural", (30, 10), 0).facts
    for split, task in (("random", 0), ("semantic", 1)):
        # Every other fact, or the first half.
        numbers = np.arange(len(facts.facts))
        tasks = numbers % 2 if task == 0 else (numbers >= len(numbers) // 2).astype(int)
        write_split(tmp_path / "splits" / f"2tasks_{split}", facts, tasks)
    rng = np.random.default_rng(0)
    for link in {*facts.train.images, *facts.test.images}:
        noise = rng.integers(0, 256, (24, 30, 3), np.uint8)
        Image.fromarray(noise).save((tmp_path / link).with_suffix(".png"))
    words = {word for fact in facts.facts for piece in fact if piece for word in piece.split()}
    lines = [f"{word} {' '.join(map(str, rng.normal(size=4)))}" for word in sorted(words)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    return tmp_path


def of_release(folder, **changes):
    paths = {"photographs": folder, "splits": folder / "splits", "words": folder / "vectors.txt"}
    return LifelongRun(runs=folder / "runs", **(paths | changes))


@pytest.mark.slow
def test_the_authors_files_are_run_with_photographs_streamed(release):
    finetuned = replace(MID, methods=("finetune",))
    plan = replace(TINY, benchmarks={"mid-scale": finetuned, "large-scale": MID_OF_EIGHT})
    report = run_lifelong(of_release(release), {"demo": plan})
    page = report.read_text()
    for wanted in (
        "centres of the photographs",
        "large-scale: left out",
        "vectors.txt",
        "no input",
    ):
        assert wanted in page
    assert "layout only" not in page
    source = load_source("procedural", (30, 10), 0).facts
    benchmark = read_benchmark(release / "splits", MID.size, WordFile(release / "vectors.txt"))
    assert benchmark.facts == source.facts
    assert benchmark.fact_task["semantic"].tolist() == sorted(benchmark.fact_task["semantic"])
    # All that the benchmark keeps of each fact is tested, and the places are those of the files.
    with np.load(report.parent / "results.npz") as results:
        assert results["mid-scale/random/finetune/hits"].shape == (1, len(benchmark.test.fact))
        assert np.isfinite(results["mid-scale/semantic/finetune/backward"]).all()
    store = open_photographs(benchmark, release, 8, 10**7)
    last = len(benchmark.train.fact) + len(benchmark.test.fact) - 1
    shown = read_images(release, [benchmark.test.links[-1]], 8)
    # The store's crop is a little tighter than the central square.
    assert np.corrcoef(store.read(np.array([last])).ravel(), shown.ravel())[0, 1] > 0.3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "--seeds 0; give 1 or more"),
        ({"photographs": Path("photos")}, "procedural has none; give --data vrd"),
    ],
)
def test_what_cannot_be_run_is_named(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        run_lifelong(LifelongRun(runs=tmp_path, **changes), {"demo": TINY})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": None}, "needs --words"),
        ({"photographs": None}, "needs --photographs"),
        ({"data": "vrd"}, "--data vrd and --splits"),
    ],
)
def test_what_the_authors_files_need_is_asked_for(release, changes, message):
    with pytest.raises(DataError, match=message):
        run_lifelong(of_release(release, **changes), {"demo": TINY})


def test_faults_of_the_authors_files_are_named(release):
    words = release / "vectors.txt"
    kept = words.read_text().splitlines()
    lost = kept[0].split()[0]
    words.write_text("\n".join(kept[1:]))
    with pytest.raises(DataError, match=f"no vector for 1 of .* words: {lost}"):
        read_benchmark(release / "splits", MID.size, WordFile(words))
    found = read_benchmark(release / "splits", MID.size, WordFile(words, "zeros"))
    assert found.words.unknown == (lost,)
    first = (release / found.test.links[0]).with_suffix(".png")
    first.unlink()
    with pytest.raises(DataError, match=f"1 of .* images .*{found.test.links[0]}"):
        open_photographs(found, release, 8, 10**7)
    table = release / "splits" / "2tasks_semantic" / "B1_facts.csv"
    lines = table.read_text().splitlines()
    name = lines[1].split(",")[2]
    table.write_text("\n".join([lines[0], lines[1].replace(name, "unicorn"), *lines[2:]]))
    with pytest.raises(DataError, match="differ in 2 facts"):
        read_benchmark(release / "splits", MID.size, WordFile(words, "zeros"))
    (release / "splits" / "2tasks_random").rename(release / "elsewhere")
    with pytest.raises(DataError, match=r"2tasks_random.*mid-scale needs both"):
        run_lifelong(of_release(release), {"demo": TINY})


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60).map(np.array),
    st.sets(st.integers(0, 3), min_size=1),
    st.integers(1, 9),
)
def test_kept_examples_are_spaced_evenly(fact, chosen, most):
    kept = spaced_examples(fact, np.array(sorted(chosen)), most)
    assert set(fact[kept].tolist()) == chosen & set(fact.tolist())
    for number in chosen & set(fact.tolist()):
        places = np.flatnonzero(fact == number)
        own = np.flatnonzero(np.isin(places, kept))
        assert len(own) == min(most, len(places))
        # Steps of the two whole numbers around the mean.
        assert np.ptp(np.diff(own, append=len(places))) <= 1


def test_scenes_that_choose_hyperparameters_are_held_out_whole():
    source = load_source("procedural", (60, 20), 0)
    benchmark = make_benchmark(source, "procedural", Size(None, 2, (100, 100)), 0)
    samples = benchmark.train.samples
    scene = samples.scenes.image[samples.subject]
    assert set(scene[benchmark.held_out]) == {9, 19, 29, 39, 49, 59}
    assert not set(scene[benchmark.held_out]) & set(scene[~benchmark.held_out])
    # Every scene states one triple, one pair and two singles.
    assert benchmark.held_out.sum() == 6 * 4
    assert len(benchmark.train.fact) == 60 * 4
    words = [source.facts.facts[number] for number in source.facts.train.facts]
    assert [benchmark.facts[number] for number in benchmark.train.fact] == words


def test_photographs_take_the_place_of_rendered_images(tmp_path):
    source = load_source("procedural", (3, 1), 0)
    benchmark = make_benchmark(source, "procedural", Size(None, 1, (100, 100)), 0)
    for number in range(3):
        path = tmp_path / f"{benchmark.train.samples.scenes.images[number]}.png"
        Image.new("RGB", (256, 256), (50 * number, 7, 9)).save(path)
    scene = benchmark.train.samples.scenes.image[benchmark.train.samples.subject]
    rows = np.array([11, 0, 4])
    assert scene[rows].tolist() == [2, 0, 1]
    found = make_images(benchmark.train, rows, 8, tmp_path)
    # A square may leave its scene, but not with most of its pixels.
    middle = np.median(found.reshape(3, -1, 3), axis=1)
    np.testing.assert_array_equal(middle, [[100, 7, 9], [0, 7, 9], [50, 7, 9]])


def test_without_features_every_image_gets_the_mean_of_the_facts_that_define_a_piece(rng):
    vectors = rng.normal(size=(5, 4))
    pieces = np.array([[0, -1, -1], [1, 2, -1], [1, 3, 4], [0, -1, -1]])
    found = layout_embeddings((np.zeros((4, 0)), np.zeros((2, 0))), pieces, vectors, 0)
    wanted = [
        (vectors[0] + vectors[1] + vectors[1] + vectors[0]) / 4,
        (vectors[2] + vectors[3]) / 2,
        vectors[4],
    ]
    np.testing.assert_allclose(found, [wanted, wanted], rtol=1e-5)


def test_what_the_layout_tells_is_learnt_from_it(rng):
    vectors = np.eye(3)
    above = rng.random((300, 2)) > 0.5
    features = above + 0.05 * rng.standard_normal((300, 2))
    pieces = np.stack([above[:, 0] + 0, np.full(300, 2), 1 - above[:, 1]], axis=1)
    found = layout_embeddings((features[:200], features[200:]), pieces[:200], vectors, 0)
    np.testing.assert_array_equal(found.argmax(axis=2), pieces[200:])


def test_the_gate_sees_means_of_blocks(rng):
    images = rng.normal(size=(2, 16, 16, 3)).astype(np.float32)
    found = gate_features(jnp.asarray(images))
    by_hand = [
        images[1, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2, channel].mean()
        for row in range(8)
        for column in range(8)
        for channel in range(3)
    ]
    np.testing.assert_allclose(found[1], by_hand, rtol=1e-5, atol=1e-6)


def test_the_papers_own_tables_bear_out_what_is_said_of_its_claims():
    """Claims of which the paper says that they hold do so in its numbers, and no others."""
    outcomes = {}
    for (benchmark, split), rows in TOP5.items():
        outcomes.setdefault(benchmark, {})[split] = {
            name: paper_outcome(row, split, name) for name, row in rows.items()
        }
    for claim, row in zip(CLAIMS, findings_table(outcomes).rows, strict=True):
        if row[1] in ("not given", "no joint"):
            continue
        holds = {"holds": "1 of 1", "not": "0 of 1"}[row[1].split()[0].strip(",;:")]
        assert row[2] == holds, claim


def paper_outcome(row, split, name):
    def means(value):
        return Means(np.full((1, 1, 1), np.nan), np.full((1, 1), np.nan), np.array([[value / 100]]))

    few = Means(np.array([[np.nan]]), np.array([FEW_SHOT[split][name] / 100]), np.array([np.nan]))
    backward, forward = TRANSFER[split].get(name, (np.nan, np.nan))
    drop = row.standard_examples - row.generalised_examples
    return Outcome(
        means(row.standard_examples),
        means(row.generalised_examples),
        means(drop),
        np.array([backward]),
        np.array([forward]),
        hits=np.zeros((1, 0), bool),
        few=few,
        by_count=np.zeros((1, 2, 0)),
        spo=np.zeros((1, 2, 7)),
        found=np.zeros((1, 0, 5), int),
    )
