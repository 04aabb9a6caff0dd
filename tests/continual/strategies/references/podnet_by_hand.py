"""PODNet's losses in float64 NumPy: those of the official code and of the paper."""

import numpy as np

from tests.continual.small_net import CLASSES, DATA, LABELS, SHIFT

WIDTH, PROXIES, LIFT = 4, 3, 0.3
ONE, TWO = (2, 3, 2), (3, 1, 2)
"""Height, width and channels of the network's two layers of maps."""


def random_params(seed):
    """Draw two layers of maps, features of either sign, and three proxies per class."""
    rng = np.random.default_rng(seed)
    return {
        "one": rng.normal(size=(DATA.shape[1], np.prod(ONE))),
        "two": rng.normal(size=(np.prod(ONE), np.prod(TWO))) * 0.5,
        "three": rng.normal(size=(np.prod(TWO), WIDTH)),
        "kernel": rng.normal(size=(WIDTH, PROXIES, CLASSES)) * rng.uniform(0.5, 2, CLASSES),
        "scale": np.array(8.0),
    }


START, OLD = random_params(16), random_params(2)


def forward_of(params, index, lift=LIFT, shift=SHIFT):
    """Return maps and features; in evaluation mode the lift is 0, and without a key the shift."""
    one = np.tanh((DATA[index] + shift) @ params["one"]) + lift
    two = np.tanh(one @ params["two"]) + lift
    return one.reshape(-1, *ONE), two.reshape(-1, *TWO), two @ params["three"]


def unit(vector):
    return vector / np.linalg.norm(vector)


def stable_cosine_distance(first, second):
    """Compute `distance.stable_cosine_distance`: squared distances of all pairs, at least 0."""
    rows = np.concatenate([first, second])
    squares = np.sum(rows**2, axis=1)
    away = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0)
    np.fill_diagonal(away, 0)
    return away[: len(first), len(first) :]


def reduce_proxies(near):
    """Compute `CosineClassifier._reduce_proxies` with "softmax" and γ = 1; class proxies adjoin."""
    of_class = near.reshape(len(near), -1, PROXIES)
    powers = np.exp(of_class)
    return np.sum(of_class * powers / powers.sum(axis=2, keepdims=True), axis=2)


def official_similarities(params, feature):
    """Return the classifier's logits at "neg_stable_cosine_distance", as all configurations do."""
    proxies = params["kernel"].transpose(2, 1, 0).reshape(-1, WIDTH)
    proxies = proxies / np.linalg.norm(proxies, axis=1, keepdims=True)
    return reduce_proxies(-stable_cosine_distance(unit(feature)[None], proxies))[0]


def paper_similarities(params, feature):
    """Return, class by class, the mean of its proxies' cosines, weighted by their softmax."""
    results = []
    for label in range(CLASSES):
        near = [unit(proxy) @ unit(feature) for proxy in params["kernel"][:, :, label].T]
        powers = np.exp(near)
        results.append(near @ powers / powers.sum())
    return np.array(results)


def paper_nca(scores, label, seen, scale, margin):
    others = [np.exp(scale * scores[c]) for c in seen if c != label]
    return max(0.0, -np.log(np.exp(scale * (scores[label] - margin)) / np.sum(others)))


def official_nca(scores, label, seen, scale, margin):
    """Compute `losses.nca`, line by line, with the seen classes in place of all."""
    similarities = scale * (scores[seen] - margin)
    rows = seen.index(label)
    similarities = similarities - similarities.max()
    disable_pos = np.zeros_like(similarities)
    disable_pos[rows] = similarities[rows]
    denominator = similarities - disable_pos
    return -(similarities[rows] - np.log(np.exp(denominator).sum()))


def official_pod(old, new):
    """Compute `losses.pod` of one layer with `collapse_channels="spatial"`, images first."""
    rows = []
    for maps in (old, new):
        # Channels come before height and width, as there.
        squares = maps.transpose(0, 3, 1, 2) ** 2
        high = squares.sum(axis=3).reshape(len(maps), -1)
        wide = squares.sum(axis=2).reshape(len(maps), -1)
        joined = np.concatenate([high, wide], axis=-1)
        rows.append(joined / np.linalg.norm(joined, axis=1, keepdims=True))
    return np.linalg.norm(rows[0] - rows[1], axis=-1)


def written_loss(params, index, known, new, spatial, flat, own_loss, margin=0.6):
    """Return the samples' classification loss plus, with known classes, distillation."""
    one, two, features = forward_of(params, index)
    old_one, old_two, old = forward_of(OLD, index, lift=0.0)
    seen = sorted({*known, *new})
    similarities = paper_similarities if own_loss is paper_nca else official_similarities
    current = np.mean(
        [
            own_loss(similarities(params, f), y, seen, params["scale"], margin)
            for f, y in zip(features, LABELS[index], strict=True)
        ]
    )
    if not known:
        return current, current
    cosines = [unit(a) @ unit(b) for a, b in zip(features, old, strict=True)]
    pod = (official_pod(old_one, one) + official_pod(old_two, two)) / 2
    weight = np.sqrt(len(seen) / len(new))
    stored = flat * np.mean(1 - np.array(cosines)) + spatial * np.mean(pod)
    return current, current + weight * stored
