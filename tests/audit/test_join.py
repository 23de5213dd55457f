"""Which row each result is of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.audits import good, promised, rows

from wlgen.audit.join import Rows, join
from wlgen.encodings import Message
from wlgen.errors import Problem
from wlgen.readers import Result

ALL = rows()
SET = Rows(promised(ALL))
FORMAL = [each for each in ALL if each.split == "formal"]
IN_TURN = [f"formal-r{rank:02d}-{number:06d}" for number in range(4) for rank in range(2)]
BY_ID = {each.id: each for each in ALL}


def blind(count: int, **changes: int) -> list[Result]:
    """Return results that have their index alone, as of bench_serving and vllm bench serve."""
    return [
        replace(result, id=None, text_sha256=None, dp_rank=None, index=index, **changes)
        for index, result in enumerate(good(FORMAL[:1] * count))
    ]


def by_index(ids, *, texts=True) -> list[Result]:
    """Return results in the order of these ids, with index and text, as of AISBench."""
    results = good([BY_ID[each] for each in ids])
    return [
        replace(r, id=None, index=i, text_sha256=r.text_sha256 if texts else None)
        for i, r in enumerate(results)
    ]


def joined(results, name="results.jsonl", splits=("formal",)):
    found = join(SET, [(name, results)], splits)
    return [row.id for row, _ in found.pairs], found


def test_by_id():
    ids, found = joined(good(FORMAL))
    assert ids == [each.id for each in FORMAL]
    assert not found.problems
    assert not found.foreign


def test_by_text():
    assert joined([replace(r, id=None) for r in good(FORMAL)])[0] == [each.id for each in FORMAL]


def test_by_index_in_the_order_an_export_has_the_ranks_in_turn():
    assert joined(blind(8))[0] == IN_TURN
    assert joined(by_index(IN_TURN))[0] == IN_TURN


def test_by_index_in_file_order_where_the_texts_say_so():
    in_files = [each.id for each in FORMAL]
    assert joined(by_index(in_files))[0] == in_files


def test_by_index_with_two_texts_swapped_the_index_stands():
    results = by_index(IN_TURN)
    one, two = results[2], results[5]
    results[2] = replace(one, text_sha256=two.text_sha256)
    results[5] = replace(two, text_sha256=one.text_sha256)
    assert joined(results)[0] == IN_TURN


def test_by_text_where_no_known_order_fits_the_index():
    shuffled = [IN_TURN[i] for i in (5, 0, 7, 2, 1, 6, 3, 4)]
    assert joined(by_index(shuffled))[0] == shuffled


def test_a_rank_in_the_files_name_places_its_rows():
    assert joined(blind(4), "out/formal-rank-01.json")[0] == [e.id for e in FORMAL if e.dp_rank == 1]


def test_a_split_in_the_files_name_places_its_rows():
    assert joined(blind(2), "out/check.jsonl")[0] == ["check-r00-000000", "check-r01-000000"]


def test_a_folder_named_like_a_split_says_nothing():
    assert joined(blind(8), "check/out.jsonl")[0] == IN_TURN


def test_two_blind_files_need_the_rank_in_their_names():
    found = join(SET, [("a.json", blind(4)), ("b.json", blind(4))], ("formal",))
    assert [p.place for p in found.problems] == ["b.json"]
    assert "rank-03" in found.problems[0].expected
    named = [(f"formal-rank-{rank:02d}.json", blind(4)) for rank in range(2)]
    assert not join(SET, named, ("formal",)).problems


def test_a_blind_file_needs_one_split():
    _, found = joined(blind(8), splits=("check", "formal"))
    assert "holds its split" in found.problems[0].expected


def repeated(content):
    """Return rows that all have one text, as a trace may repeat a whole prompt."""
    return [replace(each, messages=FORMAL[0].messages) for each in content]


def test_rows_of_one_text_are_taken_once_each_in_the_order_sent():
    same = Rows(promised(repeated(FORMAL)))
    results = [replace(r, id=None, dp_rank=None) for r in good(FORMAL)]
    pairs = join(
        same, [("r", [replace(r, text_sha256=FORMAL[0].text_sha256) for r in results[::-1]])], ()
    ).pairs
    assert [(row.id, r.start) for row, r in pairs] == [(name, n + 1.0) for n, name in enumerate(IN_TURN)]


def test_rows_of_one_text_are_those_of_the_rank_that_served_them():
    results = [replace(r, id=None) for r in good(repeated(FORMAL))]
    pairs = join(Rows(promised(repeated(FORMAL))), [("r", results)], ()).pairs
    assert [row.id for row, _ in pairs] == [each.id for each in FORMAL]


def test_a_repeated_text_that_was_sent_too_often_is_seen():
    content = repeated(FORMAL[:2])
    results = [replace(r, id=None) for r in good([*content, content[0]])]
    pairs = join(Rows(promised(content)), [("r", results)], ("formal",)).pairs
    assert [row.id for row, _ in pairs] == [content[0].id, content[1].id, content[1].id]


def test_by_index_in_the_round_that_is_asked_for_or_that_the_texts_say():
    later = [
        replace(each, round=1, id=f"{each.id}-k1", messages=(Message("user", each.id),)) for each in FORMAL
    ]
    content = Rows(promised([*FORMAL, *later]))
    ids = [f"{name}-k1" for name in IN_TURN]
    assert [row.id for row, _ in join(content, [("r", blind(8))], ("formal",), (1,)).pairs] == ids
    texts = {each.id: each.text_sha256 for each in later}
    found = [replace(r, text_sha256=texts[name]) for r, name in zip(blind(8), ids, strict=True)]
    assert [row.id for row, _ in join(content, [("r", found)], ("formal",)).pairs] == ids


def test_an_unknown_id_and_a_place_past_the_end_are_foreign():
    _, found = joined(
        [*good(FORMAL), replace(good(FORMAL[:1])[0], id="other", text_sha256=None, place="f:9")]
    )
    assert [(f.id, f.promise, f.got) for f in found.foreign] == [("f:9", "of_the_set", "id other")]
    _, found = joined(blind(9))
    assert [f.got for f in found.foreign] == ["index 8"]


@pytest.mark.parametrize("change", [{"id": "x", "text_sha256": None}, {"id": None, "text_sha256": "f" * 64}])
def test_results_of_another_set_are_one_problem(change):
    ids, found = joined([replace(r, **change) for r in good(FORMAL)])
    assert (ids, found.foreign) == ([], [])
    (problem,) = found.problems
    assert "none of them of a row" in problem.found


def test_blind_results_of_another_set_are_told_by_their_lengths():
    _, found = joined(blind(8, prompt_tokens=131076))
    assert found.problems[0].found == "prompts of 131076 tokens"
    assert joined(blind(8, prompt_tokens=2052 + 79))[0] == IN_TURN


def test_an_empty_file_is_a_problem_each():
    found = join(SET, [("a", good(FORMAL)), ("b", []), ("c", [])], ("formal",))
    assert [p.place for p in found.problems] == ["b", "c"]


def test_unreadable_places_are_listed_up_to_a_few():
    broken = [Problem(place=f"f:{n}", expected="a line", found="junk") for n in range(30)]
    _, found = joined([*broken, *good(FORMAL)])
    assert len(found.pairs) == 8
    assert len(found.problems) == 6
    assert found.problems[-1].found == "25 more lines"
