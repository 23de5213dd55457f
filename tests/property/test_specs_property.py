"""Whatever a spec asks for, wlgen builds a set that keeps every promise, or says why it cannot."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kit.oracle import broken_promises, read_rows, server_ids
from kit.sets import chat, content_of, raw
from kit.verified import verify

from wlgen.build.build import build
from wlgen.engines import new_cache
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload

# SentencePiece without a pre-tokenizer, Unigram, WordPiece and byte-level BPE need other proofs.
encodings = st.sampled_from([chat, raw]).flatmap(
    lambda kind: st.sampled_from(["chatml", "gemma", "mistral", "t5", "bert", "llama3"]).map(kind)
)
pages = st.sampled_from([1, 2, 16, 31, 64, 128, 256])
rules = st.builds(
    lambda engine, page, times, speculative, window: {
        "engine": engine,
        "page_size": page,
        "hit_quantum": page * times,
        "speculative": speculative,
        # A window wider than a quantum of several pages is no engine's.
        "sliding_window": window if times == 1 else 0,
    },
    st.sampled_from(["sglang", "vllm"]),
    pages,
    st.sampled_from([1, 1, 2, 3]),
    st.booleans(),
    st.sampled_from([0, 0, 64]),
)
ratios = st.integers(1, 999).map(lambda n: {"min_ratio": n / 1000})
prefixes = st.one_of(
    st.sampled_from([{"shared_by": "all"}, {"shared_by": "rank"}]),
    st.integers(1, 3).map(lambda groups: {"shared_by": "group", "groups": groups}),
)


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    """Specs of at most 30 rows of at most 900 tokens."""
    tokens = st.integers(0, 20).map(lambda n: {"tokens": 16 * n})
    cached = draw(st.one_of(ratios, tokens, st.sampled_from([0, 5, 64]).map(lambda n: {"max_tokens": n})))
    warm = bool(cached.get("min_ratio") or cached.get("tokens"))
    seeds = st.fixed_dictionaries(
        {"per_rank": st.integers(1, 2), "shape": st.sampled_from(["short", "full"])}
    )
    return content_of(
        random_seed=draw(st.integers(0, 3)),
        encoding=draw(encodings),
        cache_rule=draw(rules),
        dp_ranks=draw(st.integers(1, 3)),
        body_len=draw(st.one_of(st.integers(1, 64), st.integers(65, 900))),
        output_len=draw(st.sampled_from([1, 7, 40])),
        cached=cached,
        prefix=draw(prefixes),
        task=draw(st.sampled_from(["copy", "words"])),
        seed=draw(seeds) if warm else None,
        check={"per_rank": draw(st.integers(0, 2))},
        formal={"per_rank": draw(st.integers(1, 4))},
    )


pytestmark = pytest.mark.usefixtures("small_bank")


@settings(max_examples=40, deadline=None)
@given(contents())
def test_a_spec_gives_a_set_that_keeps_every_promise_or_one_clear_error(content):
    with tempfile.TemporaryDirectory() as place:
        try:
            workload = build(spec_file.from_content(content, "spec"), Path(place)).workload
        except WlgenError as refusal:
            event("refused")
            assert_clear(refusal)
            assert not list(Path(place).iterdir())
            return
        event("built")
        assert broken_promises(workload.folder) == []
        for full in (False, True):
            assert verify(workload, full=full).findings == []
        assert replayed(workload) == []


def assert_clear(refusal: WlgenError) -> None:
    """Every problem has a place, what was expected and what was found, on one line."""
    for problem in refusal.problems:
        assert problem.place
        assert problem.expected
        assert problem.found
        assert "\n" not in str(problem)


def replayed(workload: Workload) -> list[str]:
    """Replay each rank through the engine's cache: what check and formal rows hit other than promised.

    The first row of a cold rank is left out: a zero set has no seed that the head's pages come from.
    """
    found = []
    warm = any(row["split"] == "seed" for row in read_rows(workload.folder))
    for rank in range(workload.manifest.dp_ranks):
        cache = new_cache(workload.manifest.cache)
        rows = [row for row in read_rows(workload.folder) if row["dp_rank"] == rank]
        for number, row in enumerate(rows):
            ids = server_ids(dict(workload.manifest.spec["encoding"]), row["messages"])
            match = cache.match(np.array(ids, dtype=np.uint32))
            cache.insert(match, np.zeros(1, dtype=np.uint32))
            promised = row["split"] != "seed" and (warm or number > 1)
            if promised and match.cached_len != row["cached_len"]:
                found.append(f"{row['id']}: {match.cached_len}, not {row['cached_len']}")
    return found
