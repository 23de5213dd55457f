"""What every command prints with --json has one shape, and is what `wlgen schema --of` says of it."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from kit.rehearsals import rehearsal, small_set
from pydantic import TypeAdapter
from typer.testing import CliRunner

from wlgen import __version__, cli, commands
from wlgen.errors import WlgenError

SPECS = Path(__file__).parents[2] / "specs"
SERVERS = {"rehearse", "route"}  # they run until they are stopped, and answer over HTTP


def run(*arguments: object) -> tuple[int, dict]:
    """Return the exit code of a command with --json, and its answer, checked against its schema."""
    command = str(arguments[0])
    done = CliRunner().invoke(cli.app, [*map(str, arguments), "--json"], catch_exceptions=False)
    shape = commands.answering()[command]()
    TypeAdapter(shape).validate_json(done.stdout, strict=True)
    answer = json.loads(done.stdout)
    assert list(answer)[:3] == ["wlgen", "command", "ok"]
    assert (answer["wlgen"], answer["command"]) == (__version__, command)
    assert answer["ok"] == (done.exit_code == 0)
    assert done.stdout.count("\n") == 1, "a pipe gets one line"
    return done.exit_code, answer


@pytest.fixture(scope="module")
def warm():
    return small_set(name="answers")


def test_every_command_but_the_servers_answers_in_json():
    assert set(commands.answering()) == commands.names() - SERVERS - {"schema"}


def test_the_schema_of_each_answer_is_printed():
    for command in commands.answering():
        done = CliRunner().invoke(cli.app, ["schema", "--of", command], catch_exceptions=False)
        schema = json.loads(done.stdout)
        assert schema["title"] == f"What `wlgen {command} --json` prints"
        answer, failed = (schema["$defs"][arm["$ref"].rpartition("/")[2]] for arm in schema["anyOf"])
        assert answer["properties"]["command"]["const"] == command
        assert answer["required"][:3] == ["wlgen", "command", "ok"]
        assert answer["additionalProperties"] is False
        assert failed["required"] == ["wlgen", "command", "ok", "problems"]


def test_the_schema_of_no_command_is_refused_with_the_nearest_name():
    with pytest.raises(WlgenError, match=r"--of: expected one of audit, .*, found audits\. .*audit"):
        CliRunner().invoke(cli.app, ["schema", "--of", "audits"], catch_exceptions=False)


@pytest.mark.parametrize("spec", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_plan_of_each_shipped_spec(spec):
    assert run("plan", spec, "--in-flight", "4")[0] == 0


def test_the_reference(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("explain")[1]["keys"][0]["path"] == "name"
    assert run("list")[1]["tasks"] == ["copy", "corpus", "words"]
    assert run("new", "mine", "--from", "zero-16k")[1]["spec"] == "mine.yaml"


def test_a_set_is_built_verified_simulated_scheduled_and_exported(warm, tmp_path):
    spec = tmp_path / "answers.yaml"
    spec.write_text(json.dumps(dict(warm.manifest.spec)))
    assert run("schedule", warm.folder)[1]["rounds"] > 0
    assert run("verify", warm.folder)[1]["holds"] is True
    assert run("verify", warm.folder, "--full")[1]["composed"] is None
    assert run("simulate", warm.folder, "--in-flight", "2", "--capacity", "700")[1]["evicted"]["tokens"] > 0
    assert run("export", warm.folder, "--to", "vllm", "--output", tmp_path / "out")[1]["client"] == "vllm"


def test_build_answers_with_the_manifest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("new", "mine", "--from", "zero-16k", "--ranks", "2", "--rows", "2", "--prompt-len", "2000")
    first, again = run("build", "mine.yaml")[1], run("build", "mine.yaml")[1]
    assert (
        first["manifest"] == again["manifest"] == json.loads(Path("output/mine/manifest.json").read_bytes())
    )
    assert (first["written"] > 0, again["written"]) == (True, 0)


def test_rules_are_inferred(tmp_path):
    seen = tmp_path / "seen.jsonl"
    line = {"prompt_tokens": 16388, "shared_tokens": 14848, "cached_tokens": 14336}
    seen.write_text(json.dumps(line) + "\n")
    assert run("infer-rule", seen)[1]["explained_all"] is True
    seen.write_text(json.dumps(line) + "\n" + json.dumps(line | {"cached_tokens": 13}) + "\n")
    assert run("infer-rule", seen)[0] == 1


def test_quiet_hides_the_walk_and_not_the_verdict(warm, tmp_path):
    def said(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(cli.app, [*map(str, arguments), "-q"], catch_exceptions=False)
        return done.exit_code, done.output

    assert said("simulate", warm.folder) == (0, "")
    assert said("simulate", warm.folder, "--skip-seeds") == (1, "NOT MET: a request is outside its bound.\n")
    seen = tmp_path / "seen.jsonl"
    seen.write_text('{"prompt_tokens": 16388, "shared_tokens": 14848, "cached_tokens": 13}\n')
    assert said("infer-rule", seen) == (1, "explained  0 of 1 observations\n")


def test_a_server_is_probed_prepared_and_counted(warm, tmp_path):
    with rehearsal(warm, hidden=()) as running:
        assert run("probe", "--url", running.url)[1]["rules"]
        code, outcome = run("prepare", warm.folder, "--url", running.url, "--journal", tmp_path / "j.jsonl")
        assert (code, outcome["prepared"]) == (0, True)
        assert run("counters", "--url", running.url, "-o", tmp_path / "c.json")[1]["servers"]
    with rehearsal(warm, faults=("lose-cache=1",)) as running:
        code, outcome = run("prepare", warm.folder, "--url", running.url, "--journal", tmp_path / "k.jsonl")
        assert (code, bool(outcome["findings"])) == (1, True)


def sent(workload, running, path: Path, *, keeps: bool) -> None:
    """Send the formal rows, and keep the usage of each; without cached tokens where the client keeps none."""
    with path.open("w") as results:
        for row in workload.rows(("formal",)):
            more = {"routed_dp_rank": row.dp_rank, "max_tokens": row.output_len, "ignore_eos": True}
            usage = running.chat(row.messages[-1].content, **more)["usage"]
            if not keeps:
                del usage["prompt_tokens_details"]
            line = {"id": row.id, "text_sha256": row.text_sha256, "usage": usage, "start": 1.0, "end": 2.5}
            print(json.dumps(line), file=results)


def test_a_run_is_audited_and_the_audit_says_where_it_comes_from(warm, tmp_path):
    results, blind = tmp_path / "results.jsonl", tmp_path / "blind.jsonl"
    before, after = tmp_path / "counters-before.json", tmp_path / "after.json"
    with rehearsal(warm) as running:
        run("prepare", warm.folder, "--url", running.url, "--journal", tmp_path / "j.jsonl")
        sent(warm, running, blind, keeps=False)
        run("counters", "--url", running.url, "-o", after)
        sent(warm, running, results, keeps=True)
    code, answer = run("audit", warm.folder, results, "--concurrency", "16", "--rate", "2")
    assert code == 1, "each prompt was sent before, so it found itself"
    source = answer["provenance"]
    assert source["set_sha256"] == warm.manifest.spec_sha256
    digest = hashlib.sha256(results.read_bytes()).hexdigest()
    assert source["results"] == [{"path": str(results), "sha256": digest, "bytes": results.stat().st_size}]
    assert source["options"] == {"concurrency": 16, "rate": 2.0, "late": 0.5}
    assert (source["wlgen"], source["clients"]) == (__version__, ["plain"])
    page = tmp_path / "page.html"
    quiet = CliRunner().invoke(cli.app, ["audit", str(warm.folder), str(blind), "--quiet"])
    assert (quiet.exit_code, "NOT PROVED" in quiet.stdout, "min %" in quiet.stdout) == (1, True, False)
    code, answer = run("audit", warm.folder, blind, "--counters", before, after, "--html", page)
    assert (code, answer["verdict"]) == (0, "KEPT")
    assert [Path(each["path"]) for each in answer["provenance"]["witnesses"]] == [before, after]
    for words in (warm.manifest.spec_sha256, digest_of(before), f"by wlgen {__version__}", "late 0.5"):
        assert words in page.read_text()


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_audit_of_a_file_that_was_cut_is_one_answer_with_its_problems(warm, tmp_path):
    results = tmp_path / "results.jsonl"
    results.write_text('{"id": "formal-r00-000000"}\n{"id": "formal-r00-000')
    done = CliRunner().invoke(
        cli.app, ["audit", str(warm.folder), str(results), "--client", "plain", "--json"]
    )
    TypeAdapter(commands.answering()["audit"]()).validate_json(done.stdout, strict=True)
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"], len(answer["problems"])) == (2, False, 1)
    assert done.stderr.startswith(f"wlgen: {results}:2: ")


def failing(*arguments: object) -> tuple[int, list[dict]]:
    """Return the exit code and the problems of a command line that fails, run as a process would."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["wlgen", *map(str, arguments), "--json"])
        patched.setattr("wlgen.commands._answer.typer.echo", said.append)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    answer = json.loads(said[-1])
    assert (answer["wlgen"], answer["ok"], len(said)) == (__version__, False, 1)
    assert answer["command"] in {*commands.names(), None}
    assert all(list(p) == ["place", "expected", "found", "remedy"] for p in answer["problems"])
    return ended.value.code, answer["problems"]


