"""Plain JSONL: each row of the set with its messages, or with its ids beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from wlgen.exporters import FIELDS, File, FileUnit, Form, Portion, Prompt, RunCard, Target
from wlgen.exporters._requests import grouped, messages
from wlgen.exporters._run_card import commands
from wlgen.workload.rows import OPTIONAL_KEYS

FORMS = (
    Form(name="text", about="every key of the row, with its messages"),
    Form(name="ids", about="the same, and input_ids", ids=True),
)


ONE_FILE_A: FileUnit = "split"
TAKES_TIMES = True


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>.jsonl."""
    return grouped(prompts, _line, apart=target.apart(ONE_FILE_A))


def _line(prompt: Prompt) -> dict[str, Any]:
    values = ((name, getattr(prompt, name)) for name in FIELDS)
    fields = {name: value for name, value in values if name not in OPTIONAL_KEYS or value is not None}
    fields |= {"messages": messages(prompt)}
    return fields if prompt.ids is None else fields | {"input_ids": prompt.ids}


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card of a client of your own: what it must send, and what it should keep."""
    pin = "`routed_dp_rank` in the body" if target.pins_in_body else "the header `X-data-parallel-rank`"

    def of(_part: str, file: str, name: str) -> str:
        return f"your-client {file} > results/{name}.jsonl"

    return RunCard(
        source="a client of your own",
        setup="URL=http://127.0.0.1:30000\nmkdir -p results",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit="results/PART.jsonl --client plain",
        off=f"""
- Send each row once, in file order, with no warm-up from the file and no retry.
- Send `messages` verbatim to the chat endpoint, or `input_ids` as the prompt of a completion.
- Send `max_tokens` = output_len, `ignore_eos` true, `temperature` 0, and dp_rank as {pin}.
- Keep a line a request: {{"id": row id, "usage": {{...}}}}, or the whole response beside the id.""",
    )
