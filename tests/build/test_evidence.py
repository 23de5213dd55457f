"""What is encoded of each row is chosen from the plan, whoever composes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.sets import chat, spec_of

from wlgen.build.evidence import Evidence, method_of
from wlgen.build.ready import blueprint


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", True),
        ("llama3", True),
        ("plain", True),
        ("bert", True),
        ("llama2", False),
        ("gemma", False),
        ("mistral", False),
    ],
)
def test_words_are_isolated_by_tokenizers_that_split_before_they_merge(name, expected):
    ready = blueprint(spec_of(encoding=chat(name)))
    assert method_of(ready.lexicon, ready.tasks) == ("atoms" if expected else "whole")


def test_deepseek_isolates_words():
    ready = blueprint(spec_of(encoding={"name": "deepseek-v4"}))
    assert method_of(ready.lexicon, ready.tasks) == "atoms"


def test_the_first_row_with_each_prefix_is_encoded_whole_and_a_few_of_each_split():
    plan = blueprint(spec_of(prefix={"shared_by": "rank"}, dp_ranks=5, formal={"total": 50})).plan
    rows = [row for file in plan.files() for row in plan.rows(*file)]
    evidence = Evidence("atoms")
    whole = evidence.whole(rows)
    seeds = [f"seed-r0{rank}-000000" for rank in range(5)]
    checks = [f"check-r0{rank}-000000" for rank in range(3)]
    assert whole == {*seeds, *checks, *(f"formal-r00-00000{n}" for n in range(3))}
    assert evidence.proof() == {
        "method": "atoms",
        "prefixes": 5,
        "seams": 2 * (len(rows) - len(whole)),
        "whole_rows": 11,
    }


@pytest.mark.parametrize(("method", "seams"), [("own parts", 1), ("whole", 0)])
def test_other_methods_encode_each_own_part_or_each_row(method, seams):
    plan = blueprint(spec_of(formal={"total": 20})).plan
    rows = [row for file in plan.files() for row in plan.rows(*file)]
    evidence = Evidence(method)
    whole = evidence.whole(rows)
    assert len(whole) == (len(rows) if method == "whole" else 3 + 2 + 2)
    assert evidence.proof()["seams"] == seams * (len(rows) - len(whole))


def test_two_streams_that_would_begin_alike_are_found_in_whatever_ranks_they_are():
    plan = blueprint(spec_of(formal={"total": 6})).plan
    one, other = next(plan.rows("formal", 0)), next(plan.rows("formal", 1))
    prefix, own = other.messages[0].segments
    alike = replace(own, ordinal=one.messages[0].segments[1].ordinal)
    message = replace(other.messages[0], segments=(prefix, alike))
    with pytest.raises(RuntimeError, match="row formal-r01-000000 begins as another does"):
        Evidence("atoms").whole([one, replace(other, messages=(message,))])
