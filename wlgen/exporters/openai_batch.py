"""OpenAI batch file: one request a line with its custom_id, for batch endpoints and `vllm run-batch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target
from wlgen.exporters._requests import grouped, request
from wlgen.exporters._run_card import RUN, commands, results

CLIENT = "the OpenAI batch format, and vLLM 0.32.0 run-batch"
CHECKED = False
FORMS = (
    Form(name="text", about="chat bodies, or completions for a set of raw text"),
    Form(name="ids", about="completions by token ids", ids=True, completes=True),
)
ONE_FILE_A: FileUnit = "rank where pinned by header"  # a batch has no headers: a file a rank, a server each
TAKES_TIMES = False


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>.jsonl, or a file a rank where the body cannot name it."""
    return grouped(prompts, partial(_line, target), apart=target.apart(ONE_FILE_A))


def _line(target: Target, prompt: Prompt) -> dict[str, Any]:
    route, body = request(prompt, target)
    del body["stream"], body["stream_options"]  # a batch is answered whole
    return {"custom_id": prompt.id, "method": "POST", "url": route, "body": body}


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: `vllm run-batch`, or any batch endpoint."""
    apart = target.apart(ONE_FILE_A)
    chat = target.form == "text" and target.is_chat

    def of(_part: str, file: str, name: str) -> str:
        if not chat:
            return f"your-batch-service {file} > {RUN}/{name}.jsonl"
        return (
            f"vllm run-batch -i {file} -o {RUN}/{name}.jsonl --model $MODEL"
            " --enable-prefix-caching --enable-prompt-tokens-details"
        )

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        setup="MODEL=NAME                     # `wlgen export --model NAME` writes it into the bodies",
        commands=commands(portions, apart=apart, of=of),
        audit=f"{results(apart=apart)}.jsonl --client openai-batch",
        off="""
- `custom_id` is the row's id, so the order of the answers does not matter.
- max_tokens, ignore_eos, temperature and (for SGLang) the rank are each row's own.""",
        limits="""
- A batch service may retry, reorder, and spread a file over servers: it proves counts, not times.
- A batch has no headers: where only a header pins (vLLM), each rank's file goes to a server of its own.
- `vllm run-batch` takes chat bodies only, and starts an engine of its own with an empty cache: join the
  files to seed and measure in one run, `cat seed.jsonl check.jsonl formal.jsonl`.""",
    )
