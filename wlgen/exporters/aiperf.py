"""AIPerf: `mooncake_trace` rows, one session a row, whose id comes back as conversation_id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target, _tokenizer
from wlgen.exporters._requests import RANK_HEADER, extras, grouped, messages, one_text, rank, request
from wlgen.exporters._run_card import RUN, commands, in_flight, results

CLIENT = "AIPerf 0.13.0"
CHECKED = True
FORMS = (
    Form(name="text", about="messages, with the rank among the extra fields", tokenizer=True),
    Form(
        name="ids",
        about="the whole payload, its prompt the ids, to completions",
        ids=True,
        tokenizer=True,
        completes=True,
    ),
)
ONE_FILE_A: FileUnit = "rank where pinned by header"
TAKES_TIMES = True


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>.jsonl, or a file a rank where a header pins, and a tokenizer, which AIPerf wants."""
    yield from grouped(prompts, partial(_line, target), apart=target.apart(ONE_FILE_A))
    yield from _tokenizer.files(target)


def _line(target: Target, prompt: Prompt) -> dict[str, Any]:
    time = {} if prompt.timestamp_ms is None else {"timestamp": prompt.timestamp_ms}
    if prompt.ids is not None:
        return {"session_id": prompt.id, **time, "payload": request(prompt, target)[1]}
    if target.is_chat:
        text: dict[str, Any] = {"messages": messages(prompt)}
    else:
        text = {"text_input": one_text(prompt, client="a completion", remedy="Export it with --form ids.")}
    extra = {**extras(target), **rank(prompt, target)}
    return {"session_id": prompt.id, **time, **text, "output_length": prompt.output_len, "extra": extra}


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: one run a split, or a run a rank where the rank goes in a header."""
    apart = target.apart(ONE_FILE_A)
    endpoint = "chat" if target.form == "text" and target.is_chat else "completions"
    limit = "$PER_RANK" if apart else "$CONCURRENCY"
    # The leading 0 keeps the rank a text: AIPerf makes "3" a number, and then refuses it as a header.
    header = f" --header {RANK_HEADER}:0$r" if apart else ""

    def of(part: str, file: str, name: str) -> str:
        timed = target.has_times and part.startswith("formal")
        # Never auto-offset: each rank's process would take its own first row as zero.
        pace = "--fixed-schedule" if timed else f"--concurrency {limit}"
        return f"""\
aiperf profile --url $URL --model $MODEL --endpoint-type {endpoint} --streaming{header} \\
  --input-file {file} --custom-dataset-type mooncake_trace --dataset-sampling-strategy sequential \\
  --request-count $(wc -l < {file}) {pace} \\
  --use-server-token-count --tokenizer "$PWD/{_tokenizer.FOLDER}" --output-artifact-dir {RUN}/{name}"""

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        install="aiperf==0.13.0",
        setup=f"""
MODEL=NAME                     # the served model's name
{limit[1:]}={in_flight(target, portions, apart=apart)}""",
        commands=commands(portions, apart=apart, of=of),
        audit=f"{results(apart=apart)}/profile_export.jsonl --client aiperf",
        off="""
- No `--warmup-request-count`: a warm-up eats rows of the set.
- `--request-count` is the file's own number of rows: with more it wraps, and sends rows twice.
- `--dataset-sampling-strategy sequential`: each row once, in file order.
- Rows that have times are sent at them, by `--fixed-schedule`: start all ranks together. Others are paced
  by concurrency, or by `--request-rate`.
- One session a row, whose `session_id` is the row's id and comes back as conversation_id.
- `--tokenizer` is this export's folder: the counts are the server's (`--use-server-token-count`).""",
        limits="""
- An API key goes in `--api-key`, which stands in the list of processes.""",
    )
