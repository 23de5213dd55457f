"""evalscope perf: whole bodies a line, or a workload trace, the one format here with headers a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target
from wlgen.exporters._requests import CHAT, COMPLETIONS, RANK_HEADER, grouped, request
from wlgen.exporters._run_card import RUN, commands, in_flight, results

CLIENT = "evalscope 1.14.1 perf"
CHECKED = False
FORMS = (
    Form(name="text", about="line_by_line: one whole request body a line"),
    Form(name="trace", about="workload_trace: body, a rank header and an id a row; sent on a schedule"),
)
ONE_FILE_A: FileUnit = "rank where pinned by header"
TAKES_TIMES = True


def _apart(target: Target) -> bool:
    return target.form != "trace" and target.apart(ONE_FILE_A)  # a trace has a header a row


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <part>.jsonl, or for bodies pinned by a header a file a rank."""
    second = count()

    def line(prompt: Prompt) -> dict[str, Any]:
        body = request(prompt, target)[1]
        if target.form == "text":
            return body
        headers = {RANK_HEADER: str(prompt.dp_rank)}
        identity = {"request_id": prompt.id, "completion_tokens": prompt.output_len}
        time = next(second) if prompt.timestamp_ms is None else prompt.timestamp_ms / 1000
        return {"body": body, "timestamp": time, "headers": headers, **identity}

    return grouped(prompts, line, apart=_apart(target))


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: one run a split, or a run a rank where the rank goes in a header."""
    apart, trace = _apart(target), target.form == "trace"
    route = CHAT if target.is_chat else COMPLETIONS
    header = f" --headers {RANK_HEADER}=$r" if apart else ""
    if trace:
        if target.has_times:
            setting = "RATE=1                         # 1: the rows' own times; 2: twice as fast"
        else:
            setting = "RATE=4                         # requests a second"
        pace = "--dataset workload_trace --open-loop --dataset-args '{\"speed\": '$RATE'}'"
    else:
        setting = f"{'PER_RANK' if apart else 'CONCURRENCY'}={in_flight(target, portions, apart=apart)}"
        pace = f"--dataset line_by_line --parallel ${setting.partition('=')[0]}"

    def of(_part: str, file: str, name: str) -> str:
        return f"""\
evalscope perf --api openai --url $URL{route} --model $MODEL{header} --no-test-connection \\
  {pace} \\
  --dataset-path {file} --number $(wc -l < {file}) --outputs-dir {RUN}/{name}"""

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        install="'evalscope[perf]==1.14.1'",
        setup=f"""
MODEL=NAME                     # the served model's name
{setting}""",
        commands=commands(portions, apart=apart, of=of),
        audit=f"{results(apart=apart)}/*/*/*/benchmark_data.db --client evalscope",
        off="""
- `--number` is the file's own number of rows: with more, rows are sent again.
- `--no-test-connection` and no `--warmup-num`: nothing but the rows is sent.
- Whole bodies: max_tokens, ignore_eos, temperature and the rank are each row's own.
- A trace sends rows at their own times, or one second apart where they have none, times `speed`; it has
  headers a row, so it pins on vLLM too.""",
        blind="""
            The client keeps the running sum of cached tokens in workload_timeline.json beside its database,
            from which the audit takes each row's. If it stays 0, nothing tells 0 from "not reported", and the
            servers' counters of step 6 are the witness.""",
    )
