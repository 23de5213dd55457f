"""The random stream is part of the format: fixed by an algorithm that is written out here a second time."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wlgen import streams
from wlgen.streams import below, permutation, words

MASK = 2**64 - 1
coordinates = st.lists(
    st.one_of(st.integers(-9, 2**64), st.text("abc/1", max_size=4)), min_size=1, max_size=4
).map(tuple)


def philox(key: tuple[int, int], count: int) -> list[int]:
    """Return words of Philox4x64-10 (Salmon et al. 2011) of the counters 1, 2, 3, ..."""
    found: list[int] = []
    for counter in range(1, count // 4 + 2):
        c, k = [counter, 0, 0, 0], list(key)
        for _ in range(10):
            high0, low0 = divmod(c[0] * 0xD2E7470EE14C6C93, 2**64)
            high1, low1 = divmod(c[2] * 0xCA5A826395121157, 2**64)
            c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
            k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
        found += c
    return found[:count]


def key_of(text: str) -> tuple[int, int]:
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


@pytest.mark.parametrize(
    ("coordinates", "text"),
    [
        (("wlgen/1", 7, "row", "formal", 3, 12, 0), "swlgen/1\x1fi7\x1fsrow\x1fsformal\x1fi3\x1fi12\x1fi0"),
        (("a",), "sa"),
        ((-1, 2**63), f"i-1\x1fi{2**63}"),
    ],
)
def test_words_are_philox_of_a_blake2b_of_the_coordinates(coordinates, text):
    assert words(coordinates, 11).tolist() == philox(key_of(text), 11)


def test_the_words_of_one_stream_for_ever():
    assert words(("wlgen/1", 20261018, "prefix", 0), 3).tolist() == philox(
        key_of("swlgen/1\x1fi20261018\x1fsprefix\x1fi0"), 3
    )
    assert words(("test",), 2).tolist() == [9714979608851713937, 731826089504422252]


@given(coordinates, st.integers(0, 40), st.integers(0, 40))
def test_more_words_extend_fewer(found, few, more):
    assert words(found, few + more)[:few].tolist() == words(found, few).tolist()


@given(coordinates, coordinates)
def test_other_coordinates_have_other_words(one, other):
    same = words(one, 4).tolist() == words(other, 4).tolist()
    assert same == (one == other)


def test_a_number_a_text_and_a_longer_text_are_told_apart():
    found = [tuple(words(c, 2).tolist()) for c in (("a", 1), ("a", "1"), ("a1",), ("a", 1, ""), ("", "a", 1))]
    assert len(set(found)) == 5


@given(st.lists(st.integers(0, MASK), max_size=20), st.integers(1, 2**32))
def test_below_is_fixed_integer_arithmetic(stream, bound):
    found = below(np.array(stream, dtype=np.uint64), bound)
    assert found.tolist() == [(word >> 32) * bound >> 32 for word in stream]
    assert all(0 <= number < bound for number in found.tolist())


def test_below_takes_a_bound_a_word():
    stream = words(("test",), 6).reshape(2, 3)
    bounds = np.array([1, 10, 1000], dtype=np.uint64)
    found = below(stream, bounds)
    for column, bound in enumerate(bounds.tolist()):
        assert found[:, column].tolist() == below(stream[:, column], bound).tolist()


def test_every_number_below_a_bound_is_as_likely():
    counts = np.bincount(below(words(("test",), 70_000), 7), minlength=7)
    assert (abs(counts - 10_000) < 500).all()


@given(coordinates, st.integers(0, 200))
def test_a_permutation_has_every_number_once(found, count):
    order = permutation(found, count)
    assert sorted(order.tolist()) == list(range(count))
    drawn = words(found, count).tolist()
    assert [drawn[i] for i in order] == sorted(drawn)


def test_coordinates_are_those_of_the_sets_that_people_have():
    """Each as it was first written: to change one changes the bytes of every set."""
    message = streams.message(3, 7, 0, 2)
    assert streams.text(5, streams.row("formal", 3, 7, 1)) == ("wlgen/1", 5, "row", "formal", 3, 7, 1)
    assert streams.prefix("", (0, 2)) == ("prefix", 0, 2)
    assert streams.prefix("cold", (1,)) == ("prefix", "cold", 1)
    assert (message, streams.answer_to(message)) == (("session", 3, 7, 0, 2), ("session", 3, 7, 0, 3))
    assert (streams.block(9, 0), streams.block(9, 2)) == (("block", 9), ("block", 9, 2))
    assert streams.block_number(streams.block(9, 2)) == 9
    assert (streams.classes(5), streams.groups(5, 1, 0)) == (("class", 5), ("group", 5, 1, 0))
    assert streams.part(streams.lengths(5, 1, "body_len"), "bin") == ("body_len", 5, 1, "bin")
    assert (streams.order(5, 3), streams.arrivals(5)) == (("order", 5, 3), ("arrivals", 5))
    assert (streams.bank(5), streams.leads(5)) == (("bank", 5), ("leads", 5))
