"""guidellm: JSON rows of messages and output_tokens_count, a file a rank, since a run has one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import orjson

from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target, _tokenizer
from wlgen.exporters._requests import (
    CHAT,
    COMPLETIONS,
    RANK_HEADER,
    extras,
    grouped,
    messages,
    one_text,
    rank_in_shell,
)
from wlgen.exporters._run_card import RUN, commands, in_flight, results

CLIENT = "guidellm 0.8.1"
CHECKED = False
FORMS = (Form(name="text", about="messages and output_tokens_count", tokenizer=True),)
ONE_FILE_A: FileUnit = "rank"
TAKES_TIMES = False


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>/rank-<00>.jsonl, and a tokenizer."""
    yield from grouped(prompts, partial(_line, target), apart=target.apart(ONE_FILE_A))
    yield from _tokenizer.files(target)


def _line(target: Target, prompt: Prompt) -> dict[str, Any]:
    # One text column only: guidellm joins two with a space, or makes one a system message.
    if target.is_chat:
        return {"messages": messages(prompt), "output_tokens_count": prompt.output_len}
    text = one_text(prompt, client="guidellm", remedy="Export it to vllm with --form ids.")
    return {"prompt": text, "output_tokens_count": prompt.output_len}


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: one run a split and rank, all ranks at once."""
    route = CHAT if target.is_chat else COMPLETIONS
    fields, headers = orjson.dumps(extras(target)).decode(), ""
    if target.pins_in_body:
        fields = fields[:-1] + rank_in_shell(target) + "}"
    else:
        headers = f',"headers":{{"{RANK_HEADER}":"$r"}}'
    backend = (
        f'{{"kind":"openai_http","target":"$URL","model":"$MODEL","request_format":"{route}",'
        f'"extras":{{"body":{fields}{headers}}}}}'
    ).replace('"', '\\"')

    def of(_part: str, file: str, name: str) -> str:
        return f"""\
guidellm run --disable-console --backend "{backend}" \\
  --profile kind=concurrent,streams=$PER_RANK --constraint kind=max_requests,count=$(wc -l < {file}) \\
  --tokenizer "kind=hf_auto,model=$PWD/{_tokenizer.FOLDER}" \\
  --data kind=json_file,path={file} --data-loader kind=pytorch,shuffle=false \\
  --output kind=json,path={RUN}/{name}.json"""

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        install="guidellm==0.8.1",
        setup=f"""
MODEL=NAME                     # the served model's name
PER_RANK={in_flight(target, portions, apart=True)}                     # requests in flight, of each rank
export GUIDELLM__MAX_WORKER_PROCESSES=1 GUIDELLM__MP_POLL_INTERVAL=1""",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit=f"{results(apart=True)}.json --client guidellm",
        off="""
- `kind=concurrent`, `max_requests` the file's own number of rows, `shuffle=false`: each row once, in file
  order. No warm-up: it would be rows of the set.
- `output_tokens_count` of a row makes guidellm send ignore_eos and the exact length.
- One text column only: guidellm joins two with a space, or makes one of them a system message.
- The rank is the run's, in the backend's `extras`: a file a rank.
- All ranks run at once, each with a process of its own, which takes seconds to import: none of them knows
  the throughput of all. The audit does, and says whether the ranks overlapped.""",
        limits="""
- Its ids are random: the audit finds the rows by the hash of their text.
- Its scheduler may lose the last answer of a run: it polls for answers each 0.1 s, and one that comes just
  as a poll times out after the last row was served is dropped (0.8.1, scheduler/worker_group.py). The setup
  lets it poll each second, with one worker a rank. The audit names a row that is lost all the same.""",
    )
