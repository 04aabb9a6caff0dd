"""Tables and figures of a finished run for a paper, in LaTeX and PDF."""

from pathlib import Path

from everlight_data.runs.finished_runs import matrix_name, score_names
from everlight_data.writing import written_whole
from everlight_experiments.report.cells import (
    LEVEL,
    dash,
    final_cell,
    interval_text,
    sentence,
    spread,
)
from everlight_experiments.report.over_time import learns_at_once, mean_matrix
from everlight_experiments.report.plots import highest_curves, plot_curves, plot_matrices
from everlight_experiments.report.run_tables import LoadedRun, run_criteria
from everlight_experiments.report.writer import file_names

ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
"""LaTeX of characters that mean something else there."""


BASELINES = "naive", "Naive", "finetune", "none", "SGD"
"""Names of plain finetuning in results, which figures always show."""


def write_latex(run: LoadedRun) -> Path:
    """Write tables.tex, a table per setting with final scores, their intervals and forgetting."""
    head = (
        f"% {run.folder.resolve().name}: mean and standard deviation over seeds; Student's "
        f"{LEVEL:.0%} interval, cut to [0, 1].\n% It needs \\usepackage{{booktabs}}."
    )
    tables = (latex_table(run, setting) for setting in run.methods)
    path = run.folder / "tables.tex"
    with written_whole(path) as unfinished:
        text = "\n\n".join((head, *tables)) + "\n"
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def latex_table(run: LoadedRun, setting: str) -> str:
    """Return a table with a row per method, and its name in a comment before it."""
    criteria, scores = run_criteria(run.arrays), score_names(run.arrays)
    header = ["method"]
    rows = [[method] for method in run.methods[setting]]
    for score in scores:
        forgetting = "forgetting" if score == scores[0] else f"forgetting of {score}"
        header += [f"final {score}", f"{LEVEL:.0%} interval", forgetting]
        for row in rows:
            final_scores, forgetting_scores = (
                criteria[f"{setting}/{row[0]}/{name}"] for name in (f"final {score}", forgetting)
            )
            row += [
                final_cell(final_scores),
                interval_text(final_scores),
                dash(spread(forgetting_scores)),
            ]
    head, *body = (" & ".join(map(escape, row)) + r" \\" for row in (header, *rows))
    return "\n".join(
        (
            f"% {' '.join(setting.split())}",
            rf"\begin{{tabular}}{{l{'c' * (len(header) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
        )
    )


def escape(text: str) -> str:
    """Return a text on one line as LaTeX shows it."""
    escaped = "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))
    # A bracket or a star after the end of a line would be its option.
    return f"{{{escaped}}}" if escaped.startswith(("[", "*")) else escaped


def draw_figures(run: LoadedRun, folder: Path) -> None:
    """Draw the report's curves and matrices as PDF files in a folder.

    It prints which curves a panel leaves out.
    """
    order = list(dict.fromkeys(name for names in run.methods.values() for name in names))
    baseline = next((name for name in order if name in BASELINES), "")
    scores = score_names(run.arrays)
    files, settings = file_names(scores), file_names(list(run.methods))
    for score in scores:
        panels, matrices = {}, {}
        for setting, methods in run.methods.items():
            panels[setting], matrices[setting] = {}, {}
            for method in methods:
                over_time, by_task, steps = (
                    run.arrays[f"{setting}/{method}/{name}"]
                    for name in (score, matrix_name(score), "steps")
                )
                at_once = learns_at_once(steps)
                panels[setting][method] = over_time[:, -1:] if at_once else over_time
                matrices[setting][method] = mean_matrix(by_task, steps)
        path = folder / f"{files[score]}_over_time.pdf"
        plot_curves(path, panels, sentence(score), order=order, baseline=baseline)
        for setting, curves in panels.items():
            shown = highest_curves(curves, baseline)
            if left_out := [name for name in curves if name not in shown]:
                print(f"{path.name}: {setting} without {', '.join(left_out)}")
        for setting, means in matrices.items():
            path = folder / f"{files[score]}_matrices_{settings[setting]}.pdf"
            plot_matrices(path, means, score)
