"""Round trip: what each client would send is the set, by text, by ids, by length and by rank."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from kit.carried import READERS, Carried, carried, lines
from kit.sets import raw, spec_of

from wlgen import exporters, registry
from wlgen.build.build import build
from wlgen.export.export import export
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row
from wlgen.workload.splits import SPLITS

CLIENTS = [
    (client, form.name)
    for client in registry.names(exporters)
    if client in READERS
    for form in registry.load(exporters, client, place="").FORMS
]


@pytest.fixture(scope="module", params=["sglang", "vllm"])
def pinned_set(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Build a set of each engine: SGLang is pinned in the body, vLLM in a header."""
    rule = {"engine": request.param, "page_size": 16}
    spec = spec_of(name=f"for-{request.param}", cache_rule=rule, seed={"per_rank": 1}, formal={"total": 7})
    return build(spec, tmp_path_factory.mktemp(request.param)).workload


@pytest.mark.parametrize(("client", "form"), CLIENTS)
def test_what_a_client_sends_is_the_set(pinned_set: Workload, tmp_path: Path, client: str, form: str):
    export(pinned_set, client, tmp_path / "out", form=form)
    found = carried(client, tmp_path / "out")
    rows = {row.text_sha256: row for row in pinned_set.rows()} | {
        r.prompt_sha256: r for r in pinned_set.rows()
    }
    of = [_row(request, rows) for request in found]
    assert Counter(row.id for row in of) == Counter(row.id for row in pinned_set.rows())
    for request, row in zip(found, of, strict=True):
        assert (request.split, request.output_len) == (row.split, row.output_len)
        assert request.rank == row.dp_rank
        assert request.id in {row.id, None}


def _row(request: Carried, rows: dict[str, Row]) -> Row:
    """Return the row of the request's text, which must be that of its ids too where it has both."""
    found = []
    if request.text is not None:
        found.append(rows[hashlib.sha256(request.text.encode()).hexdigest()])
    if isinstance(request.prompt, list):
        ids = np.array(request.prompt, dtype="<u4")
        found.append(rows[hashlib.sha256(ids.tobytes()).hexdigest()])
    assert found
    assert all(row == found[0] for row in found)
    return found[0]


@pytest.mark.parametrize("client", ["aisbench", "sglang", "aiperf", "evalscope", "openai-batch", "plain"])
def test_ranks_take_turns_in_a_file_that_is_sent_in_order(warm_set: Workload, tmp_path: Path, client: str):
    """Rank after rank would load one rank at a time: 40 requests on rank 0 and none on the others."""
    export(warm_set, client, tmp_path / "out")
    ranks = [r.rank for r in carried(client, tmp_path / "out") if r.split == "formal"]
    assert ranks == [0, 1] * (len(ranks) // 2)


@pytest.mark.parametrize("client", ["vllm", "guidellm", "aiperf", "evalscope", "openai-batch", "aisbench"])
def test_raw_text_goes_to_the_completions_endpoint(tmp_path: Path, client: str):
    spec = spec_of(name="raw", encoding=raw(), formal={"total": 4})
    workload = build(spec, tmp_path).workload
    export(workload, client, tmp_path / "out")
    texts = {row.messages[0].content for row in workload.rows()}
    assert {request.prompt for request in carried(client, tmp_path / "out")} == texts
    assert "/v1/chat" not in (tmp_path / "out/RUN.md").read_text()


@pytest.mark.parametrize("added", [False, True])
def test_vllm_is_told_whether_to_add_special_tokens_to_raw_text(tmp_path: Path, *, added: bool):
    """It adds a BOS by default, which a set without framing does not count."""
    encoding = raw("llama2", add_special_tokens=added)
    rule = {"engine": "vllm", "page_size": 16}
    spec = spec_of(name="raw", encoding=encoding, cache_rule=rule, formal={"total": 2})
    export(build(spec, tmp_path).workload, "openai-batch", tmp_path / "out")
    bodies = [line["body"] for path in (tmp_path / "out/formal").iterdir() for line in lines(path)]
    assert [body["add_special_tokens"] for body in bodies] == [added, added]


@pytest.mark.parametrize("client", sorted(READERS))
def test_kwargs_of_the_template_go_with_every_chat_request(tmp_path: Path, client: str):
    """Without them vLLM's DeepSeek V4 thinks, and each prompt has 79 tokens more."""
    spec = spec_of(name="kw", encoding={"name": "deepseek-v4"}, formal={"total": 2})
    workload = build(spec, tmp_path).workload
    export(workload, client, tmp_path / "out")
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file() and "tokenizer" not in p.parts]
    written = "".join(p.read_text() for p in files)
    assert "chat_template_kwargs" in written
    assert any(spelling in written for spelling in ('{"thinking":false}', "{'thinking': False}"))


def test_each_split_is_a_file_of_its_own(warm_set: Workload, tmp_path: Path):
    export(warm_set, "plain", tmp_path / "out")
    ids = [line["id"] for split in SPLITS for line in lines(tmp_path / "out" / f"{split}.jsonl")]
    assert sorted(ids) == sorted(row.id for row in warm_set.rows())
