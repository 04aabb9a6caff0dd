"""Reports on illuminants: tables of errors, the summary, gains of a camera, and the pictures."""

import numpy as np
import pytest

from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.pair_inputs import (
    TRANSFORM,
    TRANSFORM_AND_WHITE_BALANCE,
    WHITE_BALANCE,
)
from everlight_data.errors import DataError
from everlight_experiments.illuminant.core import report
from everlight_experiments.illuminant.core.camera_means import camera_mean_name
from everlight_experiments.illuminant.core.cross_validation import CHOSEN
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    IlluminantExperiment,
    ResamplingUnits,
)
from everlight_experiments.illuminant.core.report import (
    MAX_CURVES,
    error_table,
    publish,
    shown_curves,
    spread,
    summary,
)
from everlight_experiments.illuminant.two_camera.transforms import (
    as_released,
    gain_table,
    in_blocks,
)
from everlight_experiments.report.writer import Figure
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions


def illuminants_at(degrees):
    """Return illuminants so many degrees from red, within the plane of red and green."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians), 0 * radians], axis=-1)


def compared(errors, **fields):
    """Return illuminants with these errors; reproduction errors have no meaning here."""
    illuminants = {name: illuminants_at(values) for name, values in errors.items()}
    truth = np.broadcast_to([1.0, 0.0, 0.0], next(iter(illuminants.values()))[0].shape)
    return Comparison(illuminants, truth, **fields)


def experiment(*comparisons, **fields):
    by_title = {comparison.title: comparison for comparison in comparisons}
    texts = {"title": "", "question": "?", "data": "Not NUS", "selection_rule": "", "seeds": ""}
    others = {"protocol": {}, "illuminants": {}}
    return IlluminantExperiment(comparisons=by_title, **{**texts, **others, **fields})


def cells(table, method, group="everlight"):
    (row,) = [row for row in table.rows if row[0] == method]
    named = zip(table.columns, row, strict=True)
    return {column.name: cell for column, cell in named if column.group.startswith(group)}


def test_the_deviation_is_that_of_a_sample():
    """The sample deviation of 1 and 3 is the root of 2; the population's would be 1."""
    assert spread(np.array([1.0, 3.0])) == "2.00 ± 1.41"
    assert spread(np.array([2.0])) == "2.00"
    errors = {"A": np.array([1.0, 3.0])[:, None, None] * np.ones((2, 3, 4))}
    table = error_table(compared(errors))
    assert cells(table, "A")["Mean"] == "2.00 ± 1.41"
    assert "± is the standard deviation" in table.caption


def test_an_interval_over_illuminants_is_wider_than_one_over_their_scenes(rng):
    illuminants = np.repeat(np.arange(20), 50)
    values = (rng.gamma(2, 1, 20)[illuminants] + 0.1 * rng.normal(size=1_000))[None, None]
    by_scene = error_table(compared({"A": values}))
    units = ResamplingUnits("illuminants", illuminants[None])
    by_illuminant = error_table(compared({"A": values}, units=units))
    widths = []
    for table in (by_scene, by_illuminant):
        low, high = map(float, cells(table, "A")["95% interval"].split("–"))
        widths.append(high - low)
    # Fifty scenes count as one: the interval is about the root of fifty times as wide.
    assert widths[1] / widths[0] == pytest.approx(np.sqrt(50), rel=0.3)
    assert "bootstrap over illuminants" in by_illuminant.caption
    assert "bootstrap over images" in by_scene.caption


def test_groups_pool_each_tested_image_once(rng):
    """Four images per group with one error each have the interval of the groups alone."""
    by_group = rng.gamma(2, 1, 9)
    groups = np.repeat(np.arange(9), 4)
    rows = np.arange(36)
    folds = [rows[:16], rows[16:28], rows[28:]]
    padded = np.stack([np.resize(fold, 16) for fold in folds])
    single = compared({"A": by_group[None, None]})
    names = np.char.add("n", rows.astype(str))
    repeated = compared({"A": by_group[groups][padded][None]}, names=names[padded])
    pooled = repeated.by_groups(list(padded), groups)
    errors = pooled.errors()["A"]
    assert errors.shape == (1, 1, 36)
    np.testing.assert_allclose(errors[0, 0], by_group[groups], rtol=1e-3)
    assert pooled.names.tolist() == [names.tolist()]
    expected = single.interval(single.errors()["A"])
    np.testing.assert_allclose(pooled.interval(errors), expected, rtol=1e-3)


