"""Two scrapes prove every row of a kept run, and never prove a run that was not kept."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from io import StringIO
from typing import Any

import orjson
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st
from kit.audits import CACHED, PROMPT, good, manifest, plain, row, rows, write_set
from rich.console import Console

from wlgen import cli
from wlgen.audit.audit import audit
from wlgen.audit.ceiling import SentRows, fewest_short, prove
from wlgen.audit.findings import Promised
from wlgen.audit.given import Given
from wlgen.report.page import page
from wlgen.report.terminal import terminal
from wlgen.report.words import witnesses
from wlgen.server.scrape import write_scrape
from wlgen.witnesses import PrefillBatch, Prepared, Scrape, ServedRequest, ServerCounts
from wlgen.workload.manifest import Bound

ROWS = rows()
FORMAL = [each for each in ROWS if each.split == "formal"]
SET = "0" * 64


def server(requests, prompt, cached, *, role="plain", ranks=None, started: float | None = 1.0, **more: int):
    total = {"requests": requests, "prompt_tokens": prompt, "cached_tokens": cached}
    total |= {"aborted": 0, "retracted": 0}
    return ServerCounts(
        url=f"http://{role}",
        role=role,
        engine="sglang",
        started=started,
        total=total | more,
        ranks=ranks or {},
    )


def scrape(*servers: ServerCounts, prepared=None, quiet=True):
    return Scrape(time="t", quiet=quiet, servers=servers, prepared=prepared)


FLUSHED = server(100, 9000, 500)
BASE = server(104, 9000 + 4 * PROMPT, 500 + 2 * CACHED)  # two seeds and two checks later
PREPARED = Prepared(
    set_sha256=SET, flushed=(FLUSHED,), requests=4, prompt_tokens=4 * PROMPT, cached_tokens=2 * CACHED
)
BEFORE = scrape(BASE, prepared=PREPARED)


def after(cached=8 * CACHED, requests=8, prompt=8 * PROMPT, **more: Any):
    total = BASE.total
    return scrape(
        server(
            total["requests"] + requests,
            total["prompt_tokens"] + prompt,
            total["cached_tokens"] + cached,
            **more,
        )
    )


def blind(content=FORMAL, **changes: Any):
    return good(content, cached_tokens=None, dp_rank=None, **changes)


def audited(results, before=BEFORE, later=None, content=ROWS, **given: Any):
    given = {"before": before, "after": later or after()} | given
    files = [("results", results)] if results else []
    return audit(content, files, manifest(), given=Given(**given))


def failed(found):
    return [each.name for each in found.ceiling.failed]


def test_a_client_without_figures_is_proved_row_by_row_by_two_scrapes():
    found = audited(blind())
    assert found.verdict == "KEPT"
    assert found.states == {"ceiling": 8}
    assert found.promises.per_request_min == (CACHED, PROMPT)
    assert found.ceiling.failed == []


@pytest.mark.parametrize("lack", [128, 1664, 3 * 128, 3 * 1664 + 128])
def test_a_sum_that_is_short_says_how_many_rows_at_least_and_at_most(lack):
    found = audited(blind(), later=after(8 * CACHED - lack))
    assert found.verdict == "NOT KEPT"
    (short,) = found.ceiling.short
    assert (short.least, short.most) == (-(-lack // CACHED), min(8, lack // 128))
    assert found.states == {"unobserved": 8}
    assert [f.promise for f in found.findings] == ["cached_sum"]


def test_a_shortfall_is_laid_to_its_rank_where_counters_tell_ranks_apart():
    def ranks(first, second):
        return {
            0: {"computed": 4 * PROMPT - first, "hit_device": first},
            1: {"computed": 4 * PROMPT - second + 3, "hit_device": second},  # three health probes
        }

    before = scrape(
        replace(BASE, ranks={r: {"computed": 0, "hit_device": 0} for r in (0, 1)}), prepared=PREPARED
    )
    later = after(7 * CACHED, ranks=ranks(4 * CACHED, 3 * CACHED))
    (short,) = audited(blind(), before, later).ceiling.short
    assert (short.rank, short.least, short.most) == (1, 1, 4)


@pytest.mark.parametrize(
    ("results", "change", "name"),
    [
        ([*blind()[:7], blind()[0]], {}, "the results show each row once"),
        (blind()[:7], {}, "the results show each row once"),
        (blind(), {"requests": 9}, "requests served"),
        (blind(), {"prompt": 8 * PROMPT + 30}, "prompt tokens served"),
        (blind(), {"aborted": 1}, "no request was aborted"),
        (blind(), {"retracted": 1}, "no request was aborted"),
        (blind(), {"started": 2.0}, "no server restarted"),
        (blind(), {"cached_storage": 128}, "no hit came from a store"),
        (blind(), {"cached_external": 128}, "no hit came from a store"),
        (blind(), {"role": "decode"}, "both scrapes are of the servers"),
        (blind(attempts=2), {}, "the results show each row once"),
    ],
)
def test_a_run_that_must_not_be_proved(results, change, name):
    """Each has the very sum of a kept run."""
    found = audited(results, later=after(**change))
    assert not found.ceiling.kept
    assert "ceiling" not in found.states
    assert found.verdict != "KEPT"
    assert any(each.startswith(name) for each in failed(found)), failed(found)


@pytest.mark.parametrize(
    "before",
    [
        scrape(BASE),
        scrape(BASE, prepared=replace(PREPARED, set_sha256="1" * 64)),
        scrape(BASE, prepared=replace(PREPARED, flushed=(server(60, 5000, 0),))),
        scrape(BASE, prepared=PREPARED, quiet=False),
    ],
)
def test_an_earlier_run_before_the_first_scrape_leaves_nothing_proved(before):
    found = audited(blind(), before)
    assert not found.ceiling.kept
    assert found.verdict == "NOT PROVED"


def test_two_equal_scrapes_and_a_restart_that_no_process_time_tells_prove_nothing():
    assert not audited(blind(), later=BEFORE).ceiling.kept
    fresh = scrape(server(8, 8 * PROMPT, 8 * CACHED, started=None))
    found = audited(blind(), scrape(replace(BASE, started=None), prepared=PREPARED), fresh)
    assert any("went down" in each.seen for each in found.ceiling.failed)


def test_a_server_that_does_not_say_when_it_started_proves_nothing():
    """It restarted in the run and then served the same sums again: no counter of it went down."""
    before = scrape(replace(BASE, started=None), prepared=replace(PREPARED, flushed=(FLUSHED,)))
    moved = after().servers[0]
    found = audited(blind(), before, scrape(replace(moved, started=None)))
    assert "exports nothing that tells a restart" in found.ceiling.failed[0].seen
    assert found.verdict == "NOT PROVED"


def test_conversations_cold_rows_and_page_size_1_have_no_ceiling():
    turns = [replace(each, session="s") if each.split == "formal" else each for each in ROWS]
    assert failed(audited(blind(turns[4:]), content=turns)) == ["no row can find more than its plan"]
    cold = audit(ROWS, [("r", blind())], manifest({"cold": True}), given=Given(before=BEFORE, after=after()))
    assert not cold.ceiling.kept
    one = replace(manifest(), cache=replace(manifest().cache, page_size=1, hit_quantum=1))
    assert not audit(ROWS, [("r", blind())], one, given=Given(before=BEFORE, after=after())).ceiling.kept


def test_a_sum_of_0_proves_a_zero_set_whatever_was_served_before():
    zero = [row("formal", 0, number, cached_len=0) for number in range(3)]
    found = audit(
        zero,
        [("r", blind(zero))],
        manifest({"max_tokens": 0}, ranks=1),
        given=Given(before=scrape(BASE), after=after(0, 3, 3 * PROMPT)),
    )
    assert found.verdict == "KEPT"


def test_counters_alone_say_no_more_than_that_they_fit():
    found = audited([])
    assert found.verdict == "NOT PROVED"
    assert found.findings == ()
    assert [(each.witness, each.fits) for each in found.sums] == [("counters", True)]
    assert failed(found) == ["the results show each row once, successful, in one attempt"]
    assert [each.fits for each in audited([], later=after(7 * CACHED)).sums] == [False]


def served(content=FORMAL, **changes: Any):
    return [
        ServedRequest(
            place=f"f:{number}",
            **{
                "id": each.id,
                "prompt_tokens": each.prompt_len,
                "cached_tokens": each.cached_len,
                "output_tokens": each.output_len,
                "tiers": {"device": each.cached_len},
            }
            | changes,
        )
        for number, each in enumerate(content, 1)
    ]


def with_requests(results, records, **more: Any):
    files = [("results", results)] if results else []
    return audit(ROWS, files, manifest(), given=Given(requests=[("f", records)], **more))


def test_a_request_file_gives_each_row_beside_a_client_or_alone():
    for results in (blind(), []):
        found = with_requests(results, served())
        assert found.verdict == "KEPT"
        assert found.states == {"server": 8}
        assert found.tiers == {"device": 8 * CACHED}
    assert with_requests(blind(), served(cached_tokens=CACHED - 128)).findings[0].promise == "cached_bound"


NOON = 1796126400.0  # 2026-12-01 12:00:00 UTC
SCRAPED = {
    "before": replace(BEFORE, time="2026-12-01T12:00:00+00:00"),
    "later": replace(after(), time="2026-12-01T12:10:00+00:00"),
}


def test_results_of_another_time_than_the_scrapes_are_not_proved_by_them():
    """The client's times count from 1970: of the run between the scrapes, and of one 20 minutes earlier."""
    assert audited(blind(start=NOON + 60, end=NOON + 70), **SCRAPED).verdict == "KEPT"
    assert audited(blind(start=60.0, end=70.0), **SCRAPED).verdict == "KEPT"  # a clock of the client's own
    other = audited(blind(start=NOON - 1200, end=NOON - 1190), **SCRAPED)
    assert (other.verdict, other.states) == ("NOT PROVED", {"unobserved": 8})
    assert failed(other) == ["the rows were sent between the two scrapes"]
    assert "2026-12-01 11:40:00 to 11:40:10 UTC" in other.ceiling.failed[0].seen


