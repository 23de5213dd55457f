"""YAML text into values: the language's traps are refused with what YAML would have made of them."""

from __future__ import annotations

import pytest

from wlgen.errors import WlgenError
from wlgen.strict.yaml import MOST_NESTED, read_yaml


def problems(text: str) -> list[str]:
    """Return the lines of every problem of a text."""
    try:
        _, found = read_yaml(text, "f")
    except WlgenError as failure:
        return list(map(str, failure.problems))
    return list(map(str, found.error().problems))


def test_values_are_those_of_json():
    text = "a: 1\nb: -2.5\nc: true\nd: null\ne: 'x'\nf: [a, \"1\", 1.0e+3]\ng: {h: {}}\n'1': +3\n"
    text += "i: |\n  l1\n  l2\n"
    value, found = read_yaml(text, "f")
    assert value == {
        "a": 1,
        "b": -2.5,
        "c": True,
        "d": None,
        "e": "x",
        "f": ["a", "1", 1000.0],
        "g": {"h": {}},
        "1": 3,
        "i": "l1\nl2\n",
    }
    assert not found
    assert {type(v) for v in value["f"]} == {str, float}


def test_yaml_1_1_booleans_are_booleans_and_keep_how_they_were_written():
    value, found = read_yaml("a: yes\nb: OFF", "f")
    assert value == {"a": True, "b": False}
    assert found.places.written["b",] == "OFF"


def test_every_key_has_the_line_it_stands_at():
    _, found = read_yaml("# top\n\na:\n  b: 1\n  c: [x,\n    y]\n", "f")
    assert found.places.lines == {
        (): 3,
        ("a",): 3,
        ("a", "b"): 4,
        ("a", "c"): 5,
        ("a", "c", 0): 5,
        ("a", "c", 1): 6,
    }


@pytest.mark.parametrize("written", ["1_000", "012", "0x10", "0b11", "1:30", "2026-10-18", "08", "0o17", "="])
def test_what_is_no_plain_decimal_number_is_the_text_that_it_is(written):
    """YAML 1.1 would make 1000, 10, 16, 3, 90 and a date of these, and a person may mean something else."""
    value, found = read_yaml(f"a: {written}", "f")
    assert value == {"a": written}
    assert not found


@pytest.mark.parametrize(
    ("written", "number"),
    [("0.9e0", 0.9), ("1e5", 1e5), ("1.5E+3", 1500), (".5", 0.5), ("-2.", -2), ("0", 0)],
)
def test_plain_decimal_numbers_are_numbers(written, number):
    assert read_yaml(f"a: {written}", "f")[0] == {"a": number}


@pytest.mark.parametrize("written", [".inf", "-.INF", ".nan", "1.0e+999"])
def test_a_number_is_finite(written):
    assert problems(f"a: x\nb: {written}") == [f"f:2 b: expected a finite number, found {written}"]


@pytest.mark.parametrize("written", ["18446744073709551616", "-9223372036854775809", "9" * 5000])
def test_an_integer_beyond_64_bits_is_told_the_most_and_its_model_knows_better(written):
    (problem,) = problems(f"a: x\nb: {written}")
    assert problem.startswith("f:2 b: expected a whole number of at most 18446744073709551615, found ")
    _, found = read_yaml(f"b: {written}", "f")
    found.add(("b",), expected="at most 100", found="more")
    assert str(found.error()) == "f:1 b: expected at most 100, found more"


def test_the_whole_range_of_64_bits_is_plain():
    value, found = read_yaml("[-9223372036854775808, 18446744073709551615]", "f")
    assert value == [-(2**63), 2**64 - 1]
    assert not found


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("on", "on, which YAML reads as true. Quote it: 'on'."),
        ("1", "1, which YAML reads as a number. Quote it: '1'."),
        ("<<", "the merge key <<. Write the keys out."),
        ("&x k", "the anchor &x. Write the keys out."),
    ],
)
def test_a_key_is_text(key, found):
    assert problems(f"{key}: {{}}")[0].split(": expected a key that is text, found ")[1] == found


