"""SGLang bench_serving: `openai` rows, whose extra keys go into each request's body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from wlgen.errors import error
from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target, _tokenizer
from wlgen.exporters._requests import RANK_HEADER, extras, grouped, messages, rank
from wlgen.exporters._run_card import RUN, commands, in_flight, results

CLIENT = "SGLang 0.5.23 bench_serving"
CHECKED = True
FORMS = (
    Form(name="text", about="messages, rendered by the server", tokenizer=True),
    Form(
        name="ids",
        about="messages and input_ids, which bypass the server's template",
        ids=True,
        tokenizer=True,
    ),
)
ONE_FILE_A: FileUnit = "rank where pinned by header"
TAKES_TIMES = False


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield the rows' files and a tokenizer folder with a template: the client insists on one."""
    if not target.is_chat:
        expected = "a set with chat framing: bench_serving's openai rows go to the chat endpoint"
        remedy = "Export it to vllm or aiperf."
        raise error("--to sglang", expected=expected, found="a set of raw text", remedy=remedy)
    yield from grouped(prompts, partial(_line, target), apart=target.apart(ONE_FILE_A))
    yield from _tokenizer.files(target)


def _line(target: Target, prompt: Prompt) -> dict[str, Any]:
    line = {
        "messages": messages(prompt),
        "max_tokens": prompt.output_len,
        "rid": prompt.id,
        "stream_options": {"include_usage": True},
        **extras(target),
        **rank(prompt, target),
    }
    return line if prompt.ids is None else line | {"input_ids": prompt.ids}


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: one run a split, or a run a rank where the rank goes in a header."""
    apart = target.apart(ONE_FILE_A)
    limit = "$PER_RANK" if apart else "$CONCURRENCY"
    most = in_flight(target, portions, apart=apart)
    header = f" --header {RANK_HEADER}=$r" if apart else ""

    def of(_part: str, file: str, name: str) -> str:
        return f"""\
python -m sglang.bench_serving --backend sglang-oai-chat --base-url $URL --model $MODEL{header} \\
  --dataset-name openai --dataset-path {file} --num-prompts $(wc -l < {file}) \\
  --tokenizer "$PWD/{_tokenizer.FOLDER}" --warmup-requests 0 \\
  --request-rate $RATE --max-concurrency {limit} \\
  --cache-report --output-details --output-file {RUN}/{name}.jsonl"""

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        install="sglang==0.5.23",
        setup=f"""
MODEL=NAME                     # the served model's name
{limit[1:]}={most} RATE=inf         # RATE: requests a second, Poisson; inf: no pause""",
        commands=commands(portions, apart=apart, of=of),
        audit=f"{results(apart=apart)}.jsonl --client sglang",
        off="""
- `--warmup-requests 0`: the default of 1 re-sends row 0's prompt, on any rank.
- No `--flush-cache`: it runs after the warm-up, and empties a seeded cache.
- `--dataset-name openai`: rows are sent verbatim and in file order; `custom` shuffles, `mooncake` ignores
  input_length, `generated-shared-prefix` makes text that grows when it is encoded again.
- `--num-prompts` is the file's own number of rows.
- `--output-file` is appended to, so each run has a folder of its own.
- `--tokenizer` is this export's folder, for the client's own estimate: input_lens are the server's count.
- `--cache-report` needs the server's `--enable-cache-report`: without it cached tokens stay 0.""",
        blind="""
            The client keeps no ids and no ranks. It keeps each row's cached tokens; where they are 0 for
            every row, the server lacks `--enable-cache-report`, and the servers' counters of step 6 tell.""",
        limits="""
- Its result has no ids and no ranks: the audit takes the rows in file order, so run one file a result.
- Before it sends the first row it encodes every prompt for its own count of input tokens: 640 prompts of
  131,072 tokens take 3 minutes of one core.""",
    )
