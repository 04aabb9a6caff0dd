"""JSON with the place of every value in the text, for editors that keep all other characters.

As in YAML, by which libcamera reads its JSON files, a comma may follow the last value of a list or
object.
"""

import json
import re
from typing import Any, NamedTuple

MAX_DEPTH = 60
"""Limit on the depth of lists and objects in each other."""
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null'
)


class Node(NamedTuple):
    """A value of a JSON text: nodes in a dict or list, or else a text, number, bool or None.

    `text[start:end]` is the value as written.
    """

    value: Any
    start: int
    end: int

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def parse_with_spans(text: str) -> Node:
    """Parse a JSON text whose objects have every name once.

    Raises:
      ValueError: the text is not JSON, an object has a name twice, or values are deeper than
        `MAX_DEPTH`; the message has the line.
    """
    node = _parse(text, _skip(text, 0), 0)
    if (end := _skip(text, node.end)) != len(text):
        raise _error(text, end, "a second value")
    return node


def _parse(text: str, start: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise _error(text, start, f"values deeper than {MAX_DEPTH}")
    opening = text[start : start + 1]
    if opening in ("{", "["):
        return _parse_members(text, start, depth)
    match = _SCALAR.match(text, start)
    if match is None:
        raise _error(text, start, "no value")
    return Node(json.loads(match[0]), start, match.end())


def _parse_members(text: str, start: int, depth: int) -> Node:
    """Return the list or object that begins at `start`."""
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    members: dict[str, Node] = {}
    place = _skip(text, start + 1)
    while text[place : place + 1] != closing:
        name = str(len(members))
        if is_object:
            key = _parse(text, place, depth + 1)
            place = _skip(text, key.end)
            if not isinstance(key.value, str) or text[place : place + 1] != ":":
                raise _error(text, place, "no name with a colon")
            name, place = key.value, _skip(text, place + 1)
            if name in members:
                raise _error(text, place, f"the name {name!a} twice in an object")
        members[name] = _parse(text, place, depth + 1)
        place = _skip(text, members[name].end)
        separator = text[place : place + 1]
        if separator == ",":
            place = _skip(text, place + 1)
        elif separator != closing:
            raise _error(text, place, f"neither a comma nor {closing}")
    return Node(members if is_object else list(members.values()), start, place + 1)


def _skip(text: str, place: int) -> int:
    """Return the place after white space."""
    match = _SPACE.match(text, place)
    return place if match is None else match.end()


def _error(text: str, place: int, reason: str) -> ValueError:
    return ValueError(f"line {text.count(chr(10), 0, place) + 1} has {reason}")
