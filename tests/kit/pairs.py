"""Rehearsed prefill/decode pairs on real sockets in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from kit.rehearsals import FAST, _recalled, encoding
from kit.rules import made_rule

from wlgen.cache.rule import CacheRule
from wlgen.rehearse.faults import parse_faults
from wlgen.rehearse.known import KnownRows
from wlgen.rehearse.life import Life
from wlgen.rehearse.pair import PairLife, RouterName
from wlgen.rehearse.pair_run import new_pair, serve_pair
from wlgen.rehearse.serve import listen
from wlgen.rehearse.sets import set_encoding
from wlgen.rehearse.settings import Settings, TimeModel
from wlgen.server.roles import Member
from wlgen.server.route import application
from wlgen.workload.opened import Workload


@dataclass
class RehearsedPair:
    """A running pair: its addresses, and its life with both sides' ranks."""

    url: str
    prefill: str
    decode: str
    life: PairLife
    further: tuple[str, ...] = ()
    lives: tuple[PairLife, ...] = ()

    @property
    def computed(self) -> list[int]:
        """Prompt tokens that each prefill rank computed, server after server."""
        return [rank.computed for life in (self.life, *self.lives) for rank in life.prefill.ranks]


@contextmanager
def rehearsed_pair(
    *sets: Workload,
    router: RouterName = "mini_lb",
    ranks: int = 2,
    decode_ranks: int | None = None,
    decode_radix: bool = False,
    faults: tuple[str, ...] = (),
    hangs: float = 2.0,
    times: TimeModel = FAST,
    rule: CacheRule | None = None,
    prefill_servers: int = 1,
    **settings: Any,
) -> Iterator[RehearsedPair]:
    """Serve a pair until the block ends. hangs: seconds that stand for the real 300.

    prefill_servers: how many share the set's ranks, and one decode server.
    """
    plain = made_rule(name="sglang", engine="sglang", page_size=64, hit_quantum=64)
    ranks = (sets[0].manifest.dp_ranks if sets else ranks) // prefill_servers
    wanted = Settings(
        model="rehearsal",
        ranks=ranks,
        rule=rule or (sets[0].manifest.cache if sets else plain),
        times=times,
        faults=parse_faults(faults),
        enable_metrics=True,
        **settings,
    )
    with KnownRows() as known:
        for workload in sets:
            for row, ids in _recalled(workload.folder):
                known.add(row, ids)
        spoken = set_encoding(sets[0]) if sets else encoding()
        life = new_pair(wanted, spoken, known, decode_ranks=decode_ranks or ranks, decode_radix=decode_radix)
        life.hangs = hangs
        lives = [
            PairLife(
                prefill=Life(settings=life.prefill.settings, encoding=spoken, known=known),
                decode=life.decode,
                rooms=life.rooms,
            )
            for _ in range(prefill_servers - 1)
        ]
        listeners = [listen("127.0.0.1", 0) for _ in range(2 + prefill_servers)]
        urls = [f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
        servers: list[uvicorn.Server] = []
        thread = threading.Thread(target=serve_pair, args=(listeners, life, router, servers.extend, lives))
        thread.start()
        try:
            while not (len(servers) == len(listeners) and all(server.started for server in servers)):
                time.sleep(0.01)
            yield RehearsedPair(*urls[:3], life, tuple(urls[3:]), tuple(lives))
        finally:
            for server in servers:
                server.should_exit = server.force_exit = True
            thread.join()
            for listener in listeners:
                listener.close()


@contextmanager
def routed(*pairs: RehearsedPair) -> Iterator[str]:
    """Serve wlgen's own router in front of the pairs' prefill servers and the first one's decode server."""
    sides = [
        [
            Member(url=url, side=side, ranks=ranks, balance="", radix=True, bootstrap_port=8998)
            for url, ranks in members
        ]
        for side, members in (
            (
                "prefill",
                [
                    (url, len(pair.life.prefill.ranks))
                    for pair in pairs
                    for url in (pair.prefill, *pair.further)
                ],
            ),
            ("decode", [(pair.decode, len(pair.life.decode.ranks)) for pair in pairs[:1]]),
        )
    ]
    config = uvicorn.Config(application(*sides), log_level="critical", timeout_graceful_shutdown=1)
    server, listener = uvicorn.Server(config), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listener.close()
