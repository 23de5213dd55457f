"""RUN.md: the exact commands of an export, from the server's flags to the audit.

The order never changes: start the servers, install the client, flush, seeds, checks, the formal rows once,
the second reading of the counters, the audit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import dedent, fill, indent
from typing import TYPE_CHECKING

import orjson

from wlgen.engines import Launch, engine
from wlgen.pages import ceil_to
from wlgen.workload.rows import row_file

if TYPE_CHECKING:
    from wlgen.exporters import Portion, RunCard, Target

NAME = "RUN.md"
PART = "PART"  # stands in a card's audit for the part that is audited
RUN = "$RUN"  # the folder of one run, a new one each time
_IN_FLIGHT = 64  # requests in flight of all ranks, where the set does not ask for fewer
_IN_FLIGHT_OF_A_RANK = 4
_COLUMNS = 106
_BEFORE = '"$SET/counters-before.json"'  # what `wlgen prepare` writes beside its journal


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
    return f"{RUN}/{PART}-rank-*" if apart else f"{RUN}/{PART}"


def in_flight(target: Target, portions: Iterable[Portion], *, apart: bool) -> int:
    """Return how many requests a client may have in flight, in all or, where ranks are apart, of each rank.

    Where rows continue earlier ones, no more than the rows that stand between them: if turn 1 of a
    conversation stands 8 rows after its turn 0, then 8 in flight keep turn 0 ended before turn 1 is sent, as
    long as requests end in the order in which they began. Where nobody knows what a row finds, one at a time.
    """
    most = _IN_FLIGHT_OF_A_RANK if apart else _IN_FLIGHT
    if not target.builds_up:
        return most
    behind = [p.behind for p in portions if p.split.measured and p.behind]
    sessions = all("session" in of for of in target.manifest.classes)
    return min(most, *behind) if behind and sessions else 1


def render(card: RunCard, target: Target, portions: Sequence[Portion], *, client: str, folder: str) -> str:
    """Return RUN.md; `folder` is the set's."""
    manifest = target.manifest
    checked = "This card was run as it stands with" if card.checked else "Facts of"
    parts = [
        f"# {manifest.name} for {client}: run card",
        f"Spec {manifest.spec_sha256[:16]}, form `{target.form}`. {checked} {card.source}.",
        *([dedent(card.blind).strip()] if card.blind else []),
        _table(portions),
        "## 1. Start the server so that it can be checked",
        _servers(target, portions),
        "## 2. Install the client in an environment of its own",
        _install(card, client),
        "## 3. Set these once, in bash",
        _shell(_variables(card, target, folder)),
        _FRESH,
        "## 4. Flush, seed and check",
        *_priming(card, target, portions),
        "## 5. Formal run: each row once",
        *_formal(card, portions),
        "## 6. Count again, and audit",
        *_audits(card, target, portions),
        "## What is switched off, and why",
        dedent(card.off).strip() + "\n" + _ONCE + _order(target, portions),
    ]
    if card.limits:
        parts += ["## What this client cannot do", dedent(card.limits).strip()]
    return "\n\n".join(parts) + "\n"


_FRESH = """\
A run has a folder of its own. For the next one take the last line again: of two runs in one folder the audit
reads both, and finds each row sent twice."""
_SECOND = """\
At once after the run, before anything else is sent. `wlgen prepare` has written the first reading,
`counters-before.json`, into the set's folder; seeded by other means, leave `--counters` out of the audit."""
_DECIDE = """\
The prefill servers' counters decide: they hold what was computed and reused, by rank. The decode servers'
counters are never added to them, and an answer's own dp_rank is the decode side's."""
_PREFILL = """\
The prefill side holds the cache that this set promises: its {} ranks are the set's. Of several prefill
servers the ranks count on in the order in which you give them, and `--dp-size` is each one's own."""
_OFF = """\
Its own radix cache stays off (no `--disaggregation-decode-enable-radix-cache`): with it a client's figure
claims hits where the prefill side computed everything."""
_ONCE = """\
- Nothing but this set is sent between the seeds and the end of the formal run, and no row twice: flush the
  cache and seed again before the set is run again."""
