"""AISBench's export: the config runs as Python; the model class pins, keeps, and sends nothing foreign."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit import audits
from kit.rules import made_rule

from wlgen.encodings import Message
from wlgen.errors import WlgenError
from wlgen.exporters import Prompt, Target, aisbench
from wlgen.workload.rows import Row

STUBS = {
    "ais_bench.benchmark.calculators": ["DefaultPerfMetricCalculator"],
    "ais_bench.benchmark.datasets": ["CustomDataset"],
    "ais_bench.benchmark.openicl.icl_evaluator": ["AccEvaluator"],
    "ais_bench.benchmark.openicl.icl_inferencer": ["GenInferencer"],
    "ais_bench.benchmark.openicl.icl_prompt_template": ["PromptTemplate"],
    "ais_bench.benchmark.openicl.icl_retriever": ["ZeroRetriever"],
    "ais_bench.benchmark.summarizers": ["DefaultPerfSummarizer"],
}


@dataclass
class Output:
    """AISBench's record of one request, as far as a model class touches it."""

    success: bool = False
    error_info: str = ""
    extra_perf_data: dict[str, Any] = field(default_factory=dict)


class StockModel:
    """AISBench's own model, as far as a subclass sees it: it posts with its headers and generation_kwargs."""

    posted: list[tuple[dict[str, str], dict[str, Any], str]]
    events: list[dict[str, Any]]

    def __init__(self, **settings: Any) -> None:
        self.headers = {"Content-Type": "application/json"}
        if settings["api_key"]:
            self.headers["Authorization"] = f"Bearer {settings['api_key']}"
        self.generation_kwargs = settings["generation_kwargs"]

    async def generate(self, text: str, max_out_len: int, output: Output, **_rest: Any) -> Output:
        await asyncio.sleep(0)  # another request goes in between: ranks must not be the model's own
        type(self).posted.append(
            (dict(self.headers), {**self.generation_kwargs, "max_tokens": max_out_len}, text)
        )
        for event in type(self).events:
            await self.parse_stream_response(event, output)
        output.success = True
        return output

    async def parse_stream_response(self, event: dict[str, Any], output: Output) -> None:
        pass


EVENTS: list[dict[str, Any]] = [
    {"id": "answer-1", "choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]},
    {
        "id": "answer-1",
        "choices": [],
        "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}},
    },
]


@pytest.fixture
def ais_bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StockModel]]:
    """Put a small AISBench where imports look for it."""
    stock = type("Stock", (StockModel,), {"posted": [], "events": EVENTS})
    modules = {name: types.ModuleType(name) for name in STUBS}
    for name, kinds in STUBS.items():
        for kind in kinds:
            setattr(modules[name], kind, type(kind, (), {}))
    models = types.ModuleType("ais_bench.benchmark.models")
    models.VLLMCustomAPIChat = stock  # type: ignore[attr-defined] (a stub)
    models.VLLMCustomAPI = type("Raw", (stock,), {})  # type: ignore[attr-defined] (a stub)
    for name in ("ais_bench", "ais_bench.benchmark", "ais_bench.benchmark.openicl"):
        modules[name] = types.ModuleType(name)
    for name, module in {**modules, "ais_bench.benchmark.models": models}.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield stock
    sys.modules.pop("wlgen_aisbench", None)


def spoken_rows() -> list[Row]:
    """Return rows whose texts JSON escapes and Unicode does not leave alone."""
    added = '\n"quoted" \\ 好\t'
    return [
        replace(row, messages=(Message("user", row.messages[0].content + added),)) for row in audits.rows()
    ]


