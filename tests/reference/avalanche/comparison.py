"""everlight's strategies beside avalanche-lib's: step by step, and in the mean over seeds.

python -m everlight_experiments.bench --agreement digits
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from everlight_data.errors import DataError
from everlight_experiments.bench.agreement_cases import MEAN_CASES, NAIVE, STEP_CASES, Case
from everlight_experiments.bench.agreement_material import (
    CLASSES,
    PER_CLASS,
    TASKS,
    Material,
    digits_material,
    order_of,
    tiny_imagenet_material,
)
from everlight_experiments.bench.agreement_runs import (
    Asked,
    Place,
    Plan,
    Trained,
    Trainer,
    ask,
    places_of,
    plain_batches,
    protocol_of,
)


class Steps(NamedTuple):
    """Greatest difference of any weight after the last task; of any score, relative to the greatest
    of all, where no weight is trained."""

    name: str
    settings: dict
    differs: str
    as_shipped: float
    equated: float
    effect: float | None
    """The same between Avalanche's run and its plain finetuning: what agrees is not nothing."""


def compare_steps(
    python: str, material: Material, plan: Plan, cases: Sequence[Case]
) -> list[Steps]:
    """Every case in one run of the same weights, batches and draws."""
    (place,) = places_of(material, plan, 1)
    pairs, asked = [], []
    for case in cases:
        shipped = Trainer(case, material.net, plan)
        changed = case.equated is not None or case.adapt is not None
        equated = Trainer(case, material.net, plan, equated=True) if changed else shipped
        ours = shipped.train(place)
        pairs.append((ours, equated.train(place) if changed else ours))
        if case.own_batches:
            batches = equated.batches(place)
        else:
            batches = plain_batches(place, protocol_of(case, plan).epochs)
        asked.append(Asked(case, place, batches, True))
    plain = Asked(NAIVE, place, plain_batches(place, plan.epochs), False)
    (*answers, finetuned), _ = ask(python, [*asked, plain])
    return [
        Steps(
            case.name,
            dict(case.settings),
            case.differs,
            _apart(ours, theirs),
            _apart(same, theirs),
            _greatest(finetuned, theirs, ours.weights) if "head/kernel" in theirs else None,
        )
        for case, (ours, same), theirs in zip(cases, pairs, answers, strict=True)
    ]


def _apart(ours: Trained, theirs: dict[str, np.ndarray]) -> float:
    if "head/kernel" not in theirs:
        scale = np.abs(theirs["scores"]).max()
        return float(np.abs(ours.scores - theirs["scores"]).max() / scale)
    return _greatest(ours.weights, theirs, ours.weights)


def _greatest(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], names: Iterable[str]
) -> float:
    return max(float(np.abs(first[name] - second[name]).max()) for name in names)


class Paired(NamedTuple):
    """A final accuracy over seeds, in the mean, and how much everlight's is above Avalanche's."""

    ours: float
    equated: float
    theirs: float
    above: float
    error: float
    """Standard error of that, over seeds that share classes, weights and perhaps batches."""
    equated_above: float
    equated_error: float


class Means(NamedTuple):
    """A method over seeds; seconds are of a run."""

    name: str
    settings: dict
    differs: str
    told: Paired
    not_told: Paired
    our_seconds: float
    their_seconds: float


def compare_means(
    python: str, material: Material, plan: Plan, cases: Sequence[Case], seeds: int
) -> tuple[list[Means], dict[str, str]]:
    """Every case over seeds; and Avalanche's versions."""
    places = places_of(material, plan, seeds)
    plain = {
        epochs: [plain_batches(place, epochs) for place in places] for epochs in {1, plan.epochs}
    }
    asked = [
        Asked(case, place, batches, False)
        for case in cases
        for place, batches in zip(places, plain[protocol_of(case, plan).epochs], strict=True)
    ]
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(ask, python, asked)
        trained = []
        for case in cases:
            ours, seconds = _over_seeds(case, places)
            changed = case.equated is not None or case.adapt is not None
            equated = _over_seeds(case, places, equated=True)[0] if changed else ours
            trained.append((ours, equated, seconds))
            jax.clear_caches()
        answers, versions = waited.result()
    out = []
    for number, (case, (ours, equated, seconds)) in enumerate(zip(cases, trained, strict=True)):
        theirs = answers[number * seeds : (number + 1) * seeds]
        rows = np.array(
            [
                [
                    accuracies(each["scores"], place)
                    for each, place in zip(side, places, strict=True)
                ]
                for side in (ours, equated, theirs)
            ]
        )
        told, not_told = (pair(*rows[..., column]) for column in range(2))
        took = float(np.median([each["seconds"] for each in theirs]))
        out.append(
            Means(case.name, dict(case.settings), case.differs, told, not_told, seconds, took)
        )
    return out, versions


