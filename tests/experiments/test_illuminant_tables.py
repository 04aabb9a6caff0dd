"""Tables of errors: deviations, intervals and what is invalid."""

import numpy as np
import pytest

from everlight_experiments.illuminant.comparison import Comparison, Units
from everlight_experiments.illuminant.tables import error_table, shown_curves, spread, summary
from everlight_experiments.report.writer import Figure


def lights_at(degrees):
    """Lights that are so many degrees from red, within the plane of red and green."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians), 0 * radians], axis=-1)


def compared(errors, **fields):
    """Lights with these errors; reproduction errors have no meaning here."""
    lights = {name: lights_at(values) for name, values in errors.items()}
    truth = np.broadcast_to([1.0, 0.0, 0.0], next(iter(lights.values()))[0].shape)
    return Comparison(lights, truth, **fields)


def cells(table, method):
    (row,) = [row for row in table.rows if row[0] == method]
    named = zip(table.columns, row, strict=True)
    return {column.name: cell for column, cell in named if column.group.startswith("everlight")}


def test_the_deviation_is_the_samples():
    """The sample deviation of 1 and 3 is the root of 2; the population's would be 1."""
    assert spread(np.array([1.0, 3.0])) == "2.00 ± 1.41"
    assert spread(np.array([2.0])) == "2.00"
    errors = {"A": np.array([1.0, 3.0])[:, None, None] * np.ones((2, 3, 4))}
    table = error_table(compared(errors))
    assert cells(table, "A")["Mean"] == "2.00 ± 1.41"
    assert "± is the standard deviation" in table.caption


def test_an_interval_over_lights_is_wider_than_one_over_their_scenes(rng):
    lights = np.repeat(np.arange(20), 50)
    values = (rng.gamma(2, 1, 20)[lights] + 0.1 * rng.normal(size=1_000))[None, None]
    by_scene = error_table(compared({"A": values}))
    units = Units("illuminants", lights[None])
    by_light = error_table(compared({"A": values}, units=units))
    widths = []
    for table in (by_scene, by_light):
        low, high = map(float, cells(table, "A")["95% interval"].split("–"))
        widths.append(high - low)
    # Fifty scenes count as one: the interval is about the root of fifty times as wide.
    assert widths[1] / widths[0] == pytest.approx(np.sqrt(50), rel=0.3)
    assert "bootstrap over illuminants" in by_light.caption
    assert "bootstrap over images" in by_scene.caption


def test_what_is_invalid_is_counted_and_the_paper_stands_beside():
    values = np.array([1.0, np.nan, 3.0, np.nan])[None, None]
    published = {"A": (9.0, np.nan, 8.0), "C": (7.0,)}
    both = compared({"A": values, "B": np.ones_like(values)}, published=published)
    table = error_table(both)
    row = cells(table, "A")
    assert row["Invalid"] == "2"
    assert row["Max"] == "3.00"
    assert table.rows[0][-7:] == ["9.00", "–", "8.00", "–", "–", "–", "–"]
    assert table.strong_rows == {1}
    name, mean, *_ = table.rows[2]
    assert (name, mean, table.rows[2][-7]) == ("C", "not run", "7.00")
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_reproduction_errors_stand_beside():
    """White that comes out as (1, 1, 2) is 19.47 degrees from grey, whatever the light was."""
    estimate = np.array([0.5, 1.0, 2.0])
    lights = np.broadcast_to(estimate, (1, 2, 3, 3))
    truth = np.broadcast_to(estimate * [1, 1, 2], (2, 3, 3))
    table = error_table(Comparison({"A": lights}, truth))
    shown = {
        c.name: row
        for c, row in zip(table.columns, table.rows[0], strict=True)
        if c.group.startswith("reproduction")
    }
    assert shown == {"Mean": "19.47", "Med": "19.47", "W25%": "19.47"}


def test_the_first_screen_says_which_method_errs_least_where():
    def errors(*by_run):
        """Two folds of three images; one without an estimate is left out of the mean."""
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
    first = summary("Which is best?", "Not NUS", Figure("", "picture.png"), conditions)
    assert first.sentences == (
        "Which is best?",
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
    chosen = summary("", "", Figure("", "picture.png"), conditions, headline="B", baselines=("C",))
    assert chosen.sentences[1:] == (
        "Reported method, in degrees with 95% interval: B, 4.00 [4.00–4.00] (exact); B, 1.50 "
        "[1.50–1.50] (noisy).",
        "Baseline, C: 5.00 (exact).",
    )


def test_curves_are_of_the_methods_named_and_of_the_least_of_each_condition():
    one = {"A": [[3.0]], "B": [[1.0]], "C": [[2.0]], "D": [[0.0]], "never": [[np.nan]]}
    other = {"A": [[3.0]], "B": [[2.0]], "C": [[1.0]], "never": [[np.nan]]}
    conditions = [
        compared({name: np.array(value)[..., None] for name, value in item.items()}, title=title)
        for title, item in (("a", one), ("b", other))
    ]
    curves = shown_curves(["A", "D", "elsewhere"], conditions)
    assert {condition: list(names) for condition, names in curves.items()} == {
        "a": ["A", "B", "C"],
        "b": ["A", "B", "C"],
    }
