"""A starter is a spec that loads, with its comments, whatever it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from wlgen.errors import WlgenError
from wlgen.spec.file import parse
from wlgen.spec.starter import new_text, shipped, source_text

ROOT = Path(__file__).parents[2]


def test_the_shipped_specs_of_an_editable_install_are_the_one_copy():
    assert list(shipped().values()) == sorted(ROOT.glob("specs/*.yaml"))


@pytest.mark.parametrize("name", [None, *shipped()])
def test_every_start_gives_a_spec_of_the_new_name_and_seed(name):
    text = new_text("mine", source_text(name) if name else None, {})
    spec = parse(text, "mine.yaml")
    assert (spec.name, spec.random_seed) == ("mine", parse(new_text("mine", None, {}), "m").random_seed)
    assert text.count("#") >= 1
    assert "yaml-language-server" not in text  # the schema does not stand beside it


def test_two_names_have_two_seeds():
    assert len({parse(new_text(name, None, {}), "s").random_seed for name in ("a", "b", "c")}) == 3


def test_values_are_written_over_and_comments_stay():
    text = new_text("mine", None, {"cached": "{max_tokens: 0}", "dp_ranks": "16"})
    spec = parse(text, "mine.yaml")
    assert (spec.requests[0].cached.max_tokens, spec.dp_ranks) == (0, 16)
    assert "dp_ranks: 16                        # data-parallel ranks" in text


def test_a_key_that_stands_at_two_places_is_left_to_the_person():
    with pytest.raises(WlgenError, match="expected one line `body_len: VALUE` in the spec, found 2 such"):
        new_text("mine", source_text("mixed-0-90"), {"body_len": "5"})


def test_an_unknown_start_names_the_nearest():
    with pytest.raises(WlgenError, match=r"Did you mean 'warm-128k'\?"):
        source_text("warm128k")
