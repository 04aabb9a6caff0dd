"""The GPU's table of `docs/pages/performance.md`, written between two marks from results."""

from pathlib import Path

from benchmarks.gpu.schedule import COMPLETE, read_results

PAGE = Path(__file__).parents[2] / "docs" / "pages" / "performance.md"
BEGIN, END = "<!-- benchmarks.gpu: begin -->\n", "<!-- benchmarks.gpu: end -->\n"
COLUMNS = {
    "ms per step": "{:.2f}",
    "images/s, all seeds": "{:,.0f}",
    "µs per step and seed": "{:.1f}",
    "compilation s": "{:.0f}",
    "peak GB": "{:.2f}",
}
SPECIAL = ("device", "tests", "paper")
"""Cases that are sentences."""


def write_table(results_file: Path, page: Path = PAGE) -> None:
    """Write the results of the newest device, versions and sources into the page.

    Raises:
      ValueError: the file has no results, or is of something else, or its newest ones are of the
        least sizes (`--small`); the page lacks a mark.
    """
    results = read_results(results_file)
    if not results:
        raise ValueError(f"{results_file} has no results; run `python -m benchmarks.gpu`")
    if max(results, key=lambda one: one["ended"])["setup"]["small"]:
        raise ValueError(f"{results_file} has results of --small, which are no measurements")
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page} lacks the lines {BEGIN.strip()} and {END.strip()}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + render(results) + END + after, encoding="utf-8")


def render(results: list[dict]) -> str:
    """Return the sentences and the table of the newest results."""
    newest = max(results, key=lambda one: one["ended"])["setup"]
    complete = {
        one["case"]: one for one in results if one["setup"] == newest and one["state"] == COMPLETE
    }
    day = max(one["ended"] for one in complete.values())[:10] if complete else "no day"
    packages = ", ".join(
        f"{name} {newest[name]}" for name in ("jax", "flax", "optax", "torch") if name in newest
    )
    head = f"`python -m benchmarks.gpu` on one {newest['device']} ({packages}), {day}. "
    return head + _rates(complete) + "\n\n" + _table(complete) + _tests(complete) + _paper(complete)


def _rates(complete: dict[str, dict]) -> str:
    """Return the sentence on the device's rates."""
    values = complete.get("device", {}).get("values", {})
    rates = [
        f"{value:,.0f} {name}" for name, value in values.items() if name.startswith(("TFLOP", "GB"))
    ]
    return f"The device was measured at {'; '.join(rates)}." if rates else ""


def _table(complete: dict[str, dict]) -> str:
    rows = ["| case | " + " | ".join(COLUMNS) + " |", "|" + "---|" * (1 + len(COLUMNS))]
    for name, one in complete.items():
        if name in SPECIAL:
            continue
        values = one["values"]
        cells = [
            form.format(values[column]) if values.get(column) is not None else "–"
            for column, form in COLUMNS.items()
        ]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _tests(complete: dict[str, dict]) -> str:
    values = complete.get("tests", {}).get("values")
    if values is None:
        return ""
    failed = values.get("failed", 0) + values.get("error", 0)
    # pytest's exit status is 1 if tests failed and above if it could not run them all.
    unfinished = ", and the others did not run" if values.get("exit status", 0) > 1 else ""
    return (
        f"\nOf the tests of `make test-gpu` {values.get('passed', 0)} passed and {failed} "
        f"failed{unfinished}.\n"
    )


def _paper(complete: dict[str, dict]) -> str:
    values = complete.get("paper", {}).get("values")
    if values is None:
        return ""
    scores = "; ".join(f"{name}: {means[-1]:.3f}" for name, means in values["scores"].items())
    part = " in its last part, which continued earlier ones" if values["continued"] else ""
    took = f"`{values['command']}` took {values['run s']:.0f} s{part}"
    return f"\n{took}. Score after the last task: {scores}.\n"
