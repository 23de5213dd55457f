"""Plain JSONL: each row of the set with its messages, or with its ids beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from wlgen.exporters import FIELDS, File, FileUnit, Form, Portion, Prompt, RunCard, Target
from wlgen.exporters._requests import grouped, messages, rank
from wlgen.exporters._run_card import RUN, commands, in_flight
from wlgen.workload.rows import OPTIONAL_KEYS

CLIENT = "a client of your own"
CHECKED = False
FORMS = (
    Form(name="text", about="every key of the row, with its messages"),
    Form(name="ids", about="the same, and input_ids", ids=True),
)


ONE_FILE_A: FileUnit = "split"
TAKES_TIMES = True


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>.jsonl."""
    return grouped(prompts, partial(_line, target), apart=target.apart(ONE_FILE_A))


def _line(target: Target, prompt: Prompt) -> dict[str, Any]:
    values = ((name, getattr(prompt, name)) for name in FIELDS)
    fields = {name: value for name, value in values if name not in OPTIONAL_KEYS or value is not None}
    fields |= {"messages": messages(prompt)}
    if target.pair:  # the body's fields as they are, since what pins a request differs with the way to a pair
        fields |= rank(prompt, target)
    return fields if prompt.ids is None else fields | {"input_ids": prompt.ids}


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card of a client of your own: what it must send, and what it should keep."""
    fields = "` and `".join(target.pin_fields)
    pin = f"`{fields}` in the body" if fields else "the header `X-data-parallel-rank`"
    limit = in_flight(target, portions, apart=False)

    def of(_part: str, file: str, name: str) -> str:
        return f"your-client {file} > {RUN}/{name}.jsonl"

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        setup=f"CONCURRENCY={limit}                 # the most requests in flight",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit=f"{RUN}/PART.jsonl --client plain",
        off=f"""
- Send each row once, in file order, with no warm-up from the file and no retry.
- Send `messages` verbatim to the chat endpoint, or `input_ids` as the prompt of a completion.
- Send `max_tokens` = output_len, `ignore_eos` true, `temperature` 0, and dp_rank as {pin}.
- Keep a line a request: {{"id": row id, "usage": {{...}}}}, or the whole response beside the id.""",
    )
