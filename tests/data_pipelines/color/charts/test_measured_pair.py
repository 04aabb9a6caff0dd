"""Names under which a run's folder keeps the measurements of a pair."""

import numpy as np

from everlight_data.color.charts.measured_pair import MeasuredPair, MeasuredView


def test_a_pair_comes_back_from_its_stored_arrays(rng):
    main, second = (
        MeasuredView(rng.normal(size=9), rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5)))
        for _ in range(2)
    )
    pair = MeasuredPair(np.eye(3), main, second)
    arrays = pair.to_arrays()
    # Runs of earlier versions have these names.
    names = "transform moments_main image_main mask_main moments_second image_second mask_second"
    assert list(arrays) == names.split()
    assert arrays["image_second"] is second.image
    shuffled = dict(reversed(arrays.items()))
    again = MeasuredPair.from_arrays(shuffled)
    assert again.transform is pair.transform
    for view in ("main", "second"):
        for value, stored in zip(getattr(again, view), getattr(pair, view), strict=True):
            assert value is stored
