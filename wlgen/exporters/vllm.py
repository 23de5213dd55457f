"""`vllm bench serve`, dataset `custom`: a file a rank, since the rank is one header a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from wlgen.errors import error
from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target, _tokenizer, part
from wlgen.exporters._requests import CHAT, COMPLETIONS, RANK_HEADER, extras, grouped, one_text
from wlgen.exporters._run_card import commands, output_lens, results

FORMS = (
    Form(name="text", about="prompt is the text, rendered by the server", tokenizer=True),
    Form(name="ids", about="prompt is the ids, to completions; one output_len a split", ids=True),
)
ONE_FILE_A: FileUnit = "rank"
TAKES_TIMES = False


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <split>/rank-<00>.jsonl, and for text the tokenizer that two output lengths in a split need."""
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

    def of(of_part: str, file: str, name: str) -> str:
        length, body = _length(target, output_lens(portions, of_part), chat=chat)
        return f"""\
vllm bench serve --backend {backend} --endpoint {endpoint} --base-url $URL --model $MODEL \\
  --dataset-name custom --dataset-path {file} --num-prompts $(wc -l < {file}) \\
  --disable-shuffle --no-oversample --skip-chat-template {length} \\
  --ignore-eos --extra-body {body} --header {RANK_HEADER}=$r \\
  --ready-check-timeout-sec 0 --request-rate $RATE --max-concurrency $PER_RANK \\
  --save-result --save-detailed --result-dir results --result-filename {name}.json"""

    return RunCard(
        source="vLLM 0.32.0 bench serve",
        setup="""
URL=http://127.0.0.1:8000
MODEL=NAME                     # the served model's name
PER_RANK=4 RATE=inf            # of each rank; RATE: requests a second, Poisson
mkdir -p results""",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit=f"results/{results(apart=True)}.json --client vllm",
        off=f"""
- `--ready-check-timeout-sec 0` and no `--num-warmups`: both send row 0, which is measured.
- `--disable-shuffle`, `--no-oversample`, `--num-prompts` the file's own: each row once, in file order.
- `--skip-chat-template`: else the client applies the template, and the server again.
- With one output length it goes in `--extra-body`, and `--skip-tokenizer-init` spares the client from
  encoding; with several, `--custom-output-len -1` takes each row's (the default of 256 overrides them).
- `--header {RANK_HEADER}=`: one rank a run, from that rank's own file.""",
        limits="""
- Its result has no cached tokens, ids or ranks: the audit says NOT_OBSERVED for them, and checks lengths,
  errors and counts.""",
    )


def _length(target: Target, lens: Sequence[int], *, chat: bool) -> tuple[str, str]:
    """Return the flags and the extra body that make a run's outputs exactly as long as `lens`."""
    body = extras(target, by_ids=target.form == "ids")
    if len(lens) == 1:
        body["max_completion_tokens" if chat else "max_tokens"] = lens[0]
        length = "--skip-tokenizer-init"
    else:
        length = f'--custom-output-len -1 --tokenizer "$PWD/{_tokenizer.FOLDER}"'
    return length, shlex.quote(orjson.dumps(body).decode())
