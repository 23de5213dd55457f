"""One side of a pair given as --url is refused by name, before anything is sent that could end it."""

from __future__ import annotations

import pytest
from kit.odd_server import answer, odd_server
from kit.rehearsals import small_set
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.server.roles import Member
from wlgen.server.route import RankError, legs

MODELS = answer({"data": [{"id": "m"}]})


def info(side: str | None, **changes: object) -> bytes:
    page = {
        "disaggregation_mode": side,
        "dp_size": 2,
        "load_balance_method": "follow_bootstrap_room",
        "disable_radix_cache": False,
        "disaggregation_bootstrap_port": 8901,
    }
    return answer(page | changes)


def fatal(sent: list[str], path: str):
    """Answer like a server that this request ends, and keep it."""

    def parts():
        sent.append(path)
        return [b""]

    return parts


def asked(command: str, side: str | None, *options: str, **changes: object) -> tuple[str, list[str]]:
    """Return what a command says of a server of this role, and the generating requests that it sent."""
    sent: list[str] = []
    script = {path: fatal(sent, path) for path in ("/generate", "/v1/completions", "/v1/chat/completions")}
    script |= {"/v1/models": MODELS, "/server_info": info(side, **changes), "/model_info": answer({})}
    folder = [str(small_set(name="roles").folder)] if command == "prepare" else []
    with odd_server(script) as url:
        arguments = [command, *folder, "--url", url, *(o.format(url=url) for o in options), "--timeout", "5"]
        done = CliRunner().invoke(app, arguments)
    return str(done.exception), sent


@pytest.mark.parametrize("command", ["prepare", "probe"])
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_side_of_a_pair_is_refused_by_name_and_sent_nothing(command, side):
    said, sent = asked(command, side)
    assert f"the {side} server of a pair (2 ranks)" in said
    assert f"Give the router as --url and this server as --{side} URL" in said
    assert sent == []


def test_sides_that_are_swapped_or_missing_are_refused():
    for given, missing in (("--prefill", "--decode"), ("--decode", "--prefill")):
        said, sent = asked("prepare", None, given, "{url}")
        assert said.startswith(f"{missing}: expected the other side of the pair")
        assert sent == []
    said, sent = asked("prepare", None, "--prefill", "{url}", "--decode", "{url}")
    assert (
        "expected SGLang's prefill server of a pair (disaggregation_mode prefill), found a server by" in said
    )
    assert sent == []


@pytest.mark.parametrize(
    "changes", [{"dp_size": "2"}, {"dp_size": -1}, {"disaggregation_bootstrap_port": []}]
)
def test_an_odd_page_of_a_role_is_bad_input(changes):
    said, sent = asked("prepare", "prefill", **changes)
    assert "/server_info" in said
    assert sent == []


# What wlgen's own router sends to each side.


def member(side: str, url: str, ranks: int) -> Member:
    return Member(url=url, side=side, ranks=ranks, balance="", radix=True, bootstrap_port=8901)


PREFILL = [member("prefill", "http://p0:1", 8), member("prefill", "http://p1:1", 4)]
DECODE = [member("decode", "http://d:1", 4)]


@pytest.mark.parametrize(
    ("rank", "url", "local", "ranks"), [(0, "p0", 0, 8), (7, "p0", 7, 8), (11, "p1", 3, 4)]
)
def test_the_rank_goes_to_the_prefill_side_alone_with_a_room_of_that_rank(rank, url, local, ranks):
    body = {"model": "m", "routed_dp_rank": rank, "disagg_prefill_dp_rank": 99, "bootstrap_room": 1}
    for _ in range(50):
        first, second = legs(body, rank, PREFILL, DECODE)
        assert first.url == f"http://{url}:1"
        assert first.body["bootstrap_room"] % ranks == local
        assert 0 <= first.body["bootstrap_room"] < 1 << 63
        assert (first.body["routed_dp_rank"], first.body["disagg_prefill_dp_rank"]) == (local, local)
        assert first.body == second.body | {"routed_dp_rank": local}
        assert (second.body["bootstrap_host"], second.body["bootstrap_port"]) == (url, 8901)
        assert "routed_dp_rank" not in second.body


def test_a_request_without_a_rank_gets_one():
    """Without a rank the prefill server would end."""
    seen = {legs({}, None, PREFILL, DECODE)[0].body["routed_dp_rank"] for _ in range(200)}
    assert seen == set(range(8))


@pytest.mark.parametrize("rank", [12, -1])
def test_a_rank_that_no_prefill_server_has_is_refused(rank):
    with pytest.raises(RankError, match=r"out of range \[0, 12\)"):
        legs({}, rank, PREFILL, DECODE)