@pytest.mark.parametrize("tells", ["scrapes", "results"])
def test_a_record_of_another_run_does_not_count(tells):
    """A server appends both runs to one file: in the first each row found its plan, in this one none did."""
    timed = blind(start=NOON + 60, end=NOON + 70)
    results = blind() if tells == "scrapes" else timed
    earlier, now = served(received=NOON - 1200), served(received=NOON + 65, cached_tokens=0)
    scrapes = {"before": SCRAPED["before"], "after": SCRAPED["later"]} if tells == "scrapes" else {}
    alone = with_requests(results, earlier, **scrapes)
    assert "8 records of the request files do not count: they are of 2026-12-01 11:40:00" in alone.notes[-1]
    assert with_requests(timed, earlier).verdict == "NOT PROVED"
    both = with_requests(results, [*earlier, *now], **scrapes)
    assert both.verdict == "NOT KEPT"
    assert not [f for f in both.findings if f.promise == "sent_once"]
    primed = [replace(each, received=NOON - 30) for each in served(ROWS[:4])]
    assert with_requests(results, [*primed, *served(received=NOON + 65)], **scrapes).verdict == "KEPT"


def test_request_files_without_row_ids_give_sums_only():
    found = with_requests(blind(), served(id="server's own"))
    assert found.verdict == "NOT PROVED"
    assert [(each.witness, each.fits) for each in found.sums] == [("request file", True)]


