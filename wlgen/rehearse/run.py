"""A rehearsal from its options: sets opened, rows learnt, the address taken, then served life after life."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from wlgen.cache.rule import CacheRule
from wlgen.engines import DEFAULT, engine
from wlgen.errors import counted, error
from wlgen.faults._asked import WantedFault
from wlgen.rehearse.acting import Acting
from wlgen.rehearse.faults import Faults
from wlgen.rehearse.known import KnownRows
from wlgen.rehearse.life import Life
from wlgen.rehearse.pair import RouterName
from wlgen.rehearse.pair_run import new_pair, serve_pair
from wlgen.rehearse.serve import listen, serve
from wlgen.rehearse.sets import default_encoding, know, open_sets, set_encoding
from wlgen.rehearse.settings import NOTICE, Settings, TimeModel
from wlgen.server.door import KEY_VARIABLE
from wlgen.simulate.faulted import planned_run
from wlgen.spec.rule_choice import RuleChoice
from wlgen.workload.opened import Workload

Bar: TypeAlias = AbstractContextManager[Callable[[int, int], None]]
DEFAULT_RANKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPair:
    """A prefill/decode pair instead of one server. decode_ranks: None: as many as the prefill side has."""

    router: RouterName
    decode_ranks: int | None
    decode_radix: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRehearsal:
    """What to rehearse; None: what the first set says. require_key: require the environment's API key."""

    sets: Sequence[Path]
    ranks: int | None
    choice: RuleChoice
    capacity: int | None
    chunk: int
    max_model_len: int
    enable_metrics: bool
    model: str
    host: str
    port: int
    times: TimeModel
    faults: Faults
    require_key: bool
    pair: WantedPair | None = None
    fault: WantedFault | None = None


def run(wanted: WantedRehearsal, say: Callable[[str], None], bar: Callable[[], Bar]) -> None:
    """Serve until interrupted. WlgenError if the sets, the rule, the key or the address cannot be used.

    say: gets the lines that tell what is simulated, last the line with the URL. bar: shows (done, total) rows
    while the server reads their ids.
    """
    workloads = open_sets(wanted.sets)
    first = workloads[0].manifest if workloads else None
    rule = wanted.choice.resolve(first.cache if first else RuleChoice(rule=DEFAULT).resolve())
    ranks = wanted.ranks or (first.dp_ranks if first else DEFAULT_RANKS)
    acting = None if wanted.fault is None else _acting(wanted.fault, workloads, rule)
    settings = Settings(
        model=wanted.model,
        ranks=max(ranks, acting.ranks) if acting else ranks,
        rule=acting.rule if acting else rule,
        times=wanted.times,
        faults=wanted.faults,
        acting=acting,
        capacity=(acting.capacity if acting else None) or wanted.capacity,
        chunk=wanted.chunk,
        max_model_len=wanted.max_model_len,
        enable_metrics=wanted.enable_metrics,
        api_key=_key() if wanted.require_key else None,
    )
    if wanted.pair and engine(settings.rule.engine).prefill_pin_field is None:
        expected = "a rule of an engine whose pairs are known"
        raise error("--pd", expected=expected, found=f"the rule {settings.rule.name}")
    size = 3 if wanted.pair else 1
    listeners = [listen(wanted.host, wanted.port + n if wanted.port else 0) for n in range(size)]
    encoding = set_encoding(workloads[0]) if workloads else default_encoding()
    with KnownRows() as known:
        with bar() as progress:
            know(known, workloads, progress)

        def life(restarts: int) -> Life:
            once = settings if restarts == 0 else replace(settings, faults=replace(wanted.faults, restart=0))
            return Life(settings=once, encoding=encoding, known=known)

        say(NOTICE)
        for line in settings.lines():
            say(line)
        say(f"rows known by their text: {len(known)}")
        urls = ["http://{}:{}".format(*listener.getsockname()[:2]) for listener in listeners]
        if wanted.pair is None:
            say(f"listening on {urls[0]}")
            serve(listeners[0], life)
            return
        pair = new_pair(
            settings,
            encoding,
            known,
            decode_ranks=wanted.pair.decode_ranks or settings.ranks,
            decode_radix=wanted.pair.decode_radix,
        )
        radix = "on" if wanted.pair.decode_radix else "off"
        say(f"router: {wanted.pair.router}")
        say(f"prefill: {urls[1]}, {counted(settings.ranks, 'rank')}")
        say(f"decode: {urls[2]}, {counted(len(pair.decode.ranks), 'rank')}, radix cache {radix}")
        say(f"listening on {urls[0]}")
        serve_pair(listeners, pair, wanted.pair.router)


def _acting(fault: WantedFault, workloads: Sequence[Workload], rule: CacheRule) -> Acting:
    if len(workloads) != 1:
        expected, found = "one --set beside a fault of runs", f"{len(workloads)} sets"
        raise error(f"--fault {fault.text}", expected=expected, found=found)
    return Acting(fault, planned_run(workloads[0], rule)[0])


def _key() -> str:
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise error(KEY_VARIABLE, expected="a key in the environment", found="none")
    return key
