"""A rehearsed pair does what a real one did: its room rule, its conflict, its end, and its figures."""

from __future__ import annotations

import time

import httpx
import pytest
from kit.pairs import RehearsedPair, rehearsed_pair

IDS = list(range(1000, 2000))
SIBLING = [*range(1000, 1600), *range(5000, 5500)]


def ask(
    url: str, ids=IDS, *, room: int | None = None, host: str = "127.0.0.1", tokens: int = 1, **fields: object
):
    """Send a completion of token ids; with a room as a client that plays the router."""
    body = {"model": "m", "prompt": ids, "max_tokens": tokens, "ignore_eos": True} | fields
    if room is not None:
        body |= {"bootstrap_room": room, "bootstrap_host": host, "bootstrap_port": 8998}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=30)


def both(rank: int) -> dict[str, int]:
    return {"routed_dp_rank": rank, "disagg_prefill_dp_rank": rank}


def cached(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def counter(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"sglang:{name}" + "{"))


def test_both_fields_pin_every_time_whatever_the_room():
    with rehearsed_pair() as pair:
        for _ in range(6):
            assert ask(pair.url, **both(1)).status_code == 200
        assert pair.computed[0] == 0
        assert cached(ask(pair.url, **both(1))) == 960
        assert cached(ask(pair.url, **both(0))) == 0


def test_one_field_alone_conflicts_with_half_of_the_rooms_and_hangs_decode():
    with rehearsed_pair(hangs=0.3) as pair:
        refused = ask(pair.prefill, room=4, routed_dp_rank=1)
        assert refused.status_code == 500
        expected = "conflict: dispatched to dp_rank 1 but bootstrap_room 4 implies dp_rank 0"
        assert f"follow_bootstrap_room {expected}" in refused.json()["message"]
        started = time.monotonic()
        hung = ask(pair.decode, room=4, routed_dp_rank=1)
        assert "timed out after 0.3s in KVPoll.WaitingForInput" in hung.json()["message"]
        assert time.monotonic() - started >= 0.3
        assert ask(pair.prefill, room=5, routed_dp_rank=1).status_code == 200


def test_a_room_of_the_rank_pins_the_prefill_side_alone():
    with rehearsed_pair(ranks=4, decode_ranks=2) as pair:
        assert ask(pair.prefill, room=7, disagg_prefill_dp_rank=3).status_code == 200
        assert pair.computed == [0, 0, 0, 1000]
        assert ask(pair.decode, room=7, disagg_prefill_dp_rank=3).status_code == 200


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_straight_to_a_side_without_a_room_is_400(side):
    with rehearsed_pair() as pair:
        answer = ask(getattr(pair, side), routed_dp_rank=0)
        assert answer.status_code == 400
        assert answer.json()["message"] == "Disaggregated request received without bootstrap room id"


def test_a_request_without_a_rank_ends_the_prefill_server_and_no_other():
    with rehearsed_pair() as pair:
        with pytest.raises(httpx.HTTPError):
            ask(pair.prefill)
        assert pair.life.ended.is_set()
        time.sleep(1.5)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{pair.prefill}/server_info", timeout=2)
        assert httpx.get(f"{pair.decode}/server_info").status_code == 200


def test_the_fake_host_of_a_warm_up_primes_nothing():
    with rehearsed_pair() as pair:
        assert cached(ask(pair.prefill, room=2, host="2.2.2.2", **both(0))) == 0
        assert pair.computed == [0, 0]
        assert cached(ask(pair.url, **both(0))) == 0


@pytest.mark.parametrize("rank", [2, 99])
def test_a_rank_out_of_range_is_400_of_both(rank):
    with rehearsed_pair() as pair:
        answer = ask(pair.url, **both(rank))
        assert answer.status_code == 400
        assert "out of range [0, 2)" in answer.json()["message"]


def test_the_figure_is_the_prefill_sides_and_both_sides_count_it():
    """The table of a real pair, with pages of 64."""
    with rehearsed_pair() as pair:
        figures = [cached(ask(pair.url, ids, **both(0))) for ids in (IDS, IDS, SIBLING)]
        assert figures == [0, 960, 576]
        assert counter(pair.prefill, "cached_tokens_total") == counter(pair.decode, "cached_tokens_total")
        assert counter(pair.decode, "cached_tokens_total") == sum(figures)
        assert counter(pair.prefill, "prefill_effective_tokens_total") == 3100
        assert counter(pair.decode, "prefill_effective_tokens_total") == 0
        assert 'engine_type="decode"' in httpx.get(f"{pair.decode}/metrics").text


def test_with_decodes_cache_the_figure_claims_what_prefill_computed():
    with rehearsed_pair(decode_radix=True) as pair:
        ask(pair.prefill, room=1, **both(1))
        ask(pair.decode, room=1, **both(1))
        httpx.post(f"{pair.prefill}/flush_cache?timeout=5")
        before = pair.computed[1]
        assert cached(ask(pair.url, **both(1))) == 960
        assert pair.computed[1] - before == 1000


def test_meta_info_names_the_decode_rank():
    with rehearsed_pair() as pair:
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "return_meta_info": True}
        fields = {
            "bootstrap_room": 3,
            "bootstrap_host": "h",
            "bootstrap_port": 1,
            "disagg_prefill_dp_rank": 1,
        }
        url = "/v1/chat/completions"
        httpx.post(pair.prefill + url, json=body | fields | {"routed_dp_rank": 1})
        answer = httpx.post(pair.decode + url, json=body | fields | {"routed_dp_rank": 0})
        assert answer.json()["choices"][0]["meta_info"]["dp_rank"] == 0


def test_a_flush_while_a_request_waits_is_400_though_idle_ranks_are_emptied():
    with rehearsed_pair(hangs=1.0) as pair:
        ask(pair.url, **both(1))
        busy = pair.life.prefill.ranks[0]
        busy.running += 1
        assert httpx.post(f"{pair.prefill}/flush_cache").status_code == 400
        busy.running -= 1
        assert cached(ask(pair.url, **both(1))) == 0


def test_each_side_says_what_it_is():
    with rehearsed_pair(ranks=3, decode_ranks=2) as pair:
        told = [httpx.get(f"{url}/server_info").json() for url in (pair.prefill, pair.decode)]
        keys = ("disaggregation_mode", "load_balance_method", "dp_size", "disable_radix_cache")
        assert [[page[key] for key in keys] for page in told] == [
            ["prefill", "follow_bootstrap_room", 3, False],
            ["decode", "round_robin", 2, True],
        ]
        for path in ("/server_info", "/metrics"):
            assert httpx.get(pair.url + path).status_code == 404


def test_sglang_router_keeps_pins_on_completions_of_text_alone():
    with rehearsed_pair(router="sglang-router") as pair:
        assert ask(pair.url, **both(1)).status_code == 422  # token ids
        for _ in range(4):
            assert ask(pair.url, "a text " * 50, **both(1)).status_code == 200
        assert pair.computed[0] == 0
        assert spread(pair) == {0, 1}


def spread(pair: RehearsedPair) -> set[int]:
    """Return the prefill ranks that a chat pinned to rank 1 came to, of 30."""
    for _ in range(30):
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1} | both(1)
        httpx.post(f"{pair.url}/v1/chat/completions", json=body)
    return {n for n, rank in enumerate(pair.life.prefill.ranks) if rank.requests}
