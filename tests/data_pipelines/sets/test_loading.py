"""Loaders read once while it is asked for, for equal arguments, and anew afterwards."""

from everlight_data.image_requests import load_images
from everlight_data.images.digits import load_digits
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import ImageRequest
from everlight_data.sets.loading import loading_once


def test_equal_requests_are_loaded_once_within_the_context(monkeypatch):
    calls = []

    def digits(request):
        calls.append(request.classes)
        return load_digits()

    monkeypatch.setitem(IMAGE_SETS, "digits", digits)
    with loading_once():
        first = load_images(ImageRequest("digits"))
        assert load_images(ImageRequest("digits")) is first
        assert load_images(ImageRequest("digits", classes=5)) is not first
    assert calls == [None, 5]
    assert load_images(ImageRequest("digits")) is not first
