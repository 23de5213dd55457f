"""RUN.md: the commands are shell that parses, and every known trap of the client is switched off."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from kit.sets import spec_of

from wlgen import exporters, registry
from wlgen.build.build import build
from wlgen.export.export import export
from wlgen.exporters import Portion, Target, vllm
from wlgen.workload.opened import Workload

OFF = {
    "aisbench": ["--mode perf", "--num-warmups 0"],
    "sglang": ["--warmup-requests 0", "--dataset-name openai", "--cache-report", "--output-details"],
    "vllm": [
        "--ready-check-timeout-sec 0",
        "--disable-shuffle",
        "--no-oversample",
        "--skip-chat-template",
        "--skip-tokenizer-init",
        "--ignore-eos",
        '"max_completion_tokens":8',
        "--header X-data-parallel-rank=$r",
        "--save-detailed",
    ],
    "aiperf": ["--dataset-sampling-strategy sequential", "--request-count $(wc -l < formal.jsonl)"],
    "guidellm": ["shuffle=false", "kind=max_requests,count=$(wc -l < formal/rank-$R.jsonl)", "$r"],
    "evalscope": ["--no-test-connection", "--number $(wc -l < formal.jsonl)"],
}
NEVER = ["--flush-cache", "--num-warmups 1", "--warmup-request-count", "--fixed-schedule ", "--pressure "]


def commands(card: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", card, re.DOTALL)


def formal(card: str) -> str:
    return commands(card.partition("## 4. ")[2])[0]


@pytest.mark.parametrize("client", registry.names(exporters))
def test_every_command_is_shell_that_parses(warm_set: Workload, tmp_path: Path, client: str):
    out = tmp_path / ("here" if client == "aisbench" else "it's here")
    export(warm_set, client, out)
    for command in commands((out / "RUN.md").read_text()):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0


@pytest.mark.parametrize("client", sorted(OFF))
def test_known_traps_are_switched_off(warm_set: Workload, tmp_path: Path, client: str):
    export(warm_set, client, tmp_path / "out")
    command = formal((tmp_path / "out/RUN.md").read_text())
    assert [flag for flag in OFF[client] if flag not in command] == []
    assert [flag for flag in NEVER if flag in command] == []


def test_the_server_is_told_to_report_and_to_take_ranks(warm_set: Workload, tmp_path: Path):
    export(warm_set, "plain", tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    for needed in (
        "--enable-cache-report",
        "--enable-prompt-tokens-details",
        "routed_dp_rank",
        "--dp-size 2",
    ):
        assert needed in card
    assert "VLLM_SERVER_DEV_MODE=1" in card


def test_prepare_comes_before_the_clients_own_seeds(tmp_path: Path):
    workload = build(spec_of(seed={"per_rank": 1}), tmp_path).workload
    export(workload, "vllm", tmp_path / "out")
    card = (tmp_path / "out/RUN.md").read_text()
    places = [
        card.index(part) for part in ('wlgen prepare "$SET"', "### seed", "### check", "## 4.", "wlgen audit")
    ]
    assert places == sorted(places)


def test_several_output_lengths_take_the_rows_own_with_a_tokenizer(warm_set: Workload):
    """Without a tokenizer `vllm bench serve` has one output length a run."""
    portion = Portion(split="formal", round=0, dp_rank=0, rows=2, output_lens=(8, 16), cached_lens=(0, 0))
    target = Target(manifest=warm_set.manifest, form="text", folder="/x", tokenizer=b"{}")
    command = vllm.run_card(target, [portion]).commands["formal"]
    assert "--custom-output-len -1" in command
    assert "--skip-tokenizer-init" not in command
    assert "max_completion_tokens" not in command


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