_APART = """
- Each rank has a process of its own: none of them knows the throughput of all, which the audit tells."""
_ORDER = """
- Rows of this set find what earlier formal rows have left in the cache: they are sent in file order, and a
  row that is admitted beside the one it builds on finds nothing of it. The promise as planned holds for
  certain with one request in flight{}
  `wlgen simulate "$SET" --in-flight N` tells what N in flight of each rank cost."""
_FIFO = """. The card sets {}: a row stands at least {} rows after
  the one that it continues, so the promise holds while requests end in the order in which they began."""


def _order(target: Target, portions: Sequence[Portion]) -> str:
    if not target.builds_up:
        return ""
    behind = [p.behind for p in portions if p.split.measured and p.behind]
    limit = in_flight(target, portions, apart=False)
    return _ORDER.format(
        _FIFO.format(limit, min(behind)) if behind and limit > 1 else ", which the card sets."
    )


def _variables(card: RunCard, target: Target, folder: str) -> str:
    """Return the variables that every command of the card uses; the folder of the run comes last."""
    port = 8080 if target.pair else engine(target.manifest.cache.engine).port
    lines = [f"cd {shlex.quote(target.folder)}", f"SET={shlex.quote(folder)}"]
    lines.append(f"export URL=http://127.0.0.1:{port}  # {'the router' if target.pair else 'the server'}")
    if target.pair:
        lines += [
            'PREFILL="--prefill http://127.0.0.1:30000"  # --prefill again for each further server',
            'DECODE="--decode http://127.0.0.1:30001"    # the same for the decode side',
        ]
    lines += [card.setup.strip(), 'RUN=results/$(date +%Y%m%d-%H%M%S); mkdir -p "$RUN"']
    return "\n".join(line for line in lines if line)


def _install(card: RunCard, client: str) -> str:
    if not card.install:
        return "Nothing is installed: bring a client of your own."
    place = f"~/wlgen-clients/{client}"
    return "Its dependencies clash with those of other clients and of servers.\n\n" + _shell(
        f"python3 -m venv {place} && {place}/bin/pip install {card.install}\nexport PATH={place}/bin:$PATH"
    )


def _formal(card: RunCard, portions: Sequence[Portion]) -> Iterator[str]:
    if "formal" in card.commands:
        yield _shell(card.commands["formal"])
    elif not any(p.split.measured for p in portions):
        yield "(no formal rows were exported)"
    for round_ in sorted({p.round for p in portions} - {0}):
        yield f"### Round {round_}: other rows over the same prefixes, without a flush"
        for part in dict.fromkeys(p.part for p in portions if p.round == round_):
            yield _shell(card.commands[part])


def _audits(card: RunCard, target: Target, portions: Sequence[Portion]) -> Iterator[str]:
    if not card.audit:
        yield "Nothing to audit."
        return
    servers = "$PREFILL $DECODE" if target.pair else '--url "$URL"'
    yield _SECOND
    yield _shell(f'wlgen counters {servers} --output "$RUN/counters-after.json"')
    for portion in {p.part: p for p in portions if p.split.measured}.values():
        audit = f'wlgen audit "$SET" {card.audit.replace(PART, portion.part)}'
        if portion.round:
            yield _shell(f"{audit} --round {portion.round}")
        else:
            pair = " --pair" if target.pair else ""
            yield _shell(f'{audit}{pair} \\\n  --counters {_BEFORE} "$RUN/counters-after.json"')
    if target.pair:
        yield _DECIDE


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


