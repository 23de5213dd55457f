"""The piecewise JSON reader against orjson, for any value, layout, chunk and cut."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wlgen.readers import _document
from wlgen.readers._document import Cut, Document

TEXT = st.text(alphabet='ab"\\[]{},: \né', max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-9, 10**9) | st.floats(0, 1) | TEXT
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXT, v, max_size=4), max_leaves=20
)


def walk(document):
    if document.is_a(b"{"):
        return {key: walk(document) for key in document.members()}
    if document.is_a(b"["):
        return [walk(document) for _ in document.items()]
    return document.value()


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(_document, "CHUNK", 3)


@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_any_document_is_read_back_piece_by_piece_and_whole(value, indent, ascii_only):
    content = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert walk(Document(io.BytesIO(content))) == value
    assert Document(io.BytesIO(content)).value() == value


@given(value=st.lists(VALUES, min_size=1, max_size=4), part=st.floats(0, 1, exclude_max=True))
def test_a_cut_document_raises_cut_and_nothing_else(value, part):
    content = json.dumps(value).encode()
    cut = content[: int(part * len(content))]
    for consume in (walk, Document.value, Document.skip):
        with pytest.raises(Cut):
            consume(Document(io.BytesIO(cut)))


@given(values=st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=4))
def test_documents_may_follow_each_other(values):
    document = Document(io.BytesIO(b"\n".join(json.dumps(v).encode() for v in values)))
    found = []
    while document.more():
        found.append(document.value())
    assert found == values
