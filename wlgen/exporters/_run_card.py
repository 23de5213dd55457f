"""RUN.md: the exact commands of an export, from the server's flags to the audit."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import orjson

from wlgen.workload import SPLITS, Split

if TYPE_CHECKING:
    from wlgen.exporters import Portion, RunCard, Target

NAME = "RUN.md"


def output_lens(portions: Iterable[Portion], split: Split) -> list[int]:
    """Return the distinct output lengths of a split, in tokens."""
    return sorted({n for p in portions if p.split == split for n in p.output_lens})


def commands(
    portions: Sequence[Portion], *, apart: bool, of: Callable[[Split, str, str], str]
) -> dict[Split, str]:
    """Return each split's shell: of(split, file, name of the result), once, or in a loop over its ranks.

    In the loop $r is the rank, and all ranks run at once.
    """
    found: dict[Split, str] = {}
    for split in dict.fromkeys(p.split for p in portions):
        if not apart:
            found[split] = of(split, f"{split}.jsonl", split)
            continue
        names = " ".join(f"{p.dp_rank:02d}" for p in portions if p.split == split)
        one = indent(of(split, f"{split}/rank-$R.jsonl", f"{split}-rank-$R"), "  ")
        found[split] = f"for R in {names}; do r=$((10#$R))\n{one} &\ndone; wait"
    return found


def render(card: RunCard, target: Target, portions: Sequence[Portion], *, client: str, folder: str) -> str:
    """Return RUN.md; `folder` is the set's."""
    manifest = target.manifest
    setup = f"cd {shlex.quote(target.folder)}\nSET={shlex.quote(folder)}\n{card.setup}"
    parts = [
        f"# {manifest.name} for {client}: run card",
        f"Spec {manifest.spec_sha256[:16]}, form `{target.form}`. Facts of {card.source}.",
        _table(portions),
        "## 1. Start the server so that it can be checked",
        _server(target),
        "## 2. Set these once, in bash",
        _shell(setup),
        *_priming(card),
        "## 4. Formal run: each row once",
        _shell(card.commands["formal"]) if "formal" in card.commands else "(no formal rows were exported)",
        "## 5. Audit",
        _shell(f'wlgen audit "$SET" {card.audit}') if card.audit else "Nothing to audit.",
        "## What is switched off, and why",
        dedent(card.off).strip() + "\n" + _ONCE,
    ]
    if card.limits:
        parts += ["## What this client cannot do", dedent(card.limits).strip()]
    return "\n\n".join(parts) + "\n"


_ONCE = """\
- Nothing but this set is sent between the seeds and the end of the formal run, and no row twice: flush the
  cache and seed again before the set is run again."""


def _table(portions: Sequence[Portion]) -> str:
    lines = ["| split | rows | ranks | output tokens | cached tokens promised |", "|---|---|---|---|---|"]
    for split in SPLITS:
        own = [p for p in portions if p.split == split]
        if own:
            lens = _spread(output_lens(own, split))
            cached = _spread(n for p in own for n in p.cached_lens)
            lines.append(f"| {split} | {sum(p.rows for p in own)} | {len(own)} | {lens} | {cached} |")
    return "\n".join(lines)


def _spread(lens: Iterable[int]) -> str:
    found = sorted(set(lens))
    return f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _server(target: Target) -> str:
    cache, dp = target.manifest.cache, target.manifest.dp_ranks
    quantum = "" if cache.hit_quantum == cache.page_size else f" and hits in multiples of {cache.hit_quantum}"
    text = f"""\
        The set is planned for {cache.engine}, {dp} ranks, pages of {cache.page_size} tokens{quantum}.

        - SGLang: `--dp-size {dp} --page-size {cache.page_size} --enable-cache-report`, without
          `--disable-radix-cache`. It pins by `routed_dp_rank` in the body, and empties its cache at
          `POST /flush_cache?timeout=60`.
        - vLLM: `VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --data-parallel-size {dp}
          --block-size {cache.page_size} --enable-prefix-caching --enable-prompt-tokens-details`. It pins by
          the header `X-data-parallel-rank`, and empties its cache at `POST /reset_prefix_cache`."""
    kwargs = target.template_kwargs
    if kwargs:
        carried = orjson.dumps(kwargs).decode()
        text += f"\n\n        Every chat request carries `{carried}`: the prompt lengths hold only with it."
    return dedent(text)


def _priming(card: RunCard) -> Iterator[str]:
    own = [split for split in SPLITS if split in card.commands and split != "formal"]
    if not own:
        return
    yield "## 3. Seed and check"
    yield "Recommended: it seeds each rank, checks it, and stops if a row falls short."
    yield _shell('wlgen prepare "$SET" --url "$URL"')
    yield "Or, instead of it, this client's own commands: flush the cache, then"
    for split in own:
        yield f"### {split}"
        yield _shell(card.commands[split])


def _shell(text: str) -> str:
    return f"```bash\n{text.strip()}\n```"
