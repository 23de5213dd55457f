"""RUN.md: the commands are shell that parses, and every known trap of the client is switched off."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from kit.sets import spec_of

from wlgen import exporters, registry
from wlgen.build.build import build
from wlgen.errors import WlgenError
from wlgen.export.export import export
from wlgen.exporters import Portion, Target, vllm
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload
from wlgen.workload.splits import Split

OFF = {
    "aisbench": ["--mode perf", "--num-warmups 0"],
    "sglang": ["--warmup-requests 0", "--dataset-name openai", "--cache-report", "--output-details"],
    "vllm": [
        "--ready-check-timeout-sec 0",
        "--disable-shuffle",
        "--no-oversample",
        "--skip-chat-template",
        "--custom-output-len -1",
        '--tokenizer "$PWD/tokenizer"',
        "--ignore-eos",
        "--header X-data-parallel-rank=$r",
        "--save-detailed",
    ],
    "aiperf": ["--dataset-sampling-strategy sequential", "--request-count $(wc -l < formal.jsonl)"],
    "guidellm": ["shuffle=false", "kind=max_requests,count=$(wc -l < formal/rank-$R.jsonl)", "$r"],
    "evalscope": ["--no-test-connection", "--number $(wc -l < formal.jsonl)"],
}
NEVER = [
    "--flush-cache",
    "--num-warmups 1",
    "--warmup-request-count",
    "--fixed-schedule ",
    "--pressure ",
    "--skip-tokenizer-init",
]


def commands(card: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", card, re.DOTALL)


def formal(card: str) -> str:
    return commands(card.partition("## 5. ")[2])[0]


@pytest.mark.parametrize("client", registry.names(exporters))
def test_every_command_is_shell_that_parses(warm_set: Workload, tmp_path: Path, client: str):
    out = tmp_path / ("here" if client == "aisbench" else "it's here")
    export(warm_set, client, out)
    for command in commands((out / "RUN.md").read_text()):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0


@pytest.mark.parametrize("client", registry.names(exporters))
def test_each_line_of_the_variables_sets_one(warm_set: Workload, tmp_path: Path, client: str):
    """A comment that ran over into a line of its own was a command that bash did not find."""
    export(warm_set, client, tmp_path / "out")
    setup = commands((tmp_path / "out/RUN.md").read_text().partition("## 3. ")[2])[0]
    assert [line for line in setup.splitlines() if not re.match(r"cd |(export )?[A-Z_]+=", line)] == []


@pytest.mark.parametrize("client", sorted(OFF))
def test_known_traps_are_switched_off(warm_set: Workload, tmp_path: Path, client: str):
    export(warm_set, client, tmp_path / "out")
    command = formal((tmp_path / "out/RUN.md").read_text())
    assert [flag for flag in OFF[client] if flag not in command] == []
    assert [flag for flag in NEVER if flag in command] == []


def test_the_server_is_told_to_report_and_to_take_ranks(warm_set: Workload, tmp_path: Path):
    export(warm_set, "plain", tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    for needed in ("--enable-cache-report", "--enable-metrics", "routed_dp_rank", "--dp-size 2"):
        assert needed in card
    assert "vllm" not in card  # a card has the server lines of its set's engine alone


def test_prepare_comes_before_the_clients_own_seeds(tmp_path: Path):
    workload = build(spec_of(seed={"per_rank": 1}), tmp_path).workload
    export(workload, "vllm", tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    places = [
        card.index(part)
        for part in (
            'wlgen prepare "$SET"',
            "### seed",
            "### check",
            "## 5.",
            "wlgen counters",
            "wlgen audit",
        )
    ]
    assert places == sorted(places)


def test_vllm_has_a_tokenizer_for_ttft_and_says_that_ids_have_none(warm_set: Workload):
    """`vllm bench serve` measures TTFT and TPOT only with a tokenizer, and its tokenizer takes no ids."""
    portion = Portion(split=Split.FORMAL, round=0, dp_rank=0, rows=2, output_lens=(8,), cached_lens=(0, 0))
    text, ids = (
        vllm.run_card(Target(manifest=warm_set.manifest, form=form, folder="/x"), [portion])
        for form in ("text", "ids")
    )
    assert '--custom-output-len -1 --tokenizer "$PWD/tokenizer"' in text.commands["formal"]
    assert "TTFT" not in text.blind
    assert "--skip-tokenizer-init" in ids.commands["formal"]
    assert "neither TTFT nor TPOT" in ids.blind


@pytest.mark.parametrize("splits", [(), ("formal",), ("check",)])
def test_the_steps_are_numbered_without_a_gap_whatever_the_splits(warm_set: Workload, tmp_path: Path, splits):
    export(warm_set, "plain", tmp_path / "out", splits=splits)
    card = (tmp_path / "out/RUN.md").read_text()
    assert re.findall(r"^## (\d)\.", card, re.MULTILINE) == list("123456")
    assert 'wlgen prepare "$SET"' in card


def test_the_context_holds_the_longest_request_and_a_rank_its_prefixes(warm_set: Workload, tmp_path: Path):
    """SGLang ends a request two tokens before the context's end, so the line asks for a few more."""
    export(warm_set, "plain", tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    rows = list(warm_set.rows())
    longest = max(row.prompt_len + row.output_len for row in rows)
    assert f"longest request has {longest} tokens" in " ".join(card.split())
    assert f"--context-length {longest + 8}" in card
    need = int(re.search(r"room for (\d+) KV tokens", " ".join(card.split()))[1])
    assert need >= max(row.shared_len for row in rows) + 4 * (longest - max(row.cached_len for row in rows))


@pytest.mark.parametrize("client", registry.names(exporters))
def test_each_client_is_installed_apart_and_each_run_has_a_folder(
    warm_set: Workload, tmp_path: Path, client: str
):
    export(warm_set, client, tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    installed = client not in {"plain", "openai-batch", "mooncake"}
    assert (f"python3 -m venv ~/wlgen-clients/{client}" in card) == installed
    assert "RUN=results/$(date" in card
    assert all("$RUN" in line for line in card.splitlines() if line.startswith("wlgen audit"))


@pytest.mark.parametrize(("rule", "port"), [("sglang", 30000), ("vllm", 8000)])
def test_the_port_is_that_of_the_sets_engine(tmp_path: Path, rule: str, port: int):
    workload = build(spec_of(cache_rule={"engine": rule, "page_size": 16}), tmp_path).workload
    for client in ("aiperf", "sglang"):
        export(workload, client, tmp_path / client)
        assert f"URL=http://127.0.0.1:{port} " in (tmp_path / client / "RUN.md").read_text()


# warm_set's first formal row stands on rank 0; both keys pin it where the way is SGLang's own mini_lb.
PINNED = [
    ("aisbench", "wlgen_extras.jsonl", '"body":{"routed_dp_rank":0,"disagg_prefill_dp_rank":0}'),
    ("sglang", "formal.jsonl", '"routed_dp_rank":0,"disagg_prefill_dp_rank":0'),
    ("aiperf", "formal.jsonl", '"routed_dp_rank":0,"disagg_prefill_dp_rank":0'),
    ("evalscope", "formal.jsonl", '"routed_dp_rank":0,"disagg_prefill_dp_rank":0'),
    ("plain", "formal.jsonl", '"routed_dp_rank":0,"disagg_prefill_dp_rank":0'),
    ("openai-batch", "formal.jsonl", '"routed_dp_rank":0,"disagg_prefill_dp_rank":0'),
    ("guidellm", "RUN.md", '\\"routed_dp_rank\\":$r,\\"disagg_prefill_dp_rank\\":$r'),
    ("vllm", "RUN.md", """"routed_dp_rank":'$r',"disagg_prefill_dp_rank":'$r'}'"""),
]


@pytest.mark.parametrize(("client", "file", "pin"), PINNED)
def test_a_pair_is_pinned_as_the_way_to_it_asks(
    warm_set: Workload, tmp_path: Path, client: str, file: str, pin: str
):
    export(warm_set, client, tmp_path / "both", pair="mini_lb")
    assert pin in (tmp_path / "both" / file).read_text()
    export(warm_set, client, tmp_path / "own", pair="route")
    own = (tmp_path / "own" / file).read_text()
    assert "routed_dp_rank" in own
    assert '"disagg_prefill_dp_rank' not in own


@pytest.mark.parametrize("way", ["route", "mini_lb"])
def test_a_card_of_a_pair_says_what_belongs_to_which_side(warm_set: Workload, tmp_path: Path, way: str):
    """Roles, the order of flush, seeds, run and second reading, and the counters that decide."""
    export(warm_set, "aisbench", tmp_path / "out", pair=way)
    card = (tmp_path / "out/RUN.md").read_text()
    places = [
        card.index(part)
        for part in (
            "--disaggregation-mode prefill",
            "--disaggregation-mode decode",
            "wlgen route" if way == "route" else "--mini-lb",
            'wlgen prepare "$SET" --url "$URL" $PREFILL $DECODE --flush',
            "## 5. Formal run",
            'wlgen counters $PREFILL $DECODE --output "$RUN/counters-after.json"',
            'wlgen audit "$SET" $RUN/formal/*/performances/wlgen --client aisbench --pair',
            '--counters "$SET/counters-before.json" "$RUN/counters-after.json"',
        )
    ]
    assert places == sorted(places)
    assert ("as many ranks" in card) == (way == "mini_lb")
    for command in commands(card):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0


def test_a_way_that_loses_the_pin_is_refused_with_one_that_keeps_it(warm_set: Workload, tmp_path: Path):
    """sglang-router drops both keys on chat; of vLLM's proxies none lets a client pin."""
    with pytest.raises(WlgenError, match=r"keeps a pin on /v1/chat/completions.*Use --pair route"):
        export(warm_set, "aisbench", tmp_path / "out", pair="sglang-router")
    with pytest.raises(WlgenError, match=r"takes token ids"):
        export(warm_set, "vllm", tmp_path / "out", form="ids", pair="sglang-router")
    with pytest.raises(WlgenError, match=r"Dynamo, whose own prefill router"):
        export(warm_set, "aisbench", tmp_path / "out", pair="dynamo")
    workload = build(spec_of(cache_rule={"engine": "vllm", "page_size": 16}), tmp_path).workload
    with pytest.raises(WlgenError, match=r"none is known.*toy_proxy_server"):
        export(workload, "aisbench", tmp_path / "out", pair="route")


CHAT = """
name: chat
random_seed: 1
encoding: {name: deepseek-v4}
cache: {rule: sglang, page_size: 16}
dp_ranks: 2
requests:
  body_len: 1024
  output_len: 16
  cached: {min_ratio: 0.3}
  prefix: {shared_by: all, message: system}
  session: {turns: 3, user_len: 100, assistant_len: 40}
splits: {formal: {total: 12}}
"""


def test_conversations_are_sent_no_faster_than_their_turns_allow(tmp_path: Path):
    """Four conversations on two ranks: in the file a turn stands 4 rows after the one that it continues."""
    spec = tmp_path / "chat.yaml"
    spec.write_text(CHAT)
    workload = build(spec_file.load(spec), tmp_path).workload
    export(workload, "aiperf", tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    limit = int(re.search(r"^CONCURRENCY=(\d+)", card, re.MULTILINE)[1])
    lines = (tmp_path / "out/formal.jsonl").read_text().splitlines()
    rows = {row.id: row for row in workload.rows()}
    sent = [rows[json.loads(line)["session_id"]] for line in lines]
    last: dict[str, int] = {}
    gaps = []
    for place, row in enumerate(sent):
        if row.session in last:
            gaps.append(place - last[row.session])
        last[row.session] = place
    assert limit == min(64, *gaps)


def test_ranks_with_leading_zeros_are_numbers_in_the_loop(tmp_path: Path):
    """$((08)) is an octal error in bash: ranks 8 and 9 would stop the loop."""
    script = 'for R in 08 09 10; do r=$((10#$R)); printf "%s " $r; done'
    assert (
        subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout == "8 9 10 "
    )
    workload = build(spec_of(dp_ranks=10, formal={"per_rank": 1}), tmp_path).workload
    export(workload, "vllm", tmp_path / "out", splits=["formal"])
    loop = formal((tmp_path / "out/RUN.md").read_text()).partition("\n")[0]
    assert loop == "for R in 00 01 02 03 04 05 06 07 08 09; do r=$((10#$R))"
