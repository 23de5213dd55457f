"""YAML text into plain values, with the line of each key. What YAML would silently change is an error."""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

import yaml
from yaml.composer import ComposerError

from wlgen.errors import error
from wlgen.strict.problems import KeyPath, Places, Problems, clip

MOST_NESTED = 32  # deeper is an accident, and the composer recurses
Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"

_TAG = "tag:yaml.org,2002:"
_INTEGERS = range(-(2**63), 2**64)  # the integers that every reader of the manifest's JSON can hold
_MOST_DIGITS = 64
_NUMBERS = {
    "int": re.compile(r"^[-+]?(0|[1-9][0-9]*)$"),
    "float": re.compile(
        r"^[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|Inf|INF))$"
        r"|^\.(nan|NaN|NAN)$"
    ),
}
_NO_SPACE = re.compile(r"\s*\w+:[^\s:/]")
_STUMBLES = ("mapping values are not allowed", "could not find expected ':'")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")  # a quoted "\x1b" brings such a character in
_TRUE = ("true", "yes", "on")
_ONE_FILE = "Keep one spec a file: delete --- and what follows, or move it to a file of its own."
# What PyYAML says of a text that is not YAML: (a part of its words, what was found, what to do).
_SYNTAX = (
    (
        "mapping values are not allowed",
        "a colon where no key can stand",
        "Indent the keys of one mapping alike, and quote a value that holds ': '.",
    ),
    ("could not find expected ':'", "a line without a colon", "Write `key: value`."),
    ("'\\t'", "a tab", "Use spaces."),
    ("expected <block end>", "a line that does not fit those above", "Indent the keys of one mapping alike."),
    ("expected ',' or", "a bracket that is not closed", "Close it, or put commas between its entries."),
    ("found unexpected end of stream", "a quote that is not closed", "Close it."),
    ("'@' that cannot", "a value that begins with @", "Quote it."),
    ("'`' that cannot", "a value that begins with a backtick", "Quote it."),
    ("'%' that cannot", "a value that begins with %", "Quote it."),
    ("another document", "a second document after ---", _ONE_FILE),
    ("<document start>", "more text after the end of the document", _ONE_FILE),
)


def read_yaml(text: str, source: str) -> tuple[Plain, Problems]:
    """Return the value of a text's one YAML document (None if it is empty), and the problems found so far.

    An infinite float and an integer of more than 64 bits are problems. A value with a problem is returned all
    the same, so that the caller can check the rest too, and add to the problems by each key's line.
    WlgenError where the text is not one YAML document.
    """
    text = text.removeprefix("\ufeff")
    composer, root = _compose(text, source)
    reading = _Reading(composer, source)
    value = None if root is None else reading.value(root, ())
    return value, reading.problems


class _Composer(yaml.SafeLoader):
    """Composes nodes, and notes aliases without resolving them: a few lines of aliases can mean gigabytes.

    Of YAML 1.1's unquoted values it resolves true, false, null and plain decimal numbers. 1_000, 0x10, 012,
    1:30 and 2026-10-18 stay text; where a number is expected, `number_remedy` says what to write instead.
    """

    def __init__(self, text: str) -> None:
        self.odd: dict[int, str] = {}  # id of a node -> the anchor, alias or tag that stands at it
        self.depth = 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node, as the base class does."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # (untyped in the stubs)
        if self.depth > MOST_NESTED:
            raise ComposerError(
                problem=f"more than {MOST_NESTED} levels of nesting", problem_mark=event.start_mark
            )
        if self.check_event(yaml.AliasEvent):
            self.get_event()  # type: ignore[no-untyped-call]  # (untyped in the stubs)
            node: yaml.Node | None = yaml.ScalarNode(f"{_TAG}str", f"*{event.anchor}", event.start_mark)
            self.odd[id(node)] = f"the alias *{event.anchor}"
            return node
        odd = f"the tag {event.tag.replace(_TAG, '!!')}" if event.tag else ""
        odd = f"the anchor &{event.anchor}" if event.anchor else odd
        event.anchor = None
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if odd:
            self.odd[id(node)] = odd
        return node


_Composer.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag in (f"{_TAG}bool", f"{_TAG}null")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _pattern in _NUMBERS.items():
    _Composer.add_implicit_resolver(f"{_TAG}{_kind}", _pattern, list("-+.0123456789"))


