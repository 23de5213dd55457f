"""What a person gives an audit besides the client's results, and the servers' own records of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wlgen.audit.join import Rows
from wlgen.errors import Problem
from wlgen.readers import Result
from wlgen.witnesses import PrefillBatch, Scrape, ServedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a person gives besides the results. Files are (name, their values), to be read once.

    before, after: scrapes of counters before and after the run. pair: whether the person says that the run
    went through a prefill/decode pair; the roles in the scrapes say it too.
    """

    before: Scrape | None = None
    after: Scrape | None = None
    requests: Iterable[tuple[str, Iterable[ServedRequest | Problem]]] = ()
    logs: Iterable[tuple[str, Iterable[PrefillBatch | Problem]]] = ()
    pair: bool = False

    @property
    def is_pair(self) -> bool:
        """Whether the run went through a prefill/decode pair."""
        scrapes = [scrape for scrape in (self.before, self.after) if scrape is not None]
        return self.pair or any(s.role != "plain" for scrape in scrapes for s in scrape.servers)


@dataclass(kw_only=True, slots=True)
class RequestFiles:
    """What request files say. by_row: each row's records. others: requests that are no row of the set."""

    by_row: dict[str, list[ServedRequest]] = field(default_factory=dict)
    others: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    read: bool = False


def read_requests(rows: Rows, given: Given) -> RequestFiles:
    """Read the request files and assign each record to its row, by the row's id, else by the text or ids."""
    found = RequestFiles()
    by_prompt = {row.prompt_sha256: row for row in reversed(rows.all) if row.prompt_sha256}
    for _, records in given.requests:
        found.read = True
        for record in records:
            if isinstance(record, Problem):
                found.problems.append(record)
                continue
            row = rows.by_id.get(record.id or "")
            row = (
                row or by_prompt.get(record.prompt_sha256 or "") or rows.by_text.get(record.text_sha256 or "")
            )
            found.sums.update(_summed(record))
            if row is None:
                found.others += 1
            else:
                found.by_row.setdefault(row.id, []).append(record)
    return found


def as_results(found: RequestFiles) -> list[Result]:
    """Return the rows' records as results, for an audit without a client's file."""
    return [
        Result(
            place=record.place,
            id=row_id,
            text_sha256=record.text_sha256,
            success=record.success,
            error=record.error,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            output_tokens=record.output_tokens,
            finish_reason=record.finish_reason,
        )
        for row_id, records in found.by_row.items()
        for record in records
    ]


def _summed(record: ServedRequest) -> Mapping[str, int]:
    return {
        "requests": 1,
        "prompt_tokens": record.prompt_tokens or 0,
        "cached_tokens": record.cached_tokens or 0,
        "cached_told": int(record.cached_tokens is not None),
    }
