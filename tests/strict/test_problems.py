"""Where a problem stands, and which of two about one value is told."""

from __future__ import annotations

from wlgen.errors import error
from wlgen.strict.problems import Places, Problems, clip, dotted

PLACES = Places(source="s.yaml", lines={(): 1, ("a",): 2, ("a", 0): 3, ("b",): 9})


def test_a_path_reads_as_a_person_would_write_it():
    assert dotted(("a", 2, "low")) == "a[2].low"
    assert dotted(()) == ""


def test_a_place_is_the_nearest_line_that_is_known():
    assert PLACES.at(("a", 0, "x")) == "s.yaml:3 a[0].x"
    assert PLACES.at(("c",)) == "s.yaml:1 c"
    assert PLACES.at(()) == "s.yaml:1"
    assert Places(source="m.json").at(("a", "b")) == "m.json a.b"


def test_problems_come_in_the_order_of_lines_and_the_first_about_a_value_stands():
    problems = Problems(PLACES)
    problems.add(("b",), expected="1", found="2")
    problems.take(("a", 0), error("the rule", expected="5", found="6"))
    problems.add(("b",), expected="3", found="4")
    problems.add(("a",), expected="7", found="8")
    problems.add(("a",), expected="a once", found="a duplicate", line=4)
    assert [str(problem) for problem in problems.error().problems] == [
        "s.yaml:2 a: expected 7, found 8",
        "the rule: expected 5, found 6",
        "s.yaml:4 a: expected a once, found a duplicate",
        "s.yaml:9 b: expected 1, found 2",
    ]
    assert len(problems) == 4


def test_a_long_or_many_lined_value_is_shown_short_and_on_one_line():
    assert clip("x" * 100) == "x" * 60 + "..."
    assert clip("a\n  b") == "a b"
