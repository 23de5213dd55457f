"""RUN.md: the exact commands of an export, from the server's flags to the audit."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import orjson

from wlgen.workload.rows import row_file

if TYPE_CHECKING:
    from wlgen.exporters import Portion, RunCard, Target

NAME = "RUN.md"
PART = "PART"  # stands in a card's audit for the part that is audited


def output_lens(portions: Iterable[Portion], part: str) -> list[int]:
    """Return the distinct output lengths of a part, in tokens."""
    return sorted({n for p in portions if p.part == part for n in p.output_lens})


def commands(
    portions: Sequence[Portion], *, apart: bool, of: Callable[[str, str, str], str]
) -> dict[str, str]:
    """Return each part's shell: of(part, file, name of the result), once, or in a loop over its ranks.

    In the loop $r is the rank, and all ranks run at once.
    """
    found: dict[str, str] = {}
    for part in dict.fromkeys(p.part for p in portions):
        own = [p for p in portions if p.part == part]
        if not apart:
            found[part] = of(part, f"{part}.jsonl", part)
            continue
        names = " ".join(f"{p.dp_rank:02d}" for p in own)
        file = row_file(own[0].split, 0, own[0].round).replace("rank-00", "rank-$R")
        one = indent(of(part, file, f"{part}-rank-$R"), "  ")
        found[part] = f"for R in {names}; do r=$((10#$R))\n{one} &\ndone; wait"
    return found


def results(*, apart: bool) -> str:
    """Return the name that `commands` gives to the results of PART, of all ranks."""
    return f"{PART}-rank-*" if apart else PART


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
        *_formal(card, portions),
        "## 5. Audit",
        *_audits(card, portions),
        "## What is switched off, and why",
        dedent(card.off).strip() + "\n" + _ONCE + _order(target),
    ]
    if card.limits:
        parts += ["## What this client cannot do", dedent(card.limits).strip()]
    return "\n\n".join(parts) + "\n"


_ONCE = """\
- Nothing but this set is sent between the seeds and the end of the formal run, and no row twice: flush the
  cache and seed again before the set is run again."""
_ORDER = """
- Rows of this set find what earlier formal rows have left in the cache: they are sent in file order, and a
  row that is admitted beside the one it builds on finds nothing of it. The promise as planned is that of one
  request in flight a rank; `wlgen simulate` tells what more of them cost."""


def _order(target: Target) -> str:
    classes = target.manifest.classes
    builds = any({"session", "trace"} & of.keys() or of.get("cached", {}).get("cold") for of in classes)
    return _ORDER if builds else ""


def _formal(card: RunCard, portions: Sequence[Portion]) -> Iterator[str]:
    if "formal" in card.commands:
        yield _shell(card.commands["formal"])
    elif not any(p.split.measured for p in portions):
        yield "(no formal rows were exported)"
    for round_ in sorted({p.round for p in portions} - {0}):
        yield f"### Round {round_}: other rows over the same prefixes, without a flush"
        for part in dict.fromkeys(p.part for p in portions if p.round == round_):
            yield _shell(card.commands[part])


def _audits(card: RunCard, portions: Sequence[Portion]) -> Iterator[str]:
    if not card.audit:
        yield "Nothing to audit."
        return
    for portion in {p.part: p for p in portions if p.split.measured}.values():
        round_ = f" --round {portion.round}" if portion.round else ""
        yield _shell(f'wlgen audit "$SET" {card.audit.replace(PART, portion.part)}{round_}')


def _table(portions: Sequence[Portion]) -> str:
    lines = ["| part | rows | ranks | output tokens | cached tokens promised |", "|---|---|---|---|---|"]
    for part in dict.fromkeys(p.part for p in portions):
        own = [p for p in portions if p.part == part]
        lens = _spread(output_lens(own, part))
        cached = _spread(n for p in own for n in p.cached_lens)
        lines.append(f"| {part} | {sum(p.rows for p in own)} | {len(own)} | {lens} | {cached} |")
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
    own = [part for part in ("seed", "check") if part in card.commands]
    if not own:
        return
    yield "## 3. Seed and check"
    yield "Recommended: it seeds each rank, checks it, and stops if a row falls short."
    yield _shell('wlgen prepare "$SET" --url "$URL"')
    yield "Or, instead of it, this client's own commands: flush the cache, then"
    for part in own:
        yield f"### {part}"
        yield _shell(card.commands[part])


def _shell(text: str) -> str:
    return f"```bash\n{text.strip()}\n```"
