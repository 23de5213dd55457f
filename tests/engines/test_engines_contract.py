"""What every engine's file must say, and what becomes of an engine that has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kit.rules import made_rule

from wlgen import engines, registry
from wlgen.errors import WlgenError

NAMES = registry.names(engines)
COUNTS = {"requests", "prompt_tokens", "cached_tokens", "output_tokens", "running", "waiting"}
IDS = np.arange(1000, dtype=np.uint32)


@pytest.fixture(params=NAMES)
def engine(request) -> engines.Engine:
    return engines.engine(request.param)


def test_an_engine_bears_the_name_of_its_file(engine):
    assert engine in engines.every_engine()
    assert engine == engines.engine(engine.name)
    assert engine.title.lower() == engine.name


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("numbers", [{}, {"hit_quantum": 128}, {"sliding_window": 64}])
def test_formula_and_cache_agree_on_a_prompt_sent_three_times(engine, numbers, speculative):
    """The formula plans and the replay gates, so both must say the same once a prefix is held."""
    rule = made_rule(name="x", engine=engine.name, page_size=32, speculative=speculative, **numbers)
    assert rule.lookahead == 0 or speculative
    cache = engines.new_cache(rule)
    for _ in range(3):
        match = cache.match(IDS)
        cache.insert(match, IDS[:1])
    assert match.cached_len == rule.cached_len(1000, 1000) > 0


def test_a_hit_of_a_seeds_first_sibling_is_the_formulas(engine):
    rule = made_rule(name="x", engine=engine.name, page_size=32, hit_quantum=128, sliding_window=64)
    cache = engines.new_cache(rule)
    seed = cache.match(IDS[: rule.least_seed_len(700)])
    cache.insert(seed, IDS[:1])
    sibling = np.concatenate([IDS[:700], IDS[700:] + 5000])
    assert cache.match(sibling).cached_len == rule.cached_len(700, 1000) == 640


def test_only_one_engine_has_its_own_pages(engine):
    """They tell which engine answers."""
    pages = [page for other in engines.every_engine() for page in other.own_pages]
    assert engine.own_pages
    assert len(pages) == len(set(pages))


def test_a_rank_is_pinned_by_the_header_and_where_the_engine_has_one_by_a_field(engine):
    fields, headers = engine.pinned(3)
    assert headers == {"X-Data-Parallel-Rank": "3"}
    assert fields == ({} if engine.pin_field is None else {engine.pin_field: 3})
    assert engine.pinned(None) == ({}, {})


def test_a_flush_is_told_from_its_answer(engine):
    """A page that is not there is neither a flush nor a busy server."""
    assert engine.flush_page(1.5).startswith("/")
    assert engine.flushed(200, b"") is True
    assert engine.flushed(404, b"") is None
    assert "--no-flush" in engine.no_flush_page


def test_a_busy_server_has_not_flushed():
    assert engines.engine("sglang").flushed(400, b"Flush cache failed.") is False
    assert engines.engine("vllm").flushed(200, b'{"success": false}') is False


def test_pages_that_say_nothing_are_read_as_nothing(engine):
    for page in (b"", b"{}", b"[]", b"\xff", b'{"page_size": "128", "loads": 3}'):
        assert engine.read_page_size(page) is None
        assert engine.read_computed(page) is None


@pytest.mark.parametrize(
    ("name", "page", "size"),
    [
        ("sglang", b'{"page_size": 128}', 128),
        ("vllm", b'x 1\nvllm:cache_config_info{block_size="64",other="1"} 1.0\n', 64),
    ],
)
def test_the_size_of_a_page_is_read(name, page, size):
    assert engines.engine(name).read_page_size(page) == size


def test_what_each_rank_computed_is_read():
    ranks = ", ".join(f'{{"dp_rank": {n}, "total_prefill_uncached_tokens": {7 + n}}}' for n in (0, 1))
    assert engines.engine("sglang").read_computed(f'{{"loads": [{ranks}]}}'.encode()) == [7, 8]
    assert engines.engine("sglang").read_computed(b'{"loads": [{"dp_rank": 0}]}') is None


def test_every_count_has_a_name_and_a_rank(engine):
    names = engine.counters
    divided = {count for _, counts in names.divided.values() for each in counts.values() for count in each}
    assert {*names.plain.values(), *divided} >= COUNTS
    assert all(name.startswith(names.prefix) for name in (*names.plain, *names.divided))
    assert names.rank_label


def test_a_page_of_its_own_that_takes_ids_comes_with_its_body(engine):
    assert (engine.native_page is None) == (engine.native_body is None)
    if engine.native_body:
        assert engine.native_body([5, 6], 2)[str(engine.pin_field)] == 2


def test_an_engine_without_a_file_is_refused_with_those_known():
    """It was a radix tree before, in silence."""
    with pytest.raises(WlgenError, match=rf"expected a known engine: {', '.join(NAMES)}, found 'trtllm'"):
        made_rule(name="x", engine="trtllm", page_size=16)


def test_a_misspelt_engine_is_answered_with_the_nearest():
    with pytest.raises(WlgenError, match="Did you mean 'sglang'"):
        engines.engine("sglan")


def test_the_folder_holds_what_it_says():
    files = {p.stem for p in Path(engines.__file__).parent.glob("*.py")} - {"__init__"}
    assert {f for f in files if not f.startswith("_")} == set(NAMES)


def test_each_way_to_a_pair_says_where_its_facts_are_from(engine):
    """A way that keeps a pin says on which routes, and how it is started; one that keeps none is refused."""
    names = [way.name for way in engine.pairs]
    assert len(names) == len(set(names))
    for way in engine.pairs:
        assert way.about
        assert "run " in way.source or way.source.endswith("not run")
        assert bool(way.pin_fields) == bool(way.routes) == bool(way.start)
        assert engine.pin_field in way.pin_fields or not way.pin_fields
        assert way.binds_decode == (engine.prefill_pin_field in way.pin_fields)


def test_a_server_is_started_so_that_it_can_be_checked(engine):
    line = engine.launch(engines.Launch(ranks=16, page_size=128, context_len=132100))
    assert all(number in line for number in ("16", "128", "1321"))
    assert engine.report_flag.split()[-1].rstrip(".") in line
    assert engine.counters.flag.rpartition(" ")[2] in line