def _over_seeds(case: Case, places: Sequence[Place], equated: bool = False) -> tuple:
    """Scores under every seed, and the median seconds of a run once it is compiled."""
    first, seconds, out = places[0], [], []
    trainer = Trainer(case, first.material.net, first.plan, equated)
    for place in places:
        begin = time.perf_counter()
        out.append({"scores": trainer.train(place).scores})
        seconds.append(time.perf_counter() - begin)
    return out, float(np.median(seconds[1:] or seconds))


def accuracies(scores: Float[np.ndarray, "m c"], place: Place) -> tuple[float, float]:
    """Mean over tasks of the accuracy on their test samples: the task told, and not."""
    labels, order = place.material.labels[place.material.trained :], order_of(place.seed)
    task = np.argmax((labels[:, None, None] == order).any(axis=2), axis=1)
    own = (np.arange(CLASSES) == order[task][..., None]).any(axis=1)
    right = [np.where(mask, scores, -np.inf).argmax(axis=1) == labels for mask in (own, own | True)]
    told, not_told = (
        float(np.mean([good[task == number].mean() for number in range(TASKS)])) for good in right
    )
    return told, not_told


def pair(
    ours: Float[np.ndarray, "seeds"],
    equated: Float[np.ndarray, "seeds"],
    theirs: Float[np.ndarray, "seeds"],
) -> Paired:
    """The comparison, seed by seed."""

    def error(difference: Float[np.ndarray, "seeds"]) -> float:
        return float(difference.std(ddof=1) / np.sqrt(len(difference)))

    means = (float(each.mean()) for each in (ours, equated, theirs))
    first, second = ours - theirs, equated - theirs
    return Paired(*means, float(first.mean()), error(first), float(second.mean()), error(second))


Compared = Literal["digits", "tiny-imagenet"]
SEEDS = 10
STEP_PLAN = Plan(epochs=2)
MEAN_PLAN = Plan(epochs=3)
MATERIALS: dict[Compared, Callable[[], Material]] = {
    "digits": lambda: digits_material((PER_CLASS, 36)),
    "tiny-imagenet": lambda: tiny_imagenet_material((PER_CLASS, 50), 16),
}


class Agreement(NamedTuple):
    """Of one material."""

    compared: Compared
    versions: dict[str, str]
    seconds: float
    steps: list[Steps]
    means: list[Means]


def compare(
    python: str, compared: Compared, cases: Sequence[str] = (), seeds: int = SEEDS
) -> Agreement:
    """Both comparisons.

    Args:
      python: of an environment with avalanche-lib and quadprog.
      compared: what is learnt.
      cases: names; none is all.
      seeds: of the means.

    Raises:
      DataError: Avalanche does not run there, or a case that there is not.
    """
    names = {case.name: None for case in (*STEP_CASES, *MEAN_CASES)}
    unknown = [name for name in cases if name not in names]
    if unknown:
        raise DataError(f"no case {unknown[0]!a} to compare; there are {', '.join(names)}")
    begin = time.perf_counter()
    material = MATERIALS[compared]()
    steps, means = (
        [case for case in every if not cases or case.name in cases]
        for every in (STEP_CASES, MEAN_CASES)
    )
    stepped = compare_steps(python, material, STEP_PLAN, steps)
    meant, versions = compare_means(python, material, MEAN_PLAN, means, seeds)
    return Agreement(compared, versions, time.perf_counter() - begin, stepped, meant)
