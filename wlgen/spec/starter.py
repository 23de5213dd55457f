"""A starter: the text of a new spec, with comments, from the shipped ones or from a template."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path

from wlgen import registry
from wlgen.errors import error

_SCHEMA_LINE = re.compile(r"\A# yaml-language-server: .*\n")
_STARTED = "# Copied from another spec: figures in the comments below are those of that spec.\n"
_TEMPLATE = """\
# A spec of wlgen. `wlgen explain` says what each key means, `wlgen plan {name}.yaml` what it will give.
name: {name}
random_seed: 0                     # sets of one random_seed share text, so each has its own
encoding: {{name: deepseek-v4}}      # or {{path: DIR}}: a folder with tokenizer.json and a chat template
cache: {{engine: sglang, page_size: 128}}   # as the server is started; `wlgen list` names rules of models
dp_ranks: 1                        # data-parallel ranks of the server, a prefix cache each
requests:
  body_len: 4096                   # tokens of the message, the chat framing left out
  output_len: 256
  cached: {{min_ratio: 0.9}}         # the least share of each prompt; {{max_tokens: 0}}: a zero set
  prefix: {{shared_by: all}}         # who shares the prefix: all, rank or group
  task: {{name: copy}}               # the text: copy, words, or your own corpus
splits:
  # Seeds load a shared prefix into the cache of each rank. A warm set has one a rank without any key.
  check: {{per_rank: 1}}             # proves the primed prefix before anything is measured
  formal: {{total: 64}}              # the measured requests, each sent once
"""


def shipped() -> dict[str, Path]:
    """Return the path of each spec that comes with wlgen, by its name.

    They stand in specs/ of the repository, and an installed wheel has copies below share/wlgen/specs.
    """
    folder = Path(__file__).parents[2] / "specs"
    if folder.is_dir():
        return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    files = importlib.metadata.files("wlgen") or []
    found = [Path(str(f.locate())) for f in files if f.match("share/wlgen/specs/*.yaml")]
    return {path.stem: path for path in sorted(found)}


def source_text(wanted: str) -> str:
    """Return the text of a spec to start from: a file, or a shipped spec by its name."""
    known = shipped()
    path = Path(wanted).expanduser()
    if wanted in known or path.is_file():
        return known.get(wanted, path).read_text(encoding="utf-8")
    remedy = registry.nearest(wanted, list(known)) or f"Shipped specs are {', '.join(known)}."
    raise error("--from", expected="a spec's file, or a shipped spec", found=repr(wanted), remedy=remedy)


def new_text(name: str, source: str | None, values: Mapping[str, str]) -> str:
    """Return the text of a spec called `name`, with the values of some keys replaced.

    source: the text to start from, None for the template. values: YAML by key, such as body_len: "8192".
    """
    text = _TEMPLATE.format(name=name) if source is None else _STARTED + _SCHEMA_LINE.sub("", source)
    for key, value in {"name": name, "random_seed": str(_seed(name)), **values}.items():
        text = with_value(text, key, value)
    return text


def without_seeds(text: str) -> str:
    """Return a spec's text without its line of seeds, which a zero set may not have."""
    return re.sub(r"^\s*seed:[ \t]*\{[^}]*\}.*\n", "", text, flags=re.MULTILINE)


def _seed(name: str) -> int:
    """Return a random_seed made from the name, so that sets of two names share no text."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) >> 1


def with_value(text: str, key: str, value: str) -> str:
    """Return a spec's text with one key's value replaced; the comment behind it stays."""
    line = re.compile(rf"^(\s*{key}:)[ \t]+(\{{[^}}]*\}}|[^\s#{{]+)(?=[ \t]*(#|$))", re.MULTILINE)
    places = line.findall(text)
    if len(places) != 1:
        found = f"{len(places)} such lines" if places else "no such line"
        remedy = f"Leave the option out, and write {key} by hand."
        raise error("--from", expected=f"one line `{key}: VALUE` in the spec", found=found, remedy=remedy)
    return line.sub(lambda match: f"{match[1]} {value}", text)