def _servers(target: Target, portions: Sequence[Portion]) -> str:
    """Return what to start, and how much context and cache it needs."""
    cache, dp = target.manifest.cache, target.manifest.dp_ranks
    of = engine(cache.engine)
    context = max((p.request_len for p in portions), default=0)
    quantum = "" if cache.hit_quantum == cache.page_size else f" and hits in multiples of {cache.hit_quantum}"
    plan = (
        f"The set is planned for {of.title}, {dp} ranks, pages of {cache.page_size} tokens{quantum}. "
        f"The longest request has {context} tokens, prompt with framing and output, which the context holds."
    )
    parts = [plan, _needed(target, portions)]
    lines = of.launch(Launch(ranks=dp, page_size=cache.page_size, context_len=context))
    if way := target.pair:
        sides = {
            role: of.launch(Launch(ranks=dp, page_size=cache.page_size, context_len=context, role=role))
            for role in ("prefill", "decode")
        }
        parts += [
            _PREFILL.format(dp),
            _shell(sides["prefill"]),
            f"{_decode_ranks(target)} {_OFF}",
            _shell(sides["decode"]),
            f"The way to them is {way.about}. It starts after step 3, which sets its variables.",
            _shell(way.start),
        ]
    else:
        parts.append(_shell(lines))
        pin = (
            "`" + "`, `".join(target.pin_fields) + "` in the body"
            if target.pin_fields
            else ("the header `X-data-parallel-rank`")
        )
        parts.append(f"A request is pinned to its rank by {pin}. The prefix cache stays on.")
    if kwargs := target.template_kwargs:
        carried = orjson.dumps(kwargs).decode()
        parts.append(f"Every chat request carries `{carried}`: the prompt lengths hold only with it.")
    return "\n\n".join(part if part.startswith("```") else _prose(part) for part in parts)


def _prose(text: str) -> str:
    return fill(text, _COLUMNS, break_long_words=False, break_on_hyphens=False)


def _decode_ranks(target: Target) -> str:
    fields = "` and `".join(target.pin_fields)
    if target.pair and target.pair.binds_decode:
        return (
            f"The decode side has as many ranks: each request carries `{fields}`, which binds the decode "
            "rank, too. With fewer decode ranks export again with `--pair route`."
        )
    return (
        f"The decode side may have other ranks: each request carries `{fields}`, for the prefill side alone."
    )


def _needed(target: Target, portions: Sequence[Portion]) -> str:
    """Return how many KV tokens a rank must hold so that nothing the set promises is evicted."""
    page, ranks = target.manifest.cache.page_size, {p.dp_rank for p in portions}
    shared = max((max(p.shared_len for p in portions if p.dp_rank == rank) for rank in ranks), default=0)
    most = max((p.own_lens[0] for p in portions), default=0)
    several = max(_IN_FLIGHT_OF_A_RANK, -(-_IN_FLIGHT // target.manifest.dp_ranks))
    if target.builds_up:
        own = max((sum(p.own_lens[1] for p in portions if p.dp_rank == rank) for rank in ranks), default=0)
        need, told = (
            ceil_to(shared + own, page),
            "all that it is sent, since rows find what earlier ones left",
        )
    else:
        each = ceil_to(most, page) + page
        need = ceil_to(shared, page) + several * each
        told = f"the shared prefixes ({shared}), and {each} for each of {several} requests in flight"
    where = "A prefill rank" if target.pair else "A rank"
    return f"{where} needs room for {need} KV tokens: {told}."


def _priming(card: RunCard, target: Target, portions: Sequence[Portion]) -> Iterator[str]:
    of = engine(target.manifest.cache.engine)
    sides = " $PREFILL $DECODE" if target.pair else ""
    yield "It flushes the cache, seeds each rank, checks it, and stops if a row falls short."
    yield _shell(f'wlgen prepare "$SET" --url "$URL"{sides} --flush')
    own = list(dict.fromkeys(p.part for p in portions if not p.split.measured and not p.round))
    if not own:
        return
    yield "Or, instead of it, flush and send this client's own commands: they prove nothing."
    servers = "${PREFILL//--prefill/} ${DECODE//--decode/}" if target.pair else '"$URL"'
    yield _shell(f'for server in {servers}; do curl -fsS -X POST "$server{of.flush_page(60)}"; done')
    for part in own:
        yield f"### {part}"
        yield _shell(card.commands[part])


def _shell(text: str) -> str:
    return f"```bash\n{text.strip()}\n```"
