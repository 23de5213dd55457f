"""`vllm bench serve`, dataset `custom`: a file a rank, since the rank is one header a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from wlgen.errors import error
from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target, _tokenizer, part
from wlgen.exporters._requests import (
    CHAT,
    COMPLETIONS,
    RANK_HEADER,
    extras,
    grouped,
    one_text,
    rank_in_shell,
)
from wlgen.exporters._run_card import RUN, commands, in_flight, output_lens, results

CLIENT = "vLLM 0.32.0 bench serve"
CHECKED = False
FORMS = (
    Form(name="text", about="prompt is the text, rendered by the server", tokenizer=True),
    Form(
        name="ids",
        about="prompt is the ids, to completions; one output_len a split, and neither TTFT nor TPOT",
        ids=True,
        completes=True,
    ),
)
ONE_FILE_A: FileUnit = "rank"
TAKES_TIMES = False


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>/rank-<00>.jsonl, and for text the tokenizer without which the client prints no TTFT."""
    lengths: dict[str, int] = {}

    def line(prompt: Prompt) -> dict[str, Any]:
        length = prompt.output_len
        if prompt.ids is None:
            text = one_text(prompt, client="vllm bench serve", remedy="Export it with --form ids.")
            return {"prompt": text, "output_tokens": length}
        if (first := lengths.setdefault(part(prompt.split, prompt.round), length)) != length:
            expected = f"output_len {first}: without a tokenizer the client has one length a run"
            remedy = "Export it with --form text, or to aiperf."
            raise error(f"row {prompt.id}", expected=expected, found=str(length), remedy=remedy)
        return {"prompt": prompt.ids, "output_tokens": length}

    yield from grouped(prompts, line, apart=target.apart(ONE_FILE_A))
    if target.tokenizer:
        yield from _tokenizer.files(target)


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: one run a split and rank, all ranks at once."""
    chat = target.form == "text" and target.is_chat
    backend, endpoint = ("openai-chat", CHAT) if chat else ("openai", COMPLETIONS)
    header = "" if target.pair else f" --header {RANK_HEADER}=$r"  # a pair's router keeps no header

    def of(of_part: str, file: str, name: str) -> str:
        length, body = _length(target, output_lens(portions, of_part))
        return f"""\
vllm bench serve --backend {backend} --endpoint {endpoint} --base-url $URL --model $MODEL \\
  --dataset-name custom --dataset-path {file} --num-prompts $(wc -l < {file}) \\
  --disable-shuffle --no-oversample --skip-chat-template {length} \\
  --ignore-eos --extra-body {body}{header} \\
  --ready-check-timeout-sec 0 --request-rate $RATE --max-concurrency $PER_RANK \\
  --save-result --save-detailed --result-dir {RUN} --result-filename {name}.json"""

    if target.form == "ids":
        told = (
            "`--skip-tokenizer-init`: its tokenizer takes no ids. The output length goes in `--extra-body`."
        )
    else:
        told = (
            "`--custom-output-len -1` takes each row's own length (the default of 256 overrides it), and\n"
            "  `--tokenizer` is this export's folder: without one the client prints neither TTFT nor TPOT."
        )
    fields = "` and `".join(target.pin_fields)
    pin = f"`{fields}` in `--extra-body`" if target.pair else f"`--header {RANK_HEADER}=`"
    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        install="vllm==0.32.0",
        setup=f"""
MODEL=NAME                     # the served model's name
PER_RANK={in_flight(target, portions, apart=True)} RATE=inf  # of each rank; requests a second, Poisson""",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit=f"{results(apart=True)}.json --client vllm",
        off=f"""
- `--ready-check-timeout-sec 0` and no `--num-warmups`: both send row 0, which is measured.
- `--disable-shuffle`, `--no-oversample`, `--num-prompts` the file's own: each row once, in file order.
- `--skip-chat-template`: else the client applies the template, and the server again.
- {told}
- {pin}: one rank a run, from that rank's own file.
- All ranks run at once, each with a process of its own, which takes seconds to import and to encode its
  rows: none of them knows the throughput of all. The audit does, and says whether the ranks overlapped.""",
        blind="""
            The client keeps no cached tokens, ids or ranks. The servers' counters of step 6 are the witness;
            without them the audit says NOT_OBSERVED, and checks lengths, errors and counts alone."""
        + (
            ""
            if target.form == "text"
            else """
            By token ids it prints neither TTFT nor TPOT, and stores none (it measures them only with a
            tokenizer, and its tokenizer takes no ids): use `--form text` for them."""
        ),
    )


def _length(target: Target, lens: Sequence[int]) -> tuple[str, str]:
    """Return the flags and the extra body that make a run's outputs exactly as long as its rows say.

    With a tokenizer the client takes each row's own length, and prints TTFT and TPOT. By ids it can have
    none.
    """
    body = extras(target, by_ids=target.form == "ids")
    if target.form == "ids":
        body["max_tokens"] = lens[0]
        length = "--skip-tokenizer-init"
    else:
        length = f'--custom-output-len -1 --tokenizer "$PWD/{_tokenizer.FOLDER}"'
    quoted = shlex.quote(orjson.dumps(body).decode())
    pin = rank_in_shell(target).replace("$r", "'$r'") if target.pair else ""
    return length, f"{quoted[:-2]}{pin}}}'" if pin else quoted