def test_two_witnesses_that_contradict_one_another_are_a_finding_with_both_figures():
    (first, *_) = with_requests(good(FORMAL), served()[:7] + served(FORMAL[7:], cached_tokens=1536)).findings
    assert (first.promise, first.expected, first.got) == (
        "cached_bound",
        1642,
        1536,
    ) or first.promise == "witnesses"
    found = audited(good(FORMAL), later=after(7 * CACHED))
    assert [f.promise for f in found.findings] == ["witnesses", "cached_sum"]
    assert (found.findings[0].expected, found.findings[0].got) == (
        "13,312 cached tokens (results)",
        "11,648 (counters of the server)",
    )


def test_a_row_with_two_records_of_the_server_was_sent_twice():
    assert {f.promise for f in with_requests(blind(), [*served(), served()[0]]).findings} == {"sent_once"}


def test_a_log_fits_or_does_not():
    batches = [PrefillBatch(place="l", dp_rank=0, computed=PROMPT - CACHED, cached=CACHED)] * 8
    found = audit(ROWS, [("r", blind())], manifest(), given=Given(logs=[("l", batches)]))
    assert [(each.witness, each.fits) for each in found.sums] == [("log", True)]
    assert found.verdict == "NOT PROVED"


# --- a prefill/decode pair


