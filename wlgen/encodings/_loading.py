"""A tokenizer from a folder or the hub, loaded as servers load it: by transformers."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from wlgen.errors import error

FILE = "tokenizer.json"
HUB_SECONDS = 10
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_OLDER = ("tokenizer.model", "vocab.json", "vocab.txt", "*.tiktoken")  # what transformers makes FILE from


def load_tokenizer(path: str, revision: str | None, *, place: str) -> tuple[Any, str]:
    """Return transformers' tokenizer and the sha256 of its tokenizer.json.

    transformers may change what tokenizer.json says (LlamaTokenizer builds its own pre-tokenizer). Servers
    encode with the changed tokenizer, and so does wlgen; truncation and padding are off, as in servers.
    WlgenError: no such folder or file, no answer from the hub, a broken file.
    """
    # Without this, transformers prints that PyTorch is missing, which only matters to people who run models.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer  # noqa: PLC0415 (takes a second; other encodings do without)

    folder = Path(os.path.expandvars(Path(path).expanduser()))
    here = folder.is_dir()
    file = _local_file(folder, revision, place) if here else _hub_file(path, revision, place)
    source = str(folder) if here else path
    try:
        loaded = AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False)
        tokenizer = loaded.backend_tokenizer
    except Exception as failure:  # tokenizers raises bare Exception for a broken file
        expected = "a tokenizer that transformers can load"
        remedy = "Copy the served model's tokenizer files again; wlgen does not run code of a repository."
        raise error(place, expected=expected, found=_first_line(failure), remedy=remedy) from failure
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return loaded, hashlib.sha256(file.read_bytes()).hexdigest()


def _check_hub_id(path: str, revision: str | None, place: str) -> None:
    folder = Path(os.path.expandvars(Path(path).expanduser()))
    expected = f"a folder with {FILE}, or a hub id such as owner/name"
    if folder.exists():
        raise error(place, expected=expected, found=f"a file, {path}", remedy="Give the folder it stands in.")
    if not _HUB_ID.fullmatch(path):
        raise error(place, expected=expected, found=f"no such folder, {path}", remedy="Correct the path.")
    # models/qwen beside a folder models, or qwen alone: a mistyped folder must not become a download.
    if revision is None and folder.parent.is_dir():
        remedy = "Correct the path, or add `revision: main` to take it from the hub."
        raise error(place, expected=expected, found=f"no such folder, {path}", remedy=remedy)


def _local_file(folder: Path, revision: str | None, place: str) -> Path:
    if revision is not None:
        remedy = "Remove it: a folder has no revisions."
        raise error(
            place, expected="a revision only with a hub id", found=f"revision {revision!r}", remedy=remedy
        )
    file = folder / FILE
    if not file.is_file():
        there = sorted(p.name for p in folder.iterdir() if p.is_file())
        found = f"a folder with {', '.join(there[:8])}" if there else "an empty folder"
        raise error(place, expected=f"a folder with {FILE}", found=found, remedy=_converted(folder))
    return file


def _converted(folder: Path) -> str:
    """Return the command that makes FILE of the older tokenizer files in a folder, or where FILE is."""
    if not any(next(folder.glob(older), None) for older in _OLDER):
        return f"Copy {FILE} and tokenizer_config.json of the served model into it."
    new = folder.with_name(f"{folder.name}-fast")
    source, target = json.dumps(str(folder)), json.dumps(str(new))
    code = (
        f"from transformers import AutoTokenizer as T; T.from_pretrained({source}).save_pretrained({target})"
    )
    install = "pip install sentencepiece protobuf tiktoken"
    return f"Make it, and give {new}: {install} && python -c {shlex.quote(code)}"


def _hub_file(path: str, revision: str | None, place: str) -> Path:
    from transformers.utils import cached_file  # noqa: PLC0415 (takes a second)

    _check_hub_id(path, revision, place)
    away = not _hub_answers(path, revision)
    try:
        return Path(cached_file(path, FILE, revision=revision, local_files_only=away))
    except (OSError, ValueError) as failure:
        found = f"no such folder, and the hub says: {_first_line(failure)}"
        if away:
            found = "no such folder, no copy of that hub id on this machine, and no answer from the hub"
        remedy = f"Correct the path or id, or give a folder with {FILE}."
        raise error(
            place, expected=f"a folder or a hub id with {FILE}", found=found, remedy=remedy
        ) from failure


def _hub_answers(path: str, revision: str | None) -> bool:
    """Return whether the hub answers. Asked once here, since a download asks six times in half a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url  # noqa: PLC0415 (takes a second)
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    try:
        get_hf_file_metadata(hf_hub_url(path, FILE, revision=revision), timeout=HUB_SECONDS)
    except HfHubHTTPError:  # the hub answers that there is no such file, or that it is private
        return True
    except Exception:  # noqa: BLE001 (each version's HTTP client has errors of its own)
        return False
    return True


def _first_line(failure: Exception) -> str:
    return str(failure).strip().partition("\n")[0] or type(failure).__name__
