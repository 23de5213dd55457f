"""Popularity: groups are drawn as often as they are said to be."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wlgen.spec.popularity import Popularity, chosen, zipf_weights
from wlgen.streams import words


def test_zipf_is_one_over_the_rank_to_the_exponent():
    assert zipf_weights(4, "1") == [Decimal(1), Decimal("0.5"), Decimal(1) / 3, Decimal("0.25")]
    assert zipf_weights(2, "2")[1] == Decimal("0.25")


@pytest.mark.parametrize("popularity", [{"zipf": 1.1}, {"weights": [5, 0, 1, 1, 1, 1, 1, 0]}])
def test_groups_are_drawn_by_their_share(popularity):
    weights = [float(w) for w in Popularity.model_validate(popularity).of(8)]
    counts = np.bincount(chosen(weights, words(("group", 1), 20_000)), minlength=8) / 20_000
    assert np.abs(counts - np.array(weights) / sum(weights)).max() < 0.01
    assert all(count == 0 for count, weight in zip(counts, weights, strict=True) if not weight)


@given(st.lists(st.floats(0, 2**31), min_size=1, max_size=9).filter(sum))
def test_the_ends_of_the_words_fall_on_things_that_have_weight(weights):
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert all(0 <= which < len(weights) for which in chosen(weights, ends))
    heavy = [1.0, *([0.0] * len(weights))]
    assert chosen(heavy, ends).tolist() == [0, 0]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"zipf": 1, "weights": [1]}, {"zipf": 0}, {"weights": [0, 0]}, {"weights": []}, {"weights": [-1]}],
)
def test_a_popularity_that_sums_to_nothing_is_refused(wrong):
    with pytest.raises(ValidationError):
        Popularity.model_validate(wrong)
