"""Draw the pictures of `docs/pages/guide/pictures.md` from a run of `everlight paper cl-metrics`.

python -m docs.tools.make_pictures runs/paper-cl-metrics-demo
"""

import sys
from pathlib import Path

import colour
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from everlight import plots
from everlight.metrics import Costs, count_model_memory, summarize_runs

FOLDER = Path(__file__).parents[1] / "pictures"
METHODS = ("Naive", "Cumulative", "EWC")
MATRICES, OVER_TIME = "accuracy by task", "accuracy"
FIELDS = (MATRICES, OVER_TIME, "steps", "stored_samples", "samples")
FIELDS += ("parameter_copies", "operations", "batch_size")


def draw_learning(run: Path) -> None:
    """Draw accuracy matrix, accuracy and forgetting over time, and criteria; task-incremental."""
    with np.load(run / "results.npz", allow_pickle=False) as results:
        recorded = {
            name: {
                field: jnp.asarray(results[f"task-incremental/{name}/{field}"]) for field in FIELDS
            }
            for name in METHODS
        }
    matrices = {name: arrays[MATRICES] for name, arrays in recorded.items()}
    curves = {name: arrays[OVER_TIME] for name, arrays in recorded.items()}
    canvas = plt.figure(figsize=(11, 7.6), layout="constrained")
    places = [canvas.add_subplot(2, 2, place) for place in (1, 2, 3)]
    spider = canvas.add_subplot(2, 2, 4, projection="polar")
    plots.plot_accuracy_matrix(matrices["EWC"].mean(axis=0), places[0]).set_title("EWC")
    canvas.colorbar(places[0].images[0], ax=places[0], label="accuracy")
    plots.plot_accuracy_over_time(curves, places[1]).legend()
    plots.plot_forgetting(matrices, places[2])
    plots.plot_criteria({name: _criteria(recorded, name) for name in METHODS}, spider)
    canvas.savefig(FOLDER / "plots_learning.png", dpi=90)


def _criteria(recorded: dict, name: str) -> dict:
    arrays, naive = recorded[name], recorded["Naive"]
    runs, tasks = arrays["steps"].shape
    memory = count_model_memory(1, int(arrays["parameter_copies"]), tasks)
    costs = Costs(
        model_memory=jnp.broadcast_to(memory, (runs, tasks)),
        sample_memory=arrays["stored_samples"].astype(jnp.float32),
        lifetime_memory=jnp.sum(arrays["samples"], axis=1).astype(jnp.float32),
        operations=arrays["operations"] * jnp.diff(arrays["steps"], prepend=0),
        pass_operations=naive["operations"] * jnp.ceil(naive["samples"] / naive["batch_size"]),
    )
    return summarize_runs(arrays[MATRICES], costs).mean


def draw_illuminants() -> None:
    """Draw CIE's illuminants and black bodies as the standard observer sees them."""
    observer = colour.MSDS_CMFS["CIE 1931 2 Degree Standard Observer"]
    spectra = colour.SDS_ILLUMINANTS
    illuminants = {
        label: np.stack(
            [_observed_color(observer, spectra[name]) for name in spectra if name[0] == letter]
        )
        for label, letter in (("daylight", "D"), ("fluorescent", "F"))
    }
    canvas, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
    plots.plot_chromaticity(illuminants, (observer.wavelengths, observer.values.T), axes).legend()
    canvas.savefig(FOLDER / "plots_illuminants.png", dpi=90)


def _observed_color(observer: colour.MultiSpectralDistributions, illuminant: object) -> np.ndarray:
    return illuminant.copy().align(observer.shape).values @ observer.values


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give the folder of a run of `everlight paper cl-metrics`")
    plt.switch_backend("Agg")
    draw_learning(Path(sys.argv[1]))
    draw_illuminants()
