"""The contract of every exporter, found by name: forms, files, laziness, run card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, cycle, islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import orjson
import pytest
from kit import audits
from kit.rules import made_rule

from wlgen import exporters, readers, registry
from wlgen.encodings import Message
from wlgen.errors import WlgenError
from wlgen.exporters import Exporter, File, Portion, Prompt, Target
from wlgen.workload.splits import SPLITS

CLIENTS = registry.names(exporters)
FORMS = [(c, form.name) for c in CLIENTS for form in registry.load(exporters, c, place="").FORMS]
TOKENIZER = b'{"version": "1.0"}'


def exporter(client: str) -> Exporter:
    return registry.load(exporters, client, place="")  # type: ignore[return-value] (a module is one)


def target(form: str, **changes: Any) -> Target:
    fields = {"manifest": audits.manifest(), "form": form, "folder": "/exports/here", "tokenizer": TOKENIZER}
    return Target(**fields | changes)


def prompts(client: str, form: str, formal: int = 4) -> Iterator[Prompt]:
    """Yield rows in the order the exporter asks for, with ids where its form has them."""
    found = exporter(client)
    with_ids = next(f.ids for f in found.FORMS if f.name == form)
    rows = audits.rows(formal)
    if not target(form).apart(found.ONE_FILE_A):
        rows.sort(key=lambda row: (SPLITS.index(row.split), row.id.rsplit("-", 1)[1], row.dp_rank))
    for row in rows:
        yield Prompt.of(row, np.arange(row.prompt_len, dtype=np.uint32) if with_ids else None)


def consume(made: Iterator[File]) -> None:
    for _name, chunks in made:
        for _chunk in chunks:
            pass


def portions() -> list[Portion]:
    return [
        Portion(split=split, round=0, dp_rank=rank, rows=4, output_lens=(64,), cached_lens=(0, 1664))
        for split in SPLITS
        for rank in range(2)
    ]


@pytest.mark.parametrize("client", CLIENTS)
def test_forms_are_named_once_and_described(client: str):
    names = [form.name for form in exporter(client).FORMS]
    assert names == list(dict.fromkeys(names))
    assert names
    assert all(form.about for form in exporter(client).FORMS)


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_file_names_stay_inside_the_folder_and_come_once(client: str, form: str):
    names = [
        name for name, chunks in exporter(client).files(prompts(client, form), target(form)) if list(chunks)
    ]
    assert len(names) == len(set(names))
    for name in map(PurePosixPath, names):
        assert not name.is_absolute()
        assert ".." not in name.parts


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_rows_are_read_lazily_and_all_of_them(client: str, form: str):
    """A set of 640 rows of 128K tokens must pass in flat memory: one row is read for each line written."""
    read = 0

    def counted() -> Iterator[Prompt]:
        nonlocal read
        for prompt in prompts(client, form, formal=30):
            read += 1
            yield prompt

    written = 0
    for name, chunks in exporter(client).files(counted(), target(form)):
        for chunk in chunks:
            rows_file = name.endswith(".jsonl") and "extras" not in name
            assert not rows_file or read <= written + 1
            written += rows_file and bytes(chunk).endswith(b"\n")
    assert read == written == len(audits.rows(30))


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_the_same_rows_give_the_same_bytes(client: str, form: str):
    def once() -> list[tuple[str, bytes]]:
        made = exporter(client).files(prompts(client, form), target(form))
        return [(name, b"".join(chunks)) for name, chunks in made]

    assert once() == once()


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_each_line_is_json_and_no_text_is_escaped_away(client: str, form: str):
    """Chinese stays UTF-8, quotes and line breaks survive."""
    text = '他说"好"。\n"quoted" \\ back'

    def spoken() -> Iterator[Prompt]:
        for number, prompt in enumerate(prompts(client, form)):
            message = Message("user", f"{text} {number}")
            yield Prompt.of(replace(prompt.row(), messages=(message,)), prompt.ids)

    made = exporter(client).files(spoken(), target(form))
    content = b"".join(
        chain.from_iterable(chunks if name.endswith(".jsonl") else () for name, chunks in made)
    )
    for line in content.splitlines():
        orjson.loads(line)
    if next(f.ids for f in exporter(client).FORMS if f.name == form) and client not in {"plain", "sglang"}:
        return  # by ids alone: no text goes along
    assert "他说" in content.decode()


@pytest.mark.parametrize(("client", "form"), FORMS)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_run_card_has_every_split_and_an_audit_that_can_be_run(client: str, form: str, engine: str):
    rule = made_rule(name=engine, engine=engine, page_size=16, hit_quantum=16)  # type: ignore[arg-type]
    card = exporter(client).run_card(
        target(form, manifest=replace(audits.manifest(), cache=rule)), portions()
    )
    assert list(card.commands) == list(SPLITS)
    assert (card.source, card.checked) == (exporter(client).CLIENT, exporter(client).CHECKED)
    assert card.off.strip().startswith("- ")
    reader = card.audit.rpartition("--client ")[2]
    assert not card.audit or reader in registry.names(readers)


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_a_card_without_seeds_has_no_command_for_them(client: str, form: str):
    formal = [p for p in portions() if p.split == "formal"]
    assert list(exporter(client).run_card(target(form), formal).commands) == ["formal"]


@pytest.mark.parametrize("client", ["aisbench", "vllm"])
def test_rows_of_several_messages_are_refused_by_clients_of_one_text(client: str):
    roles = cycle(["system", "user"])

    def conversation() -> Iterator[Prompt]:
        for prompt in prompts(client, "text"):
            (said,) = prompt.messages
            yield replace(prompt, messages=tuple(said._replace(role=r) for r in islice(roles, 2)))

    with pytest.raises(WlgenError, match="row seed-r00-000000: expected one user message"):
        consume(exporter(client).files(conversation(), target("text")))


def test_two_output_lengths_in_a_run_by_ids_are_refused_by_vllm():
    def uneven() -> Iterator[Prompt]:
        for number, prompt in enumerate(prompts("vllm", "ids")):
            yield replace(prompt, output_len=64 + number if prompt.split == "formal" else 1)

    with pytest.raises(
        WlgenError, match=r"row formal-r00-000001: expected output_len 68: .* one length a run"
    ):
        consume(exporter("vllm").files(uneven(), target("ids")))


def test_sglang_refuses_raw_text():
    raw = replace(audits.manifest(), encoding={**audits.manifest().encoding, "chat": False})
    with pytest.raises(WlgenError, match="expected a set with chat framing"):
        consume(exporter("sglang").files(prompts("sglang", "text"), target("text", manifest=raw)))


def test_the_clients_that_the_slow_tests_install_are_those_that_the_cards_are_of():
    """ais-bench-benchmark==3.1.20260630 is AISBench 3.1.20260630, as its exporter says."""
    script = (Path(__file__).parents[1] / "clients/set_up.sh").read_text()
    cases = script[script.index("case $client in") :]
    for client in ("aisbench", "sglang", "vllm", "aiperf", "guidellm", "evalscope"):
        version = next(part for part in exporter(client).CLIENT.split() if part[0].isdecimal())
        assert f"=={version}" in cases.partition(f"  {client})")[2].partition(";;")[0]
