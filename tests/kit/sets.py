"""Specs of small sets, with small tokenizers: rows of a few hundred tokens, built in a moment."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from kit import families
from tokenizers import Tokenizer, models, pre_tokenizers

from wlgen.encodings import Encoding, Framing
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec

KWARGS = {"llama3": {"date_string": "26 Jul 2024"}}  # its template writes today's date else


@cache
def family(name: str) -> Path:
    """Return the folder of a family's small tokenizer, the same for the whole test run."""
    root = Path(tempfile.mkdtemp(prefix="wlgen-family-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return families.FAMILIES[name](root / name)


def chat(name: str = "chatml") -> dict[str, Any]:
    """Return the encoding of a family's chat template, as a spec names it."""
    return {"path": str(family(name)), "template_kwargs": KWARGS.get(name, {})}


def raw(name: str = "chatml", *, add_special_tokens: bool = False) -> dict[str, Any]:
    """Return the encoding of a family's raw text, as a spec names it."""
    return {"name": "raw", "path": str(family(name)), "add_special_tokens": add_special_tokens}


@cache
def wordy(words: int) -> Path:
    """Return the folder of a tokenizer that knows this many made-up words, half of which are leads."""
    root = Path(tempfile.mkdtemp(prefix="wlgen-wordy-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    made = [f"{a}{b}{c}{d}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst" for d in "aeiou"][:words]
    vocabulary = {piece: number for number, piece in enumerate(["[UNK]", ".", ",", ":", *made])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(root / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (root / "tokenizer_config.json").write_text(json.dumps(config))
    return root


def content_of(
    *,
    name: str = "small",
    random_seed: int = 7,
    encoding: dict[str, Any] | None = None,
    cache_rule: dict[str, Any] | None = None,
    dp_ranks: int = 2,
    body_len: int = 320,
    output_len: int = 8,
    cached: dict[str, Any] | None = None,
    prefix: dict[str, Any] | None = None,
    task: str = "copy",
    seed: dict[str, Any] | None = None,
    check: dict[str, Any] | None = None,
    formal: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a spec's content: by default a warm set of 320-token bodies, half of each prompt cached."""
    splits: dict[str, Any] = {"check": check or {"per_rank": 1}, "formal": formal or {"total": 6}}
    return {
        "name": name,
        "random_seed": random_seed,
        "encoding": encoding or chat(),
        "cache": cache_rule or {"engine": "sglang", "page_size": 16},
        "dp_ranks": dp_ranks,
        "requests": {
            "body_len": body_len,
            "output_len": output_len,
            "cached": cached or {"min_ratio": 0.5},
            "prefix": prefix or {"shared_by": "all"},
            "task": {"name": task},
        },
        "splits": splits | ({"seed": seed} if seed else {}),
    }


def spec_of(**changes: Any) -> Spec:
    """Return the spec of `content_of` with these changes."""
    return spec_file.from_content(content_of(**changes), "spec")


def framed(head: int, tail: int) -> Encoding:
    """Return an encoding that only knows how many tokens it frames a body with: enough to solve a plan."""
    framing = Framing(texts=("<h>" * head, "<t>" * tail), ids=(tuple(range(head)), tuple(range(tail))))
    return Encoding(
        name="framed",
        tokenizer=None,  # type: ignore[arg-type] (a plan never encodes)
        tokenizer_sha256="",
        render=lambda messages: "".join(m.content for m in messages),
        frame=lambda _roles: framing,
    )