def exported(folder: Path, engine: str = "sglang", **encoding: Any) -> Path:
    """Write an export of the rows into a folder, as wlgen does."""
    rule = made_rule(name=engine, engine=engine, page_size=128, hit_quantum=128)  # type: ignore[arg-type]
    manifest = replace(audits.manifest(), cache=rule, encoding={**audits.manifest().encoding, **encoding})
    target = Target(manifest=manifest, form="text", folder=folder.as_posix(), tokenizer=b"{}")
    for name, chunks in aisbench.files(map(Prompt.of, spoken_rows()), target):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"".join(chunks))
    return folder


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ais_bench: type[StockModel]) -> ModuleType:
    """Run the formal config as AISBench does, with the variables of the run card at their defaults."""
    for name in ("URL", "MODEL", "CONCURRENCY", "RATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(exported(tmp_path))
    assert not ais_bench.posted
    return imported(tmp_path / "formal.py")


def test_the_config_switches_every_trap_off(config: ModuleType):
    (model,) = config.models
    assert model["retry"] == 1
    assert model["traffic_cfg"] == {"burstiness": 0}
    assert model["generation_kwargs"]["ignore_eos"] is True
    assert model["stream"] is True
    (dataset,) = config.datasets
    assert dataset["infer_cfg"]["prompt_template"]["template"] == "{question}"
    assert dataset["reader_cfg"] == {"input_columns": ["question", "max_out_len"], "output_column": None}
    assert dataset["meta_path"] == ""


def test_the_config_holds_absolute_paths_that_exist(config: ModuleType, tmp_path: Path):
    """A relative dataset path is looked for in site-packages."""
    assert config.datasets[0]["path"] == str(tmp_path / "formal.jsonl")
    assert Path(config.datasets[0]["path"]).is_file()
    assert Path(config.models[0]["path"], "tokenizer.json").is_file()
    assert config.models[0]["max_out_len"] == audits.OUTPUT


@pytest.mark.usefixtures("ais_bench")
def test_the_config_takes_the_variables_of_the_run_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"URL": "http://10.0.0.1:1", "MODEL": "m", "CONCURRENCY": "7", "RATE": "2.5"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(exported(tmp_path))
    (model,) = imported(tmp_path / "check.py").models
    assert (model["url"], model["model"]) == ("http://10.0.0.1:1", "m")
    assert (model["batch_size"], model["request_rate"]) == (7, 2.5)


def test_the_config_has_no_import_statement_that_its_reader_would_make_lazy(config: ModuleType):
    """The config reader turns `import os` into an object that cannot be called."""
    text = Path(str(config.__file__)).read_text()
    assert all(
        line.startswith("from ") for line in text.splitlines() if "import " in line and "__" not in line
    )
    assert not any(name.startswith("os") for name in vars(config))


def model_of(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "WlgenChat") -> Any:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    kinds = imported(folder / "wlgen_aisbench.py")
    return getattr(kinds, kind)(api_key="", generation_kwargs={"ignore_eos": True})


def sent_together(model: Any, texts: list[str]) -> list[Output]:
    async def all_at_once() -> list[Output]:
        return await asyncio.gather(*(model.generate(text, 64, Output()) for text in texts))

    return asyncio.run(all_at_once())


def test_requests_in_flight_together_keep_their_own_rank_in_the_body(
    ais_bench: type[StockModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = spoken_rows()
    model = model_of(exported(tmp_path), monkeypatch)
    sent_together(model, [row.messages[0].content for row in rows])
    ranks = {text: body["routed_dp_rank"] for _, body, text in ais_bench.posted}
    assert ranks == {row.messages[0].content: row.dp_rank for row in rows}
    assert model.generation_kwargs == {"ignore_eos": True}


def test_rows_of_one_text_take_their_ranks_in_turn(
    ais_bench: type[StockModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A trace may repeat a prompt, on another rank."""
    message = Message("user", "again")
    rows = [audits.row("formal", rank, 0, messages=(message,)) for rank in (1, 0)]
    target = Target(manifest=audits.manifest(), form="text", folder=tmp_path.as_posix(), tokenizer=b"{}")
    for name, chunks in aisbench.files(map(Prompt.of, rows), target):
        if name.startswith("wlgen_"):
            (tmp_path / name).write_bytes(b"".join(chunks))
        else:
            list(chunks)
    sent_together(model_of(tmp_path, monkeypatch), ["again", "again"])
    assert [body["routed_dp_rank"] for _, body, _ in ais_bench.posted] == [1, 0]


def test_a_set_for_vllm_is_pinned_by_header_alone(
    ais_bench: type[StockModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = spoken_rows()
    model = model_of(exported(tmp_path, "vllm"), monkeypatch)
    sent_together(model, [row.messages[0].content for row in rows])
    ranks = {text: headers["X-data-parallel-rank"] for headers, _, text in ais_bench.posted}
    assert ranks == {row.messages[0].content: str(row.dp_rank) for row in rows}
    assert not any("routed_dp_rank" in body for _, body, _ in ais_bench.posted)


@pytest.mark.usefixtures("ais_bench")
def test_what_the_server_reported_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    row = spoken_rows()[-1]
    (output,) = sent_together(model_of(exported(tmp_path), monkeypatch), [row.messages[0].content])
    kept = output.extra_perf_data
    assert (kept["wl_id"], kept["dp_rank"]) == (row.id, row.dp_rank)
    assert (kept["response_id"], kept["finish_reason"], kept["cached_tokens"]) == ("answer-1", "length", 5)
    assert kept["usage"] == EVENTS[1]["usage"]
    assert 0 < kept["wall_start"] <= kept["wall_end"]


def test_cached_tokens_that_are_not_reported_are_not_kept_as_zero(
    ais_bench: type[StockModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ais_bench.events = [{"choices": [], "usage": {"prompt_tokens": 9}}]
    text = spoken_rows()[0].messages[0].content
    (output,) = sent_together(model_of(exported(tmp_path), monkeypatch), [text])
    assert "cached_tokens" not in output.extra_perf_data


def test_a_changed_text_is_not_sent(
    ais_bench: type[StockModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Templating that rewrites a prompt would measure another prompt."""
    text = spoken_rows()[0].messages[0].content + " "
    (output,) = sent_together(model_of(exported(tmp_path), monkeypatch), [text])
    assert not ais_bench.posted
    assert not output.success
    assert "not that of any row" in output.error_info


@pytest.mark.usefixtures("ais_bench")
def test_the_key_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A key in the config would be written to the work folder by AISBench."""
    exported(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    model = imported(tmp_path / "wlgen_aisbench.py").WlgenChat(api_key="", generation_kwargs={})
    assert model.headers["Authorization"] == "Bearer secret"


def test_raw_text_takes_the_completions_model(tmp_path: Path):
    assert "import WlgenCompletions as ModelCls" in (exported(tmp_path, chat=False) / "formal.py").read_text()


def test_a_folder_that_a_shell_would_split_is_refused():
    """AISBench starts its task through a shell, by a path that it does not quote, and waits without end."""
    target = Target(manifest=audits.manifest(), form="text", folder="/my runs/out", tokenizer=b"{}")
    with pytest.raises(WlgenError, match="--output: expected a path that a shell need not quote"):
        next(aisbench.files(map(Prompt.of, audits.rows()), target))


def test_a_brace_in_a_text_is_refused():
    """AISBench would replace {idx} in a prompt without a word."""
    message = audits.rows()[0].messages[0]._replace(content="what is {idx}")
    target = Target(manifest=audits.manifest(), form="text", folder="/x", tokenizer=b"{}")
    made = aisbench.files([Prompt.of(audits.row("check", 0, 0, messages=(message,)))], target)
    with pytest.raises(WlgenError, match="row check-r00-000000: expected a text without braces"):
        list(next(iter(made))[1])
