"""JSON with places: values as Python's own reader has them, and the text of each."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlight_data.formats.json_spans import MAX_DEPTH, parse_with_spans

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    scalars.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
    max_leaves=12,
)


@given(tree=trees, indent=st.none() | st.integers(0, 3))
def test_values_are_those_of_pythons_reader(tree, indent):
    text = json.dumps(tree, indent=indent)
    node = parse_with_spans(f" {text}\r\n")
    assert node.plain() == json.loads(text)
    assert f" {text}\r\n"[node.start : node.end] == text


def test_places_are_those_of_the_values_as_written():
    text = '{"a": [1.50, {"b":  "x\\n"}],}'
    node = parse_with_spans(text)
    second = node.value["a"].value[1]
    assert text[slice(*second[1:])] == '{"b":  "x\\n"}'
    assert text[slice(*second.value["b"][1:])] == '"x\\n"'
    assert text[slice(*node.value["a"].value[0][1:])] == "1.50"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 has no value"),
        ('{"a": 1', "neither a comma nor }"),
        ('{"a" 1}', "no name with a colon"),
        ("{1: 2}", "no name with a colon"),
        ('{"a": 1,\n "a": 2}', "line 2 has the name 'a' twice"),
        ("[1 2]", "neither a comma nor ]"),
        ("[,]", "no value"),
        ("[01]", "neither a comma nor ]"),
        ("[NaN]", "no value"),
        ("[1] []", "a second value"),
        ('["a\nb"]', "no value"),
        ("[" * (MAX_DEPTH + 2), f"deeper than {MAX_DEPTH}"),
    ],
)
def test_other_texts_are_refused_with_the_line(text, message):
    with pytest.raises(ValueError, match=message):
        parse_with_spans(text)
