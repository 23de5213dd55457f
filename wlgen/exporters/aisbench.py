"""AISBench: JSONL, a Python config a split, and a model class that pins ranks and keeps usage."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import groupby
from string import Template
from typing import Any

import xxhash

from wlgen.errors import error
from wlgen.exporters import (
    Chunk,
    File,
    FileUnit,
    Form,
    Json,
    Portion,
    Prompt,
    RunCard,
    Target,
    _tokenizer,
    part,
)
from wlgen.exporters._requests import RANK_HEADER, extras, json_line, one_text, rank
from wlgen.exporters._run_card import RUN, commands, in_flight

CLIENT = "AISBench 3.1.20260630"
CHECKED = True
FORMS = (Form(name="text", about="JSONL, a config a split and a model class", tokenizer=True),)
ONE_FILE_A: FileUnit = "split"
TAKES_TIMES = True

MODEL = "wlgen_aisbench"
_LONGEST = 131072  # AISBench refuses a larger max_out_len in a config; the row's max_tokens wins

# A generated config, not --custom-dataset-path: that route crashes without an `answer` column, and with
# one it wraps the prompt as "Question: ...\nAnswer: ".
_CONFIG = Template('''\
"""$set, $part: AISBench config written by wlgen. Commands are in RUN.md."""
from ais_bench.benchmark.calculators import DefaultPerfMetricCalculator
from ais_bench.benchmark.datasets import CustomDataset
from ais_bench.benchmark.openicl.icl_evaluator import AccEvaluator
from ais_bench.benchmark.openicl.icl_inferencer import GenInferencer
from ais_bench.benchmark.openicl.icl_prompt_template import PromptTemplate
from ais_bench.benchmark.openicl.icl_retriever import ZeroRetriever
from ais_bench.benchmark.summarizers import DefaultPerfSummarizer
from $module import $model as ModelCls

__env = __import__("os").environ  # an import statement would be made lazy by the config reader

models = [dict(
    attr="service", type=ModelCls, abbr="wlgen", path=$tokenizer, trust_remote_code=False,
    url=__env.get("URL", "http://127.0.0.1:30000"), host_ip="127.0.0.1", host_port=30000,
    model=__env.get("MODEL", $served), api_key="",
    stream=True, retry=1, use_timestamp=$times,
    batch_size=int(__env.get("CONCURRENCY", "64")),
    request_rate=float(__env.get("RATE", "0")), traffic_cfg=dict(burstiness=0),
    max_out_len=$longest, generation_kwargs=$generation,
)]
datasets = [dict(
    abbr=$abbr, type=CustomDataset, path=$rows, meta_path="",
    reader_cfg=dict(input_columns=$columns, output_column=None),
    infer_cfg=dict(prompt_template=dict(type=PromptTemplate, template="{question}"),
                   retriever=dict(type=ZeroRetriever), inferencer=dict(type=GenInferencer)),
    eval_cfg=dict(evaluator=dict(type=AccEvaluator)),
)]
summarizer = dict(attr="performance", type=DefaultPerfSummarizer, calculator=dict(
    type=DefaultPerfMetricCalculator, stats_list=["Average", "Min", "Max", "Median", "P75", "P90", "P99"]))
''')


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <part>.jsonl and <part>.py, then the extras of all rows, the model class and a tokenizer."""
    if shlex.quote(target.folder) != target.folder:
        # Its task would not start, and the client would wait for it without end.
        expected = "a path that a shell need not quote: AISBench gives it to one as it is"
        raise error("--output", expected=expected, found=target.folder, remedy="Give another --output.")
    extra_lines: list[Chunk] = []
    for name, group in groupby(prompts, key=lambda prompt: part(prompt.split, prompt.round)):
        longest = [1]
        yield f"{name}.jsonl", _lines(group, target, extra_lines, longest)
        yield f"{name}.py", iter((_config(name, target, min(longest[0], _LONGEST)).encode(),))
    yield "wlgen_extras.jsonl", iter(extra_lines)
    source = resources.files("wlgen.exporters").joinpath("_aisbench_model.py").read_bytes()
    yield f"{MODEL}.py", iter((source,))
    yield from _tokenizer.files(target)


