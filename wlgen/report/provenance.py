"""Where an audit comes from: which set, which files, which wlgen, when, and with which options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wlgen import __version__
from wlgen.errors import counted
from wlgen.workload.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedFile:
    """A file that an audit read, so that a reader can tell whether it is still the same file."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """All that makes two audits two audits.

    audited: when, ISO 8601 in UTC. set_sha256: the spec's fingerprint. model: whose tokenizer and chat format
    the set has. engine, rule, dp_ranks: what the spec says of the server. servers: the addresses that its
    counters are of, if they were given. clients: whose result files they are. results, witnesses: the files
    of the client, and those of the servers. options: those of the command that were given.
    """

    wlgen: str
    audited: str
    set_sha256: str
    model: str
    engine: str
    rule: str
    dp_ranks: int
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    results: tuple[AuditedFile, ...]
    witnesses: tuple[AuditedFile, ...]
    options: Mapping[str, str | int | float | bool | list[str] | list[int]]

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        *,
        clients: Sequence[str],
        results: Iterable[Path],
        witnesses: Iterable[Path],
        servers: Iterable[str] = (),
        options: Mapping[str, str | float | bool | list[str] | list[int] | None],
    ) -> Provenance:
        """Return the provenance of an audit that was just made; it reads each file once for its hash."""
        return cls(
            wlgen=__version__,
            audited=datetime.now(UTC).isoformat(timespec="seconds"),
            set_sha256=manifest.spec_sha256,
            model=str(manifest.encoding["name"]),
            engine=manifest.cache.engine,
            rule=manifest.cache.name,
            dp_ranks=manifest.dp_ranks,
            servers=tuple(dict.fromkeys(servers)),
            clients=tuple(clients),
            results=tuple(map(_hashed, results)),
            witnesses=tuple(_hashed(file) for path in witnesses for file in _files(path)),
            options={name: value for name, value in options.items() if value not in (None, False, [])},
        )

    def lines(self) -> list[tuple[str, str]]:
        """Return what a person reads, but for the files: [("set", "3f2a..."), ("options", "cards 16")]."""
        given = (f"{name.replace('_', ' ')} {_shown(value)}" for name, value in self.options.items())
        ranks = counted(self.dp_ranks, "rank")
        return [
            ("client", ", ".join(self.clients) or "none"),
            ("server", ", ".join((*self.servers, self.engine, f"{ranks}, as the spec says"))),
            ("cache rule", self.rule),
            ("model", self.model),
            ("set", self.set_sha256),
            ("audited", f"{self.audited} by wlgen {self.wlgen}"),
            ("options", ", ".join(given) or "none"),
        ]

    def files(self) -> list[tuple[str, str, str]]:
        """Return (path, sha256, bytes) of each file, those of the client first."""
        return [(each.path, each.sha256, f"{each.bytes:,}") for each in (*self.results, *self.witnesses)]


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def _hashed(path: Path) -> AuditedFile:
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return AuditedFile(path=str(path), sha256=digest, bytes=content.tell())