def _compose(text: str, source: str) -> tuple[_Composer, yaml.Node | None]:
    try:
        composer = _Composer(text)
    except yaml.reader.ReaderError as failure:
        place = f"{source}:{text.count(chr(10), 0, failure.position) + 1}"
        found = f"the control character U+{failure.character:04X}"
        raise error(place, expected="text", found=found, remedy="Delete it.") from failure
    try:
        return composer, composer.get_single_node()
    except yaml.MarkedYAMLError as failure:
        said = failure.problem or str(failure)
        found, remedy = next(((f, r) for words, f, r in _SYNTAX if words in said), ("", ""))
        found = found or said.removeprefix("found ")
        mark = failure.problem_mark or failure.context_mark
        line = mark.line if mark else composer.line
        # `body_len:16384` is text to YAML, which goes on and stumbles a line later.
        if (
            any(words in said for words in _STUMBLES)
            and line
            and _NO_SPACE.match(text.splitlines()[line - 1])
        ):
            line, found, remedy = line - 1, "a colon without a space after it", "Put a space there."
        raise error(f"{source}:{line + 1}", expected="YAML", found=found, remedy=remedy) from failure
    except (ValueError, OverflowError) as failure:  # PyYAML calls chr on "\U00110000", and int on any version
        place = f"{source}:{composer.line + 1}"
        raise error(place, expected="YAML", found=f"a value it cannot hold ({failure})") from failure


class _Reading:
    """Turns the nodes of one document into values, and collects the lines of keys and the problems."""

    def __init__(self, composer: _Composer, source: str) -> None:
        self._odd = composer.odd
        self._lines: dict[KeyPath, int] = {}
        self._written: dict[KeyPath, str] = {}
        self.problems = Problems(Places(source=source, lines=self._lines, written=self._written))

    def value(self, node: yaml.Node, path: KeyPath) -> Plain:
        """Return the value of a node whose key stands at `path`."""
        self._lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self._odd:
            remedy = "Write the value out, once at each place; a spec uses no anchors, aliases and tags."
            self.problems.add(path, expected="a plain value", found=self._odd[id(node)], remedy=remedy)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> Plain:
        values: dict[str, Plain] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node, path)
            if key is not None and key in values:
                found = f"a duplicate (first at line {self._lines[(*path, key)]})"
                expected, remedy = f"{clip(key)} once", "Keep one of the two."
                self.problems.add((*path, key), expected=expected, found=found, remedy=remedy, line=line)
            elif key is not None:
                values[key] = self.value(value_node, (*path, key))
        return values

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            kind = "mapping" if isinstance(node, yaml.MappingNode) else "list"
            remedy = "Quote a value that holds {{ }}." if kind == "mapping" else ""
            found = f"a {kind} as a key"
            self.problems.add(path, expected="keys that are text", found=found, remedy=remedy)
            return None
        text = str(node.value)
        self._lines.setdefault((*path, text), node.start_mark.line + 1)
        odd = self._odd.get(id(node)) or ("the merge key <<" if text == "<<" else "")
        if odd or node.tag != f"{_TAG}str":
            found = odd or f"{clip(text)}, which YAML reads as {_reading(node)}"
            remedy = "Write the keys out." if odd else f"Quote it: {clip(text)!r}."
            self.problems.add((*path, text), expected="a key that is text", found=found, remedy=remedy)
        self._check_text(text, (*path, text))
        return text

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Plain:
        text = str(node.value)
        quoted = getattr(node, "style", None) in ("'", '"')
        self._written[path] = f'"{text}"' if quoted else text
        kind = node.tag.removeprefix(_TAG)
        if kind == "null":
            if path and not text:
                name, colon, rest = str(path[-1]).partition(":")
                remedy = "Give it a value, or indent the lines that belong to it."
                remedy = f"Put a space after the colon: `{clip(name)}: {clip(rest)}`." if colon else remedy
                self.problems.add(path, expected="a value", found="nothing", remedy=remedy)
            return None
        if kind == "bool":
            return text.lower() in _TRUE
        if kind in _NUMBERS:
            return self._number(text, kind, path)
        self._check_text(text, path)
        return text

    def _check_text(self, text: str, path: KeyPath) -> None:
        if unsafe := _UNSAFE.search(text):
            found = f"the control character U+{ord(unsafe.group()):04X}"
            self.problems.add(path, expected="text", found=found, remedy="Delete it.")

    def _number(self, text: str, kind: str, path: KeyPath) -> Plain:
        try:
            return self._plain_number(text, kind, path)
        except (
            ValueError
        ):  # only a tag, such as `!!int ten`, calls a text a number; the tag is refused already
            return text

    def _plain_number(self, text: str, kind: str, path: KeyPath) -> Plain:
        if kind == "int":
            value = int(text[:_MOST_DIGITS])  # int() refuses thousands of digits; 64 are too many already
            if value not in _INTEGERS:
                expected = f"a whole number of at most {_INTEGERS[-1]}"
                self.problems.add(path, expected=expected, found=clip(text), weak=True)
            return value
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(number):
            self.problems.add(path, expected="a finite number", found=clip(text))
        return number


def _reading(node: yaml.Node) -> str:
    """Return what YAML reads in an unquoted scalar that is not text."""
    kind = node.tag.removeprefix(_TAG)
    if kind == "bool":
        return "true" if str(node.value).lower() in _TRUE else "false"
    return {"int": "a number", "float": "a number"}.get(kind, kind)
