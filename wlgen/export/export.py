"""Export: a set's rows through one client's exporter into a folder; each file is proved as it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from wlgen import exporters, registry
from wlgen.engines import PairWay, engine
from wlgen.errors import error
from wlgen.export import folder as export_folder
from wlgen.export.folder import EXPORT
from wlgen.export.rows import SetFile, SetReader
from wlgen.exporters import Exporter, Form, Target, _run_card
from wlgen.workload.exchange import NewFolder
from wlgen.workload.opened import Workload
from wlgen.workload.rows import row_file
from wlgen.workload.splits import in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    folder: Path
    client: str
    form: str
    rows: int
    files: tuple[export_folder.Written, ...]


def export(
    workload: Workload,
    client: str,
    output: Path,
    *,
    form: str | None = None,
    splits: Sequence[str] = (),
    ranks: Sequence[int] = (),
    rounds: Sequence[int] = (),
    model: str = "",
    pair: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """Write the files and the run card of a client into `output`, in place of an earlier export there.

    form: None: the exporter's first. splits, ranks, rounds: empty: all that the set has. model: the server's
    model name, for clients that send whole bodies. pair: the way to a prefill/decode pair, a name of the
    engine's `pairs`; None for one server. progress: called with the rows read and all rows.
    WlgenError, with nothing left behind: an unknown client or form, rows that the client cannot carry, a file
    of the set without the manifest's hash, a place that is not free or not writable.
    """
    exporter = cast("Exporter", registry.load(exporters, client, place="--to"))
    chosen = _form(exporter, client, form)
    way = _way(workload, chosen, pair) if pair else None
    wanted = _wanted(workload, splits, ranks, rounds)
    out, folder = output.resolve(), workload.folder.resolve()
    export_folder.check_text(out, folder)
    export_folder.check_apart(out, folder)
    with closing(SetReader(workload, wanted, progress)) as reader, NewFolder(output, EXPORT) as staging:
        staging.check_place()
        stage = staging.new
        target = _target(workload, chosen, out, model, way)
        by_time = exporter.TAKES_TIMES and target.has_times
        apart = target.apart(exporter.ONE_FILE_A)
        prompts = reader.prompts(apart=apart, by_time=by_time, ids=chosen.ids)
        made = exporter.files(prompts, target)
        written = [export_folder.write(stage, name, chunks) for name, chunks in made]
        portions = reader.portions()
        card = exporter.run_card(target, portions)
        text = _run_card.render(card, target, portions, client=client, folder=str(folder))
        written.append(export_folder.write(stage, _run_card.NAME, [text.encode()]))
        rows = sum(p.rows for p in portions)
        facts = {
            "set": workload.manifest.name,
            "spec_sha256": workload.manifest.spec_sha256,
            "client": client,
            "form": chosen.name,
            **({"pair": way.name} if way else {}),
            "splits": list(dict.fromkeys(f.split for f in wanted)),
            "ranks": sorted({f.rank for f in wanted}),
            "rounds": sorted({f.round for f in wanted}),
            "rows": rows,
        }
        export_folder.write_marker(stage, facts, written)
        staging.exchange()
    return Exported(folder=out, client=client, form=chosen.name, rows=rows, files=tuple(written))


def _form(exporter: Exporter, client: str, name: str | None) -> Form:
    known = {form.name: form for form in exporter.FORMS}
    if name is None:
        return exporter.FORMS[0]
    if name not in known:
        expected = f"a form of {client}: " + ", ".join(f"{f.name} ({f.about})" for f in exporter.FORMS)
        remedy = registry.nearest(name, list(known))
        raise error("--form", expected=expected, found=repr(name), remedy=remedy)
    return known[name]


def _way(workload: Workload, form: Form, name: str) -> PairWay:
    """Return the way of this name; WlgenError where no pin reaches a prefill rank on it."""
    of = engine(workload.manifest.cache.engine)
    known = {way.name: way for way in of.pairs}
    pinning = [way for way in of.pairs if way.pin_fields]
    if name not in known or not pinning:
        told = "; ".join(f"{way.name}: {way.about} ({way.source})" for way in of.pairs)
        expected = f"a way on which a pin reaches a prefill rank of {of.title}: {_names(pinning)}"
        raise error("--pair", expected=expected, found=repr(name), remedy=f"Known of {of.title}: {told}.")
    way = known[name]
    chat = workload.manifest.encoding.get("chat", True) and not form.completes
    route = "/v1/chat/completions" if chat else "/v1/completions"
    remedy = f"Use --pair {pinning[0].name}: {pinning[0].about}."
    if route not in way.routes:
        raise error("--pair", expected=f"a way that keeps a pin on {route}", found=way.about, remedy=remedy)
    if form.ids and not chat and not way.takes_ids:
        expected = "a way that takes token ids, or --form text"
        raise error("--pair", expected=expected, found=way.about, remedy=remedy)
    return way


def _names(ways: Sequence[PairWay]) -> str:
    return ", ".join(way.name for way in ways) or "none is known"


def _wanted(
    workload: Workload, splits: Sequence[str], ranks: Sequence[int], rounds: Sequence[int]
) -> list[SetFile]:
    """Return the files to export: seeds, then each round's checks and formal rows, by rank."""
    by_path = {f.path: f for f in workload.manifest.files}
    have = [
        SetFile(split=split, round=round_, rank=rank, proof=by_path[path])
        for split, round_ in in_order(workload.manifest.rounds or (0,))
        for rank in range(workload.manifest.dp_ranks)
        if (path := row_file(split, rank, round_)) in by_path
    ]
    for option, asked, known in (
        ("--split", splits, list(dict.fromkeys(f.split for f in have))),
        ("--round", rounds, sorted({f.round for f in have if f.split.each_round})),
        ("--rank", ranks, sorted({f.rank for f in have})),
    ):
        for value in asked:
            if value not in known:
                expected = f"one that the set has: {', '.join(map(str, known)) or 'none'}"
                raise error(option, expected=expected, found=str(value))
    wanted = [
        f
        for f in have
        if (not splits or f.split in splits)
        and (not ranks or f.rank in ranks)
        and (not rounds or f.split.within(f.round, rounds))
    ]
    if not wanted:
        found = "none for these splits and ranks"
        raise error(str(workload.folder), expected="rows to export", found=found)
    return wanted


def _target(workload: Workload, form: Form, out: Path, model: str, pair: PairWay | None) -> Target:
    tokenizer = b""
    if form.tokenizer:
        tokenizer = _tokenizer(workload)
    return Target(
        manifest=workload.manifest,
        form=form.name,
        folder=out.as_posix(),
        model=model,
        tokenizer=tokenizer,
        pair=pair,
    )


def _tokenizer(workload: Workload) -> bytes:
    """Return the set's tokenizer.json. The packaged tokenizer is recognised by its hash and not parsed."""
    from wlgen.encodings.deepseek_v4 import packaged_json  # noqa: PLC0415 (most forms do without)

    packaged = packaged_json()
    if hashlib.sha256(packaged).hexdigest() == workload.manifest.encoding["tokenizer_sha256"]:
        return packaged
    from wlgen.build.ready import load_encoding  # noqa: PLC0415 (the same)
    from wlgen.spec import file as spec_file  # noqa: PLC0415 (a small export takes twice the time with it)

    spec = spec_file.of_set(workload)
    return load_encoding(spec).tokenizer.to_str().encode()