def test_invalid_estimates_are_counted_and_the_paper_stands_beside():
    values = np.array([1.0, np.nan, 3.0, np.nan])[None, None]
    published = {"A": (9.0, np.nan, 8.0), "C": (7.0,)}
    table = error_table(compared({"A": values, "B": np.ones_like(values)}, published=published))
    row = cells(table, "A")
    assert (row["Invalid"], row["Max"]) == ("2", "3.00")
    assert table.rows[0][-7:] == ["9.00", "–", "8.00", "–", "–", "–", "–"]
    assert table.strong_rows == {1}
    name, mean, *_ = table.rows[2]
    assert (name, mean, table.rows[2][-7]) == ("C", "not run", "7.00")
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_best_row_has_the_lowest_printed_mean_and_a_missing_fold_has_no_interval():
    """B errs by 2.6 degrees over its five images, and by 5 on average over its folds."""
    few = np.array([[1.0, 1, 1, 1], [9, np.nan, np.nan, np.nan]])[None]
    errors = {"A": np.full_like(few, np.nan), "B": few, "C": np.full_like(few, 4.0)}
    errors["A"][0, 0] = 3.0
    conditions = compared(errors, title="held out")
    table = error_table(conditions)
    assert table.strong_rows == {2}
    assert [cells(table, name)["Mean"] for name in "ABC"] == ["nan", "5.00", "4.00"]
    assert [cells(table, name)["95% interval"] for name in "AC"] == ["–", "4.00–4.00"]
    assert not error_table(compared({"A": errors["A"]})).strong_rows
    described = summary(experiment(conditions, headline="A"), Figure("", "picture.png"))
    assert described.sentences[1].endswith("95% interval: A, nan [–] (held out).")


def test_reproduction_errors_stand_beside():
    """A white estimated as (1, 1, 2) is 19.47 degrees from grey under any illuminant."""
    estimate = np.array([0.5, 1.0, 2.0])
    illuminants = np.broadcast_to(estimate, (1, 2, 3, 3))
    truth = np.broadcast_to(estimate * [1, 1, 2], (2, 3, 3))
    shown = cells(error_table(Comparison({"A": illuminants}, truth)), "A", "reproduction")
    assert shown == {"Mean": "19.47", "Med": "19.47", "W25%": "19.47"}


def test_the_summary_names_the_method_with_the_lowest_error_of_every_condition():
    def errors(*by_run):
        """Return errors of two folds of three images, of which one has no estimate."""
        values = np.array(by_run)[:, None, None] * np.ones((len(by_run), 2, 3))
        values[:, 0, 0] = np.nan
        return values

    methods = {"GW": errors(6.0), "A": errors(1.0, 3.0), "B": errors(4.0), "C": errors(5.0)}
    methods |= {"D": errors(9.0), "never": np.full((1, 2, 3), np.nan)}
    published = {"B": (4.4, 1.0), "D": (7.7,)}
    conditions = [
        compared(methods, title="exact", published=published),
        compared({"GW": errors(2.0), "B": errors(1.5)}, title="noisy"),
    ]
    figure = Figure("", "picture.png")
    first = summary(experiment(*conditions), figure)
    assert first.sentences == (
        "?",
        "Best, in degrees with 95% interval: A, 2.00 [2.00–2.00] (exact); B, 1.50 [1.50–1.50] "
        "(noisy).",
        "Baseline, Gray World (GW): 6.00 (exact); 2.00 (noisy).",
    )
    assert first.table.caption.startswith("Not NUS. ")
    assert first.table.rows == [
        ["A", "2.00 ± 1.41", "–", "–"],
        ["B", "4.00", "1.50", "4.40"],
        ["C", "5.00", "–", "–"],
        ["GW", "6.00", "2.00", "–"],
    ]
    chosen = summary(experiment(*conditions, headline="B", baselines=("C",)), figure)
    assert chosen.sentences[1:] == (
        "Reported method, in degrees with 95% interval: B, 4.00 [4.00–4.00] (exact); B, 1.50 "
        "[1.50–1.50] (noisy).",
        "Baseline, C: 5.00 (exact).",
    )


def test_curves_are_those_named_the_best_of_each_condition_and_the_headline():
    one = {"A": [[3.0]], "B": [[1.0]], "C": [[2.0]], "D": [[0.0]], "never": [[np.nan]]}
    other = {"A": [[3.0]], "B": [[2.0]], "C": [[1.0]], "never": [[np.nan]]}
    conditions = [
        compared({name: np.array(v)[..., None] for name, v in errors.items()}, title=title)
        for title, errors in (("a", one), ("b", other))
    ]
    curves = shown_curves(experiment(*conditions, curves=["A", "D", "elsewhere"]))
    assert {title: list(names) for title, names in curves.items()} == {"a": [*"ABC"], "b": [*"ABC"]}
    many = compared({f"m{number}": np.full((1, 1, 1), 10.0 + number) for number in range(12)})
    fields = {"curves": sorted(many.estimates), "headline": "m11", "baselines": ("none",)}
    (curves,) = shown_curves(experiment(many, **fields)).values()
    assert len(curves) == MAX_CURVES
    assert {"m11", "m0"} <= {*curves}


