"""Names with arguments in one text."""

import pytest

from everlight.calls import parse_call


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cnn", ("cnn", (), {})),
        ("mlp:256,128", ("mlp", (256, 128), {})),
        ("adam:b1=0.8,nesterov=True", ("adam", (), {"b1": 0.8, "nesterov": True})),
        ("a:1,b=None", ("a", (1,), {"b": None})),
    ],
)
def test_a_name_and_its_arguments_are_parsed(text, expected):
    assert parse_call(text) == expected


def test_options_may_be_words_on_request():
    result = parse_call("iCaRL:classifier=nearest mean,temperature=2", words=True)
    assert result == ("iCaRL", (), {"classifier": "nearest mean", "temperature": 2})
    for text in ("a:b", "a:b=", "a:1=c"):
        with pytest.raises(ValueError, match="is neither a number nor NAME=NUMBER"):
            parse_call(text, words=True)


@pytest.mark.parametrize("text", ["a:b", "a:1,", "a:=1", "a:b=", "a:1=2", "a:f(1)"])
def test_other_values_than_literals_are_refused(text):
    with pytest.raises(ValueError, match="is neither a number nor NAME=NUMBER"):
        parse_call(text)
