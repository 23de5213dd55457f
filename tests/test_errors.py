"""What a person can fix is said on one line each: where, what was expected, what was found, what to do."""

from __future__ import annotations

from wlgen.errors import Problem, WlgenError, capped, error, printable


def test_a_problem_is_one_sentence_and_its_remedy():
    problem = Problem(place="s.yaml:3 body_len", expected="a number", found="'x'", remedy="Write 3.")
    assert str(problem) == "s.yaml:3 body_len: expected a number, found 'x'. Write 3."


def test_a_problem_without_a_remedy_ends_with_what_was_found():
    assert str(Problem(place="p", expected="a", found="b")) == "p: expected a, found b"


def test_an_error_tells_every_problem_in_order():
    problems = [Problem(place=f"p{n}", expected="a", found="b") for n in range(3)]
    failure = WlgenError(*problems)
    assert failure.problems == tuple(problems)
    assert str(failure) == "p0: expected a, found b\np1: expected a, found b\np2: expected a, found b"


def test_error_makes_an_error_of_one_problem():
    failure = error("p", expected="a", found="b", remedy="c")
    assert failure.problems == (Problem(place="p", expected="a", found="b", remedy="c"),)


def test_of_many_problems_alike_ten_are_told_and_the_others_counted():
    """93 anchors in one spec were 93 lines, which hid the typo behind them."""
    alike = [Problem(place=f"s:{n}", expected="a plain value", found="an anchor") for n in range(93)]
    typo = Problem(place="s:99 nam", expected="one of the keys", found="nam")
    lines = str(WlgenError(*alike, typo)).split("\n")
    assert lines[9:] == [str(alike[9]), "and 83 more lines like these", str(typo)]
    assert str(WlgenError(*alike[:11])).endswith("\nand 1 more line like these")


def test_a_list_that_was_capped_before_keeps_its_count():
    """Twelve files with 200 bad lines each are told 5 lines a file first, and are 2,400 places after all."""
    files = [
        [Problem(place=f"{f}:{n}", expected="a line", found="none") for n in range(200)] for f in range(12)
    ]
    told = capped([problem for file in files for problem in capped(file, 5)])
    assert sum(problem.places for problem in told) == 2400


def test_foreign_words_are_one_line_that_does_nothing_to_a_terminal():
    assert printable("a\x1b[2J\r\n b\x9b2J\u202ec\ud800") == "a\\x1b[2J b\\x9b2J\\u202ec\\ud800"
    assert printable("x" * 400) == "x" * 300 + "..."
    assert str(Problem(place="\x1b[2J.json", expected="a\nb", found="\x07")) == (
        "\\x1b[2J.json: expected a\nb, found \\x07"
    )
