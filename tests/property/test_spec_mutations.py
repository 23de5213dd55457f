"""Whatever happens to a good spec, it loads or says why: never another exception."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec

GOOD = """\
name: warm-128k
random_seed: 20261018
encoding: {path: ./tokenizer, revision: main, template_kwargs: {thinking: false}}
cache: {engine: vllm, page_size: 16, hit_quantum: 256, speculative: true}
dp_ranks: 16
requests:
  body_len: 131072
  output_len: 1024
  cached: {min_ratio: 0.90, tokens: 1024}
  prefix: {shared_by: group, groups: 4}
  task: {name: copy}
splits: {seed: {per_rank: 1, shape: full}, check: {per_rank: 1}, formal: {total: 640}}
"""
CONTENT = spec_file.parse(GOOD, "good.yaml").content
TOKENS = [
    ": ",
    "{",
    "}",
    "[",
    "]",
    "- ",
    "\n",
    "  ",
    "'",
    '"',
    "&a ",
    "*a",
    "!!int ",
    "!",
    "|",
    ">",
    "#",
    "%",
]
TOKENS += [
    "@",
    "~",
    "null",
    "no",
    "1e6",
    "-1",
    "0",
    "1_0",
    "\\",
    "\\ud800",
    "\\U00110000",
    "\t",
    "---\n",
    "...\n",
]
TOKENS += [
    "? ",
    "<<",
    "0x",
    "0b_",
    "0_",
    "1:2",
    ".nan",
    "1.e+999",
    "9" * 30,
    "\u2028",
    "\x85",
    "\r",
    "\ufeff",
    "=",
]
TOKENS += ["rule", "max_tokens", "per_rank", "name", "path", "group", "total"]

edits = st.lists(
    st.tuples(
        st.integers(0, len(GOOD)),
        st.integers(0, 12),
        st.one_of(st.sampled_from(TOKENS), st.text(max_size=2)),
    ),
    min_size=1,
    max_size=5,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of each key in a nest of mappings."""
    inner = [paths(v, (*path, k)) for k, v in value.items()] if isinstance(value, dict) else []
    return [path, *(p for found in inner for p in found)]


def outcome(read: Callable[[Any, str], Spec], value: Any, place: str) -> Spec | WlgenError:
    """Return the spec that a reader gives, or the error that it raises; no other exception passes."""
    try:
        return read(value, place)
    except WlgenError as failure:
        return failure


def holds(found: Spec | WlgenError, place: str) -> bool:
    """Return whether a spec survives its manifest, or an error says at least one thing about the place."""
    if isinstance(found, WlgenError):
        return bool(found.problems) and all(problem.place.startswith(place) for problem in found.problems)
    again = spec_file.from_content(found.content, "m")
    return again.content == found.content and len(spec_file.fingerprint(again.content)) == 64


@settings(max_examples=400, deadline=None)
@given(edits)
def test_an_edited_text_loads_or_is_refused(changes):
    text = GOOD
    for at, cut, put in changes:
        text = text[:at] + put + text[at + cut :]
    assert holds(outcome(spec_file.parse, text, "s.yaml"), "s.yaml")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(paths(CONTENT)[1:]), values, st.booleans())
def test_edited_content_loads_or_is_refused(path, value, beside):
    """beside: a key of any name joins the mapping, in place of a new value for a known key."""
    content = copy.deepcopy(CONTENT)
    *around, key = path
    inside = content
    for name in around:
        inside = inside[name]
    inside[f"{key}_" if beside else key] = value
    assert holds(outcome(spec_file.from_content, content, "m.json"), "m.json")
