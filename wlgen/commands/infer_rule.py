"""`wlgen infer-rule`: which cache rules explain what a server reported."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show

if TYPE_CHECKING:
    from wlgen.simulate.infer import Inference

_SHOWN = 10


def command(
    observed: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="JSONL of {prompt_tokens, shared_tokens, cached_tokens}, or a client's results with --set.",
        ),
    ],
    built: Annotated[
        Path | None, typer.Option("--set", metavar="DIR", help="The built set that was sent.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="A split of the set (repeatable); left out, formal.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the cache rules that fit all reported hits; if none does, list the hits that do not fit.

    Each line is one request: the tokens of its prompt, how many of them its rank already held, and how many
    the server reported as cached. If several rules fit, it names all of them, and the prompt that would tell
    them apart. Exit 0 if a rule explains every request, else 1.
    """
    from wlgen.audit.audit import parse_splits
    from wlgen.errors import error
    from wlgen.simulate.infer import infer, read_observations, set_observations
    from wlgen.workload.opened import open_workload

    if built:
        seen = set_observations(open_workload(built), observed, parse_splits(split or ()))
    else:
        seen = chain.from_iterable(map(read_observations, observed))
    found = infer(seen)
    if not found.observations:
        raise error(str(observed[0]), expected="at least one observation", found="none")
    explains_all = found.explained == found.observations
    if as_json:
        candidates = [
            asdict(each) | {"rules": [kind.written.removeprefix("rule: ") for kind in each.rules]}
            for each in found.candidates
        ]
        said = asdict(found) | {"candidates": candidates, "explained_all": explains_all}
        show("infer-rule", said, ok=explains_all)
    elif not (quiet and explains_all):
        typer.echo("\n".join(_lines(found)[: 1 if quiet else None]))
    raise typer.Exit(0 if explains_all else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRules:
    """Rules alike but for their quantum, each as a spec writes it: `engine: sglang, page_size: 128`."""

    words: str
    quanta: list[int]
    usual: int | None
    or_more: bool
    rules: list[str]


def shape() -> Any:
    """Return the model of what `wlgen infer-rule --json` prints.

    unexplained: [prompt_len, shared_len, cached_len, place] each.
    """
    from wlgen.simulate.infer import Inference

    return shape_of("infer-rule", Inference, candidates=list[CandidateRules], explained_all=bool)


def _lines(found: Inference) -> list[str]:
    explained = f"{found.explained} of {found.observations} observations"
    lines = [f"explained  {explained}, by:" if found.candidates else f"explained  {explained}"]
    for candidate in found.candidates:
        quanta = ", ".join(map(str, candidate.quanta)) + (" or more" if candidate.or_more else "")
        lines += [f"  {candidate.words}: quantum {quanta}"]
        if candidate.usual is None:
            lines += ["    none of these quanta is usual: engines have powers of two"]
        if len(candidate.quanta) > 1 or candidate.or_more:
            lines += ["    one length cannot tell which; the smallest usual one that fits:"]
        lines += [f"    cache: {{{kind.written}}}" for kind in candidate.rules]
    if found.telling:
        figures = ", ".join(map(str, sorted(set(found.telling.figures))))
        asked = f"a prompt of {found.telling.prompt_len} tokens sent twice"
        lines += [f"rivals     {asked} tells most of them apart: they cache {figures} of it"]
    if found.unexplained:
        lines += ["unexplained by the first of them:" if found.candidates else "unexplained:"]
        lines += [
            f"  {seen.cached_len} cached of {seen.prompt_len} that share {seen.shared_len}"
            + (f" ({seen.place})" if seen.place else "")
            for seen in found.unexplained[:_SHOWN]
        ]
        lines += [f"  and {len(found.unexplained) - _SHOWN} more"] if len(found.unexplained) > _SHOWN else []
    return lines