def in_pair(cached, prefill=8 * CACHED, decode=8 * CACHED):
    base = replace(BASE, role="prefill", url="http://p")
    other = replace(BASE, role="decode", url="http://d")
    known = replace(PREPARED, flushed=(replace(FLUSHED, role="prefill", url="http://p"),))

    def later(of, more):
        counts = {"requests": 8, "prompt_tokens": 8 * PROMPT, "cached_tokens": more}
        return replace(of, total={name: count + counts.get(name, 0) for name, count in of.total.items()})

    results = good(FORMAL, cached_tokens=cached, dp_rank=9)
    return audited(
        results, scrape(base, other, prepared=known), scrape(later(base, prefill), later(other, decode))
    )


def test_both_sides_of_a_pair_are_never_added_and_a_decode_rank_is_no_finding():
    found = in_pair(CACHED)
    assert found.verdict == "KEPT"
    assert found.ceiling.observed == 8 * CACHED


@pytest.mark.parametrize("figure", [PROMPT, PROMPT - 1])
def test_a_figure_of_the_decode_server_is_refused_and_the_prefill_counters_decide(figure):
    assert in_pair(figure).verdict == "KEPT"
    assert in_pair(figure).states == {"ceiling": 8}
    found = audit(ROWS, [("r", good(FORMAL, cached_tokens=figure))], manifest(), given=Given(pair=True))
    assert {f.promise for f in found.findings} == {"cached_of_prefill"}
    assert "above 2048" in found.findings[0].got
    assert found.promises.aggregate is None


def test_decode_radix_cache_claims_hits_that_the_prefill_side_computed():
    found = in_pair(CACHED, prefill=0)
    assert found.verdict == "NOT KEPT"
    assert found.states == {"unobserved": 8}
    assert "the prefill side decides" in found.notes[0]


def test_exactly_twice_the_plan_is_a_sum_of_both_servers():
    half = [replace(each, cached_len=896) if each.split == "formal" else each for each in ROWS]
    found = audit(half, [("r", good(half[4:], cached_tokens=1792))], manifest({"min_ratio": 0.4}))
    assert {f.promise for f in found.findings} == {"cached_of_prefill"}
    assert "exactly twice the plan" in found.findings[0].got


def test_the_rank_of_a_pair_is_no_finding_though_nobody_said_pair():
    """A figure that no prefix can reach is the decode server's, and so is the rank that answered."""
    found = audit(ROWS, [("r", good(FORMAL, cached_tokens=PROMPT, dp_rank=9))], manifest())
    assert {f.promise for f in found.findings} == {"cached_of_prefill"}


# --- acceptance, states in the command


def test_acceptance_length_is_of_the_whole_run_and_proposals_stay_unobserved_where_not_counted():
    found = audited(blind(), later=after(output_tokens=512, verify_steps=200))
    assert found.acceptance.length == 2.56
    assert found.acceptance.by_proposals is None
    found = audited(blind(), later=after(drafts=40, proposed_tokens=120, accepted_tokens=90))
    assert (found.acceptance.length, found.acceptance.by_proposals) == (3.25, 0.75)
    said = "\n".join(witnesses(found))
    assert "acceptance length of the whole run: 3.25 = 130 output tokens / 40 verify steps" in said
    assert "acceptance by slots: NOT_OBSERVED = accepted drafts / draft slots" in said
    assert "acceptance by proposals: 0.7500 = accepted drafts / proposed drafts" in said
    assert "Acceptance length of the whole run: 3.25" in page(found)


def test_a_group_that_found_nothing_is_seen_at_once_in_terminal_and_page():
    grouped = [
        replace(each, group=f"g{number % 2}") if each.split == "formal" else each
        for number, each in enumerate(ROWS)
    ]
    formal = [each for each in grouped if each.split == "formal"]
    first, second = ([each for each in formal if each.group == name] for name in ("g0", "g1"))
    found = audit(grouped, [("r", good(first) + good(second, cached_tokens=0))], manifest())
    written = StringIO()
    Console(file=written, width=200).print(terminal(found))
    assert "found nothing cached: group g1" in written.getvalue()
    assert re.search(r"group g1 +4 +4 +0\.0000", written.getvalue())
    assert "Found nothing cached: group g1" in page(found)
    assert "<td>group g1</td>" in page(found)


