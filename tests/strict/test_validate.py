"""pydantic's errors in the words of a problem, at the line of the key, whatever shape the grammar takes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from wlgen.strict.model import Strict, refusal
from wlgen.strict.validate import validate
from wlgen.strict.yaml import read_yaml


class Uniform(Strict):
    uniform: list[int]


class Request(Strict):
    length: int | Uniform
    weight: int = 1


class Grammar(Strict):
    requests: list[Request] = Field(examples=["[{length: 8}]"])


def problems(model: type[Strict], text: str) -> list[str]:
    """Return the lines of every problem that a model has with a text."""
    value, found = read_yaml(text, "f")
    assert (validate(model, value, (), found) is None) == bool(found)
    return list(map(str, found.error().problems))


def test_a_list_and_a_union_keep_the_lines_of_their_keys():
    text = (
        "requests:\n  - length: {uniform: [1, 2]}\n  - length: {uniform: [1,\n      x]}\n    wait: 3\n  - 7\n"
    )
    assert problems(Grammar, text) == [
        "f:4 requests[1].length.uniform[1]: expected a whole number, found 'x' (text)",
        (
            "f:5 requests[1].wait: expected one of the keys length, weight, found the unknown key 'wait'. "
            "Did you mean 'weight'?"
        ),
        "f:6 requests[2]: expected a mapping of keys, found 7",
    ]


def test_a_missing_key_shows_an_example():
    assert problems(Grammar, "{}") == [
        (
            "f:1 requests: expected the key requests, found no such key. "
            "Add it, for example `requests: [{length: 8}]`."
        )
    ]
    assert problems(Grammar, "requests: []") == []


def test_inside_a_union_the_deepest_error_stands_and_two_of_one_value_are_one():
    assert problems(Request, "length: {unifrm: [1]}") == [
        (
            "f:1 length.unifrm: expected one of the keys uniform, found the unknown key 'unifrm'. "
            "Did you mean 'uniform'?"
        )
    ]
    assert problems(Request, "length: 1K") == [
        (
            "f:1 length: expected a whole number or a mapping of keys, found '1K' (text). "
            "Write 1024 if 1K is 1024, or 1000 if it is 1000."
        )
    ]


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value


def _small(value: int) -> int:
    if value > 10:
        raise refusal(expected="at most ten", remedy="Take ten.")
    return value


class Kind(Strict):
    even: Annotated[int, AfterValidator(_even)] = 0
    small: Annotated[int, AfterValidator(_small)] = 0


def test_a_validator_may_refuse_in_its_own_words():
    assert problems(Kind, "even: 3\nsmall: 11") == [
        "f:1 even: expected an even number, found 3",
        "f:2 small: expected at most ten, found 11. Take ten.",
    ]