def test_a_key_that_is_a_mapping_is_most_often_an_unquoted_template():
    expected = "f:1 a: expected keys that are text, found a mapping as a key. Quote a value that holds {{ }}."
    assert problems("a: {{ name }}") == [expected]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: &x 1\nb: 2", "f:1 a: expected a plain value, found the anchor &x."),
        ("a: 1\nb: *x", "f:2 b: expected a plain value, found the alias *x."),
        ("a: !!int '3'", "f:1 a: expected a plain value, found the tag !!int."),
        (
            "a: !!python/object/apply:os.system [ls]",
            "f:1 a: expected a plain value, found the tag !!python/obj",
        ),
        ("a: ! x", "f:1 a: expected a plain value, found the tag !."),
    ],
)
def test_anchors_aliases_and_tags_are_refused(text, found):
    (problem,) = problems(text)
    assert problem.startswith(found)


def test_a_few_lines_of_aliases_do_not_become_gigabytes():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    told = problems("\n".join(lines))
    assert told[-1] == f"and {30 + 29 * 10 - 10} more lines like these"
    assert len(told) == 11


def test_depth_is_limited_and_length_is_not():
    deep = "[" * (MOST_NESTED - 1) + "1" + "]" * (MOST_NESTED - 1)
    assert problems(deep) == []
    assert problems(f"[{', '.join(['[1]'] * 3 * MOST_NESTED)}]") == []


def test_a_key_without_a_value_is_not_null():
    assert problems("a:\nb: null\nc: ~") == [
        "f:1 a: expected a value, found nothing. Give it a value, or indent the lines that belong to it."
    ]
    assert problems("a: {total:640}") == [
        "f:1 a.total:640: expected a value, found nothing. Put a space after the colon: `total: 640`."
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:\n\tb: 1", "f:2: expected YAML, found a tab. Use spaces."),
        ("a: [1, 2\nb: 3", "f:2: expected YAML, found a bracket that is not closed."),
        ("a: 'x\nb: 3\n", "f:3: expected YAML, found a quote that is not closed."),
        ("a: 1\n- b", "f:2: expected YAML, found a line that does not fit those above."),
        ("a: x\nb:16\nc: 1", "f:2: expected YAML, found a colon without a space after it."),
        ("a: b: c", "f:1: expected YAML, found a colon where no key can stand."),
        ("a: @x", "f:1: expected YAML, found a value that begins with @."),
        ("a: 1\n---\nb: 2", "f:2: expected YAML, found a second document after ---."),
        ("{a: 1}\n{a: 2}", "f:2: expected YAML, found more text after the end of the document."),
        ("a: 1\nb: \a", "f:2: expected text, found the control character U+0007."),
        ('a: "\\0"', "f:1 a: expected text, found the control character U+0000."),
        ('"\\ud800": 1', "f:1 \\ud800: expected text, found the control character U+D800."),
        ('a: 1\nb: "\\U00110000"', "f:2: expected YAML, found a value it cannot hold"),
        ("%YAML 9.9\n---\na: 1", "f:1: expected YAML, found incompatible YAML document"),
        ("[" * (MOST_NESTED + 2), f"f:1: expected YAML, found more than {MOST_NESTED} levels of nesting"),
    ],
)
def test_what_is_not_one_yaml_document_is_told_at_its_line(text, problem):
    (found,) = problems(text)
    assert found.startswith(problem)


def test_a_value_that_yaml_spoils_is_told_once_and_a_duplicate_beside_it():
    _, found = read_yaml("a: {b: .nan, b: 1}", "f")
    found.add(("a", "b"), expected="a whole number", found=".nan")
    assert [str(p).split(", found")[0] for p in found.error().problems] == [
        "f:1 a.b: expected a finite number",
        "f:1 a.b: expected b once",
    ]


@pytest.mark.parametrize("line", ["name: !!int warm-128k", "name: !!float ten"])
def test_a_tag_that_calls_a_text_a_number_is_one_clear_line(line):
    kind = line.split("!!")[1].split()[0]
    (found,) = problems(line + "\n")
    assert found.startswith(f"f:1 name: expected a plain value, found the tag !!{kind}. ")