def _lines(
    prompts: Iterable[Prompt], target: Target, extra_lines: list[Chunk], longest: list[int]
) -> Iterator[Chunk]:
    """Yield the rows' lines; appends each row's extras, and keeps the longest output length in longest[0]."""
    for prompt in prompts:
        text = one_text(prompt, client="AISBench", remedy="Export it to sglang, aiperf or evalscope.")
        if b"{" in bytes(text.raw):
            remedy = "Export it to another client."
            found = "a '{', which AISBench's templating may rewrite"
            raise error(f"row {prompt.id}", expected="a text without braces", found=found, remedy=remedy)
        extra_lines.extend(json_line(_extra(prompt, text, target)))
        longest[0] = max(longest[0], prompt.output_len)
        # Never an `answer` column: see _CONFIG. Columns AISBench does not know are ignored.
        identity = {"wl_id": prompt.id, "dp_rank": prompt.dp_rank}
        time = {} if prompt.timestamp_ms is None else {"timestamp": prompt.timestamp_ms}
        yield from json_line({"question": text, "max_tokens": prompt.output_len, **identity, **time})


def _extra(prompt: Prompt, text: Json, target: Target) -> dict[str, Any]:
    headers = {} if target.pins_in_body else {RANK_HEADER: str(prompt.dp_rank)}
    # XXH3 of the JSON as it stands: neither decoded nor sha256, which would double the export's time.
    # AISBench has xxhash through datasets.
    identity = {
        "json_xxh3": xxhash.xxh3_128_hexdigest(text.raw),
        "wl_id": prompt.id,
        "dp_rank": prompt.dp_rank,
    }
    return {**identity, "body": rank(prompt, target), "headers": headers}


def _config(name: str, target: Target, longest: int) -> str:
    timed = target.has_times and name.startswith("formal")
    return _CONFIG.substitute(
        set=target.manifest.name,
        part=name,
        times=timed,
        columns=repr(["question", "max_out_len"] + ["timestamp"] * timed),
        module=MODEL,
        model="WlgenChat" if target.is_chat else "WlgenCompletions",
        tokenizer=repr(f"{target.folder}/{_tokenizer.FOLDER}"),
        served=repr(target.model),
        longest=longest,
        generation=repr(extras(target)),
        abbr=repr(f"{target.manifest.name}-{name}"),
        rows=repr(f"{target.folder}/{name}.jsonl"),
    )


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: one `ais_bench` command a split."""

    def of(_part: str, file: str, name: str) -> str:
        config = file.replace(".jsonl", ".py")
        return f'ais_bench "$PWD/{config}" --mode perf --num-warmups 0 --work-dir "$PWD/{RUN}/{name}"'

    limit = in_flight(target, portions, apart=False)
    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        install='ais-bench-benchmark==3.1.20260630 "pyarrow<22"  # it pins numpy < 2',
        setup=f"""
export PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}" HF_HUB_OFFLINE=1
export MODEL=                  # empty: the server is asked
export CONCURRENCY={limit} RATE=0   # RATE: requests a second, 0 for as fast as the concurrency lets""",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit=f"{RUN}/PART/*/performances/wlgen --client aisbench",
        off="""
- `--num-warmups 0`: the default of 1 sends row 0 once more, at full length.
- `retry=1` (it counts attempts): a cut stream that is retried reports success.
- `burstiness=0`: RATE means fixed spacing, not an unseeded Poisson stream.
- `ignore_eos` and each row's own `max_tokens`: exact output lengths.
- Template `{question}` and no `answer` column: nothing is wrapped around the prompt.
- Dataset paths are absolute (a relative one is looked for in site-packages): after moving this folder,
  export again.
- The model class sends each row on its own rank, does not send a text that is no row's, and keeps usage,
  cached tokens, response id, finish reason and wall clock in `extra_perf_data`. An API key is taken from
  OPENAI_API_KEY, and not written anywhere.
- Not to be used: `--pressure`, `--num-prompts`, a `request_count` in SPLIT.jsonl.meta.json: they repeat,
  cut or resample rows.
- The ranks take turns in the file, which is sent in order: each rank has the same load.
- Where rows have times, `use_timestamp` sends each at its own: RATE and CONCURRENCY then do nothing.""",
    )