def test_a_page_shows_what_the_servers_say_and_what_nobody_observed():
    assert "8 rows proved by ceiling" in page(audited(blind()))
    unproved = page(audit(ROWS, [("r", blind())], manifest(), blind=("this client keeps no cached tokens",)))
    assert "What is not proved" in unproved
    assert "this client keeps no cached tokens: give --counters" in unproved


def test_the_command_proves_by_two_scrapes_and_names_the_client_without_them(tmp_path, monkeypatch, capsys):
    def run(*arguments: object):
        monkeypatch.setattr(sys, "argv", ["wlgen", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0), capsys.readouterr()

    folder = write_set(tmp_path / "set")
    usage = {"prompt_tokens": PROMPT, "completion_tokens": 64}
    results = tmp_path / "results.jsonl"
    results.write_bytes(b"".join(plain(each, usage=usage) for each in FORMAL))
    write_scrape(BEFORE, tmp_path / "b.json")
    write_scrape(after(), tmp_path / "a.json")
    scrapes = ("--counters", tmp_path / "b.json", tmp_path / "a.json")
    code, streams = run(folder, results, *scrapes, "--json")
    answer = json.loads(streams.out)
    assert (code, answer["verdict"], answer["states"]) == (0, "KEPT", {"proved by ceiling": 8})
    code, streams = run(folder, results)
    assert code == 1
    assert "NOT PROVED, nobody observed cached tokens of 8 rows" in streams.out
    code, streams = run(folder, *scrapes)
    assert code == 1, streams.err
    assert "these fit a kept run" in streams.out
    code, streams = run(folder)
    assert code == 2
    code, streams = run(folder, "--counters", tmp_path / "b.json", results)
    assert code == 2
    assert "a scrape that" in streams.err
    lines = [
        orjson.dumps(
            {
                "request_parameters": json.dumps({"rid": each.id}),
                "prompt_tokens": PROMPT,
                "cached_tokens": CACHED,
                "completion_tokens": each.output_len,
            }
        )
        for each in FORMAL
    ]
    (tmp_path / "sglang-request-metrics-20261130_10.log").write_bytes(b"\n".join(lines))
    code, streams = run(folder, "--requests", tmp_path / "sglang-request-metrics-20261130_10.log")
    assert code == 0, streams.out


# --- the bounds never exclude the truth


@st.composite
def runs(draw):
    quantum = draw(st.sampled_from([16, 128, 2048]))
    plans = draw(st.lists(st.integers(0, 12), min_size=1, max_size=12))
    lacks = [draw(st.integers(0, plan)) if draw(st.booleans()) else 0 for plan in plans]
    return quantum, plans, lacks


@holds_for(runs())
def test_the_possible_shortfalls_never_exclude_the_truth(run):
    quantum, plans, lacks = run
    prompt = 13 * quantum
    content = [
        Promised.of(row("formal", 0, number, prompt_len=prompt, cached_len=plan * quantum), Bound(tokens=0))
        for number, plan in enumerate(plans)
    ]
    planned, lack = sum(plans) * quantum, sum(lacks) * quantum
    found = prove(
        SentRows(rows=content, set_sha256=SET, quantum=quantum),
        BEFORE,
        after(planned - lack, len(plans), len(plans) * prompt),
    )
    fell = sum(each > 0 for each in lacks)
    assert found.comparable
    if fell == 0:
        assert found.kept
        assert found.short == ()
    else:
        assert not found.kept
        (short,) = found.short
        assert short.least <= fell <= short.most


@holds_for(st.lists(st.integers(0, 50), max_size=12), st.data())
def test_no_fewer_rows_can_lack_so_much(plans, data):
    lack = data.draw(st.integers(0, sum(plans)))
    count = fewest_short(plans, lack)
    greatest = sorted(plans, reverse=True)
    assert sum(greatest[:count]) >= lack
    assert count == 0 or sum(greatest[: count - 1]) < lack