def test_the_gain_of_a_camera_is_the_mean_difference_of_errors_by_seed():
    """Two seeds have two folds of two images, and gains of 1 and of 2 degrees on every image."""
    one = np.array([[[3.0, 5.0], [4.0, 8.0]], [[4.0, 6.0], [5.0, 9.0]]])
    both = one - np.array([1.0, 2.0])[:, None, None]
    errors = {}
    for method in ("Net", "Linear regression"):
        for inputs, values in ((WHITE_BALANCE, one), (TRANSFORM_AND_WHITE_BALANCE, both)):
            errors[f"{method} on {inputs}, {CHOSEN}"] = values
            errors[f"{method} on {inputs}, {CHOSEN}, ensemble"] = values[:1]
    errors[camera_mean_name(f"Net on {WHITE_BALANCE}, {CHOSEN}")] = one - 0.5
    table = gain_table(compared(errors))
    assert "bootstrap over images" in table.caption
    units = ResamplingUnits("blocks", np.zeros(errors[next(iter(errors))].shape[1:], int))
    assert "bootstrap over blocks" in gain_table(compared(errors, units=units)).caption
    single, mean, ensemble, *_ = table.rows
    assert single == ["Net: T", "5.50 ± 0.71", "4.00 ± 0.00", "+1.50 ± 0.71", "+1.50 to +1.50"]
    assert mean[:3] == ["Net: mean of both estimates", "5.50 ± 0.71", "5.00 ± 0.71"]
    assert ensemble == ["Net, ensemble: T", "5.00", "4.00", "+1.00", "+1.00 to +1.00"]


def test_without_the_authors_re_illuminations_no_network_is_as_released(monkeypatch, tmp_path):
    (tmp_path / "s20_two_camera").mkdir()
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    pairs = CameraPairs({}, np.ones((3, 3)), np.ones((3, 3)), np.arange(3)[:, None], ("a", "b"), "")
    assert as_released(pairs, None) == {}


def test_blocks_are_held_out_and_resampled_together(rng):
    values = np.zeros((18, 9), np.float32)
    illuminants = rng.uniform(0.2, 1, (18, 3)).astype(np.float32)
    folds = np.arange(18).reshape(3, 6)
    pairs = CameraPairs({TRANSFORM: values}, illuminants, illuminants, folds, ("a", "b"), "")
    assert in_blocks(pairs, 1, 0) is pairs
    folds = in_blocks(pairs, 3, 0).folds
    assert sorted(folds.ravel().tolist()) == list(range(18))
    for fold in folds:
        assert {row // 3 * 3 + step for row in fold.tolist() for step in range(3)} == {
            *fold.tolist()
        }
    with pytest.raises(DataError, match=r"--block 4: 18 pairs .* 3 equal folds .*; give 2, 3, 6"):
        in_blocks(pairs, 4, 0)


@pytest.fixture
def drawn(monkeypatch, tmp_path, rng, capsys):
    """Return canvases by file name, of three cameras, a method and a baseline far off."""
    canvases, save = {}, report.save

    def keep(canvas, path):
        canvas.canvas.draw()
        canvases[path.name] = canvas
        return save(canvas, path)

    monkeypatch.setattr(report, "save", keep)
    degrees = {"near": 2.0, "kept": 25.0, "GW": 31.0}
    errors = {name: rng.uniform(0.9, 1.1, (1, 1, 40)) * far for name, far in degrees.items()}
    cameras = {f"Maker's long name {number}": rng.uniform(0.4, 1, (5, 3)) for number in range(3)}
    panels = {" + ".join(cameras): cameras, "two": dict(list(cameras.items())[:2])}
    fields = {"illuminants": panels, "curves": ("near",), "headline": "kept"}
    folder = RunFolder("illuminant", "test", ExperimentOptions(runs=tmp_path))
    publish(folder, experiment(compared(errors, title="held out"), command="use it", **fields))
    return canvases, capsys.readouterr().out, (folder.path / "report.html").read_text()


def test_pictures_show_the_baseline_and_many_cameras_beside_the_data(drawn):
    """The baseline and the headline are not among the named curves, and beyond 12 degrees."""
    canvases, printed, page = drawn
    (axes,) = canvases["error_curves.png"].axes
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert {*lines} == {"near", "kept", "GW"}
    low, high = axes.get_xlim()
    for points in lines.values():
        assert np.mean((points[:, 0] >= low) & (points[:, 0] <= high)) >= 0.5
    assert high == pytest.approx(1.2 * np.median(lines["GW"][:, 0]), rel=1e-3)
    canvas = canvases["illuminants.png"]
    assert [axes.get_title() for axes in canvas.axes] == ["3 cameras", "two"]
    for axes in canvas.axes:
        legend = axes.get_legend().get_window_extent()
        assert legend.x0 >= axes.get_window_extent().x1
        assert legend.x1 <= canvas.bbox.x1
    assert "? Reported method, in degrees with 95% interval: kept, " in printed
    assert "Abdelhamed" in page
    assert "use it" in page