def test_bad_input_is_told_as_json_and_on_standard_error(tmp_path, capsys):
    spec = tmp_path / "bad.yaml"
    spec.write_text("name: bad\nname: worse\n")
    code, problems = failing("plan", spec)
    assert (code, len(problems) > 1) == (2, True)
    assert f"{spec}:2 name" in [problem["place"] for problem in problems]
    assert f"wlgen: {spec}:2 name: expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["verify"], "Missing argument"),
        (["verify", "x", "--nonsense"], "No such option: --nonsense"),
        (["nonsense"], "No such command 'nonsense'"),
        (["schedule", "--chunk", "many"], "Invalid value for '--chunk'"),
    ],
)
def test_a_wrong_command_line_is_told_as_json(arguments, found):
    code, problems = failing(*arguments)
    assert (code, len(problems)) == (2, 1)
    assert found in problems[0]["found"]


def test_a_bug_is_told_as_json(monkeypatch, capsys):
    def broken(**_: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr(cli, "app", broken)
    code, problems = failing("list")
    assert (code, problems[0]["found"]) == (70, "RuntimeError: broken inside")
    assert "Traceback" in capsys.readouterr().err


def test_a_terminal_gets_the_answer_indented(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    commands._answer.show("list", {"tasks": ("copy",)})
    shown = capsys.readouterr().out
    assert shown.startswith('{\n  "wlgen": ')
    assert json.loads(shown)["tasks"] == ["copy"]


def test_a_file_name_that_is_no_utf8_is_spelled_as_escapes(capsys):
    commands._answer.show("new", {"spec": Path("caf\udce9.yaml")})
    assert r"caf\udce9.yaml" in capsys.readouterr().out
