"""The person's own text: read, made safe, cut at any length, exact in every row, refused where it is bad."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import families, oracle, sets
from kit.verified import verify
from tokenizers import Tokenizer, processors

from wlgen.build.build import build
from wlgen.build.ready import load_encoding
from wlgen.build.recall import Recall, prompt_ids
from wlgen.encodings import Encoding, deepseek_v4, raw
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec
from wlgen.tasks import _corpus_files, _corpus_text, corpus
from wlgen.tasks._corpus_files import CorpusSource
from wlgen.text.lexicon import Chunk, Lexicon
from wlgen.workload.safe_text import Hygiene

# ruff: noqa: RUF001 (Chinese has its own punctuation)
CHINESE = (
    "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。",
    "道可道，非常道；名可名，非常名。无名天地之始，有名万物之母。",
    "我们把提示词切成固定大小的块，每一块的键值缓存都可以被后来的请求重复使用！",
    "2025年3月14日，团队在16张卡上测得每秒3.5万个词元，比上一版快了27.8%。",
    "“你见过这样的结果吗？”他问道，“为什么第1024个词元会丢失？”",
    "骰子落在鸵鸟旁边，苹果和癞蛤蟆都在池塘里；𠮷野家今天打折。",
    "编译时请使用 gcc -O2 main.c -o main，然后运行 ./main --help 查看帮助。",
    "　　学而时习之，不亦说乎？有朋自远方来，不亦乐乎？",
    "微积分告诉我们：∫x²dx = x³/3 + C（其中 C 为常数）。",
)
ENGLISH = (
    "The keeper of the lamp wrote every ship's name in a book, and read them aloud on winter evenings.",
    "Dr. Moss paid $1,250.75 for 3 engines; they weighed 42kg each!",
    'She asked: "Is it true?" - "It\'s not," he said (quietly).',
    "def area(width):\n    if width < 0:\n        raise ValueError('negative')\n    return width * height",
    "| page | tokens |\n|------|--------|\n| 1 | 128 |\n| 2 | 256 |",
)
PARAGRAPHS = 60


def mixed_text(sentences: tuple[str, ...], paragraphs: int = PARAGRAPHS) -> str:
    """Return paragraphs of the sentences in changing order."""
    orders = (np.random.Generator(np.random.PCG64(n)).permutation(len(sentences)) for n in range(paragraphs))
    return "\n\n".join(f"{n}. " + "".join(sentences[i] for i in order) for n, order in enumerate(orders))


TEXTS = {
    "chinese": mixed_text(CHINESE),
    "english": mixed_text(tuple(f"{s} " for s in ENGLISH)),
    "both": mixed_text((*CHINESE, *ENGLISH)),
}


@pytest.fixture(scope="module")
def deepseek() -> Encoding:
    return deepseek_v4.load(deepseek_v4.Options(), place="spec")


def corpus_of(encoding: Encoding, *texts: str) -> corpus.Corpus:
    return corpus.Corpus(
        CorpusSource(texts=texts, cut=False), Lexicon(encoding, 1), "spec.yaml:9 requests.task"
    )


def spec_in(folder: Path, task: dict[str, object], **changes: object) -> Spec:
    """Return a small spec that stands in a folder."""
    content = sets.content_of(**changes)
    content["requests"]["task"] = {"name": "corpus", **task}
    return spec_file.from_content(content, str(folder / "spec.yaml"))


def assert_whole(task: corpus.Corpus, encoding: Encoding, shared: Chunk, own: Chunk) -> None:
    """Encode a body of both parts with what compose puts around them, and compare with the promised ids."""
    lexicon, framing = task._lexicon, encoding.frame(("user",))
    start, mark = lexicon.start_leads.at(0)[0], lexicon.seconds[0]
    lead = lexicon.inner_leads.at(1)[0]
    body = start.text + mark.text + shared.text + lead.text + mark.text + own.text
    ids = [start.id, mark.id, *shared.ids.tolist(), lead.id, mark.id, *own.ids.tolist()]
    rendered = framing.texts[0] + body + framing.texts[-1]
    assert encoding.encode(rendered) == [*framing.ids[0], *ids, *framing.ids[-1]]


# --- Rows are exact -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("chinese", {"min_ratio": 0.5}), ("both", {"min_ratio": 0.5}), ("both", {"max_tokens": 0})],
)
def test_sets_of_the_deepseek_tokenizer_keep_every_promise(text, prefix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the first level of verify finds the corpus
    (tmp_path / "a.txt").write_text(TEXTS[text], encoding="utf-8")
    spec = spec_in(tmp_path, {"files": "a.txt"}, encoding={"name": "deepseek-v4"}, cached=prefix)
    workload = build(spec, tmp_path / "out").workload
    assert oracle.broken_promises(workload.folder) == []
    assert verify(workload, full=True).findings == verify(workload, full=False).findings == []


def test_a_set_whose_corpus_is_elsewhere_is_composed_nowhere_and_encoded_anywhere(tmp_path):
    (tmp_path / "a.txt").write_text(TEXTS["both"], encoding="utf-8")
    spec = spec_in(tmp_path, {"files": "a.txt"}, encoding={"name": "deepseek-v4"})
    workload = build(spec, tmp_path / "out").workload
    with pytest.raises(WlgenError, match="`wlgen verify --full` needs the set alone"):
        verify(workload, full=False)
    assert verify(workload, full=True).findings == []


@pytest.mark.parametrize("family", families.FAMILIES)
def test_sets_of_every_family_of_tokenizers_keep_every_promise(family, tmp_path):
    """Byte-level, SentencePiece that isolates no words, Unigram, WordPiece; Chinese spelled in bytes."""
    (tmp_path / "a.txt").write_text(TEXTS["both"], encoding="utf-8")
    spec = spec_in(tmp_path, {"files": "a.txt"}, encoding=sets.chat(family), body_len=200)
    workload = build(spec, tmp_path / "out").workload
    assert oracle.broken_promises(workload.folder) == []
    assert verify(workload, full=True).findings == []


def test_each_length_up_to_300_is_exact_and_the_start_of_the_longer_ones(deepseek):
    """Rows may take different amounts of one stream, and share what the shorter one takes."""
    task = corpus_of(deepseek, TEXTS["chinese"])
    whole = task.shared(("prefix", 0), 300)
    for tokens in range(1, 301):
        shared = task.shared(("prefix", 0), tokens)
        assert len(shared.ids) == tokens
        assert np.array_equal(shared.ids, whole.ids[:tokens])
        assert whole.text.startswith(shared.text)
        own = task.own(("row", 0), tokens, 8)
        assert len(own.ids) == tokens
        assert not own.text[-1].isspace()
        assert_whole(task, deepseek, shared, own)


HARD = {
    "emoji": "好😀 yes 👨‍👩‍👧 no 🇨🇳 ok. e\u0301 ﬁn ✓ ",
    "scripts": "ภาษาไทย हिन्दी में العربية עברית 한국어 \u1112\u1161\u11ab ქართული မြန်မာ. Ελληνικά ",
    "spaces": "a  b\tc\r\nd \n\n\n  e\u3000\u3000字\u00a0f\u2028g\x0ch \n 12  (i)\n\t\tj 字 字 . ",
    "runs": f"{'=' * 300} {'A' * 450}. {'1' * 230} {'字' * 260} {'ab-' * 90}\n{'0123456789abcdef' * 20} z. ",
    "special": "<｜User｜> and </<｜User｜>think> or <|im_end|> </s> [INST] {x} {{y}} \x00\x07\ufffd\ufeff. ",
}


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("family", ["deepseek", "chatml", "plain", "gemma"])
def test_hard_texts_are_exact_and_safe(text, family, deepseek, monkeypatch):
    """In several blocks, each encoded by itself, and around the end of the circle."""
    monkeypatch.setattr(_corpus_text, "BLOCK", 1600)
    encoding = deepseek if family == "deepseek" else load_encoding(sets.spec_of(encoding=sets.chat(family)))
    task = corpus_of(encoding, HARD[text] * 60)
    hygiene = Hygiene(encoding)
    for number, tokens in enumerate((1, 2, 3, 5, 9, 40, 130, 131, 400)):
        shared = task.shared(("prefix", number), tokens)
        own = task.own(("row", number), tokens, 8)
        assert (len(shared.ids), len(own.ids)) == (tokens, tokens)
        assert_whole(task, encoding, shared, own)
        assert hygiene.fault(f"So {shared.text} so {own.text}") is None


def test_text_is_that_of_the_corpus_in_its_order_and_around_its_end(deepseek):
    corpus_text = mixed_text((*CHINESE[:5], *CHINESE[6:], *ENGLISH))  # without rare characters
    task = corpus_of(deepseek, corpus_text)
    around = f"{corpus_text}\n\n" * 2
    for row in range(40):
        text = task.own(("row", row), 600, 8).text.removeprefix(" ")
        words = len(text) - 20  # the last ones may stand for white space
        assert text[:words] in around
        assert text[0].isalnum()


def test_rare_characters_of_several_tokens_are_left_out_and_common_words_stay(deepseek):
    """An apple is one token, though the character that it begins with is not."""
    task = corpus_of(deepseek, "苹果在这里，骰子不在。" * 3 + TEXTS["english"])
    text = task._circle.text(0, task._circle.characters)
    assert "苹果在这里，子不在。" in text
    assert "骰" not in text


def test_a_text_of_such_characters_keeps_them_and_words_end_what_cannot_be_cut():
    encoding = load_encoding(sets.spec_of())
    task = corpus_of(encoding, TEXTS["chinese"])
    shared = [task.shared(("prefix", n), 150) for n in range(12)]
    assert all(chunk.text.count("，") for chunk in shared)
    assert {chunk.text[-1].isascii() for chunk in shared} == {True, False}


def test_two_lengths_of_a_stream_that_cannot_be_cut_at_both_are_refused():
    """Rows of both would share fewer tokens than planned, and nothing but this would say so."""
    task = corpus_of(load_encoding(sets.spec_of()), TEXTS["chinese"])
    with pytest.raises(
        WlgenError, match=r"cut behind 150(, \d+)+ tokens, found a character of several tokens at the cut"
    ):
        [task.shared(("prefix", 0), tokens) for tokens in range(150, 160)]


def test_a_tokenizer_whose_offsets_leave_out_spaces_is_exact_too(tmp_path):
    folder = families.plain(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    encoding = raw.load(raw.Options(path=str(folder)), place="spec")
    task = corpus_of(encoding, TEXTS["english"])
    for tokens in (1, 7, 50, 200):
        assert_whole(task, encoding, task.shared(("p", tokens), tokens), task.own(("r", tokens), tokens, 8))


def test_another_random_seed_takes_other_text(deepseek):
    task = corpus_of(deepseek, TEXTS["english"])
    one, same, other = (task.own(("wlgen/1", seed, "row"), 80, 8).text for seed in (1, 1, 2))
    assert one == same != other


# --- Too little ---------------------------------------------------------------------------------------------


def test_a_corpus_must_hold_the_longest_stream_once(deepseek):
    task = corpus_of(deepseek, TEXTS["english"])
    tokens = task._circle.count_tokens()
    assert len(task.own(("row", 0), tokens - 8, 8).ids) == tokens - 8
    with pytest.raises(WlgenError) as caught:
        task.own(("row", 0), tokens + 8, 8)
    (problem,) = caught.value.problems
    assert problem.place == "spec.yaml:9 requests.task"
    assert f"at least {tokens + 8} tokens" in problem.expected
    assert problem.found == f"{tokens} tokens"
    assert "Add text" in problem.remedy


def test_a_corpus_of_a_few_words_is_too_little_not_unreadable(deepseek):
    with pytest.raises(WlgenError, match=r"at least 500 tokens.*found 3 tokens"):
        corpus_of(deepseek, "Hello world").shared(("p", 0), 500)


def test_text_that_the_tokenizer_does_not_know_is_none():
    task = corpus_of(load_encoding(sets.spec_of(encoding=sets.chat("bert"))), "春眠不觉晓" * 100)
    with pytest.raises(WlgenError, match="text that the tokenizer of chat-template knows, found none"):
        task.own(("row", 0), 5, 8)


# --- Builds -------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.glob("*/*")}


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    (tmp_path / "a.txt").write_text(TEXTS["english"], encoding="utf-8")
    return spec_in(tmp_path, {"files": "a.txt"})


def test_an_unchanged_spec_is_built_again_where_its_corpus_changed(spec, tmp_path):
    assert build(spec, tmp_path / "out").written == 6
    assert build(spec, tmp_path / "out").written == 0
    (tmp_path / "a.txt").write_text("Another start. " + TEXTS["english"], encoding="utf-8")
    assert build(spec, tmp_path / "out").written == 6
    (tmp_path / "a.txt").unlink()
    before = files_of(tmp_path / "out/small")
    with pytest.raises(WlgenError, match=r"found none at .*a\.txt"):
        build(spec, tmp_path / "out")
    assert files_of(tmp_path / "out/small") == before


def test_more_formal_rows_keep_the_first_and_one_rank_alone_is_the_same(spec, tmp_path):
    few = files_of(build(spec, tmp_path / "few").workload.folder)
    more = spec_in(tmp_path, {"files": "a.txt"}, formal={"total": 12})
    many = files_of(build(more, tmp_path / "many").workload.folder)
    assert all(many[path].startswith(content) for path, content in few.items())
    alone = files_of(build(spec, tmp_path / "alone", ranks=[1]).workload.folder)
    assert alone == {path: content for path, content in few.items() if "rank-01" in path}


def test_ids_are_recalled_with_the_corpus_and_encoded_without_it(spec, tmp_path, monkeypatch):
    workload = build(spec, tmp_path / "out").workload
    monkeypatch.chdir(tmp_path)  # where a.txt is found from
    assert Recall(workload)._ready
    recalled = [ids.tolist() for _, ids in prompt_ids(workload)]
    (tmp_path / "a.txt").write_text("Another text. " * 50, encoding="utf-8")
    assert Recall(workload)._ready is None
    (tmp_path / "a.txt").unlink()
    assert Recall(workload)._ready is None
    assert [ids.tolist() for _, ids in prompt_ids(workload)] == recalled


def test_rows_behind_the_first_are_proved_by_their_own_parts(spec, tmp_path):
    proof = build(spec, tmp_path / "out").workload.manifest.proof
    assert (proof["method"], proof["whole_rows"], proof["seams"]) == ("own parts", 7, 3)


@pytest.mark.parametrize(("calls", "at"), [(0, 0), (7, 0), (7, 40), (7, -1)])
def test_a_row_with_another_id_than_its_text_has_fails_the_build(calls, at, spec, tmp_path, monkeypatch):
    """The first row is proved whole, the last by its own part."""
    own, made = corpus.Corpus.own, []

    def wrong(self, stream, tokens, output_len):
        chunk = own(self, stream, tokens, output_len)
        chunk.ids[at] += len(made) == calls
        made.append(stream)
        return chunk

    monkeypatch.setattr(corpus.Corpus, "own", wrong)
    with pytest.raises(WlgenError, match="encodes to the planned ids"):
        build(spec, tmp_path / "out")
    assert len(made) > calls
    assert not (tmp_path / "out/small").exists()


# --- Sources ------------------------------------------------------------------------------------------------

ROWS = ("First text.\nIts second line.", "第二段文字。", "Third, {braced}.")


def write_sources(folder: Path) -> None:
    rows = [{"n": n, "body": text} for n, text in enumerate(ROWS)]
    lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    for number, text in enumerate(ROWS):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "a.jsonl").write_text(lines, encoding="utf-8")
    (folder / "list.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    (folder / "set").mkdir()
    (folder / "set/train.jsonl").write_text(lines, encoding="utf-8")


def read(folder: Path, **options: object) -> tuple[str, ...]:
    return corpus._source(corpus.Options(**options), "spec.yaml:9 requests.task", folder).texts


def test_every_format_gives_the_same_texts(tmp_path, monkeypatch):
    write_sources(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert read(tmp_path, files="[0-9].txt") == ROWS
    for name in ("a.jsonl", "list.json", "a.jsonl.gz", "a.parquet"):
        assert read(tmp_path, files=name, column="body") == ROWS, name
    assert read(tmp_path, dataset=str(tmp_path / "set"), column="body") == ROWS  # as a hub's is read


def test_files_stand_in_their_order_each_once_and_no_text_twice(tmp_path):
    write_sources(tmp_path)
    (tmp_path / "again.txt").write_text(ROWS[0], encoding="utf-8")
    (tmp_path / "blank.txt").write_text(" \n", encoding="utf-8")
    names = ["2.txt", "*.txt", str(tmp_path / "0.txt"), "set/../1.txt"]
    assert read(tmp_path, files=names) == (ROWS[2], ROWS[0], ROWS[1])


def test_a_name_with_brackets_is_a_name(tmp_path):
    (tmp_path / "a[1].txt").write_text("In brackets.")
    assert read(tmp_path, files="a[1].txt") == ("In brackets.",)


def test_columns_may_differ_from_file_to_file_and_missing_values_are_passed_over(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": null}\n{"n": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"n": 3, "text": "two"}\n')
    (tmp_path / "c.jsonl").write_text("")
    assert read(tmp_path, files="*.jsonl") == ("one", "two")


def test_a_large_corpus_is_read_as_far_as_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(_corpus_files, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(_corpus_files, "_LARGE", 400)
    (tmp_path / "a.txt").write_text("one line\n" * 200)
    (tmp_path / "b.txt").write_bytes(b"\xff")  # never reached
    source = corpus._source(corpus.Options(files=["a.txt", "b.txt"]), "spec.yaml", tmp_path)
    assert (source.texts, source.cut) == ((("one line\n" * 12)[:100],), True)


def test_the_hash_is_that_of_the_texts_not_of_their_files(tmp_path):
    write_sources(tmp_path)
    one, other, third = (
        corpus.content_sha256(corpus.Options(files=f, column=c), place="spec.yaml", folder=tmp_path)
        for f, c in (("[0-9].txt", "text"), ("a.parquet", "body"), ("[01].txt", "text"))
    )
    assert one == other != third


def test_local_files_leave_no_cache_behind_and_need_no_network(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    code = """
import socket
socket.socket.connect = socket.getaddrinfo = None
from pathlib import Path
from wlgen.tasks import corpus
print(corpus.content_sha256(corpus.Options(files="*.jsonl"), place="spec.yaml", folder=Path()))
"""
    (tmp_path / "home").mkdir()
    places = {"HOME": str(tmp_path / "home"), "HF_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-B", "-c", code]
    run = subprocess.run(
        command, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True, check=True
    )
    assert (len(run.stdout.strip()), run.stderr) == (64, "")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.jsonl", "home"]


BAD = {
    "no file": (
        {"files": "b.jsonl"},
        r"spec.yaml:9 requests.task.files: expected a file, found none at .*b.jsonl. Did",
    ),
    "folder": ({"files": "set"}, r"found a folder, .*set. Name its files, for example set/\*.jsonl"),
    "no text": (
        {"files": ["empty.txt", "empty.jsonl"]},
        "expected files with text, found 2 files without text",
    ),
    "column": ({"files": "a.jsonl"}, r"a.jsonl: expected the column text, found n, body. Name the column"),
    "near column": ({"files": "a.parquet", "column": "bodi"}, "found n, body. Did you mean 'body'"),
    "column of text": ({"files": "0.txt", "column": "body"}, "a text file has no columns"),
    "numbers": ({"files": "a.jsonl", "column": "n"}, "a.jsonl row 1: expected text in the column n, found 0"),
    "conversation": (
        {"files": "chat.jsonl", "column": "m"},
        "chat.jsonl row 1: .* found a list. Name a column",
    ),
    "not JSON": (
        {"files": "bad.jsonl"},
        "bad.jsonl:2: expected a JSON object on each line, found 'not json'",
    ),
    "binary": (
        {"files": ["0.txt", "bin.txt"]},
        "bin.txt:1: expected UTF-8 text, found the byte 0x80. Save it",
    ),
    "GBK": ({"files": "gbk.txt"}, "gbk.txt:1: expected UTF-8 text, found the byte 0xb4"),
    "not Parquet": ({"files": "bad.parquet"}, "bad.parquet: expected a Parquet file, found"),
    "no such set": ({"dataset": "SET", "split": "tset"}, "requests.task.dataset: .*Bad split: tset"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sources_are_said_in_the_words_of_the_file(case, tmp_path):
    write_sources(tmp_path)
    for name, content in {
        "empty.txt": b"",
        "empty.jsonl": b"",
        "chat.jsonl": b'{"m": [{"role": "user", "content": "x"}]}\n',
        "bad.jsonl": b'{"text": "x"}\nnot json\n',
        "bin.txt": b"\x80\x81" * 500,
        "gbk.txt": "春".encode("gbk"),
        "bad.parquet": b"PAR1 not",
    }.items():
        (tmp_path / name).write_bytes(content)
    options, said = BAD[case]
    options = options | ({"dataset": str(tmp_path / "set")} if "dataset" in options else {})
    with pytest.raises(WlgenError, match=said):
        read(tmp_path, **options)


def test_every_missing_file_is_said_at_once(tmp_path):
    with pytest.raises(WlgenError) as caught:
        read(tmp_path, files=["x.txt", "y/*.jsonl"])
    assert [p.found for p in caught.value.problems] == [
        f"none at {tmp_path / n}" for n in ("x.txt", "y/*.jsonl")
    ]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("{name: corpus}", "expected files or dataset, found neither"),
        ("{name: corpus, files: a.txt, dataset: b/c}", "expected files or dataset, found both"),
        ("{name: corpus, files: a.txt, split: train}", "task.split: expected split only with dataset"),
        ("{name: corpus, files: []}", "task.files: expected at least one file, found an empty list"),
        ("{name: corpus, file: a.txt}", "the unknown key 'file'. Did you mean 'files'"),
    ],
)
def test_options_that_contradict_are_refused_at_their_line(task, said):
    text = f"""\
name: x
cache: {{rule: sglang}}
requests:
  body_len: 100
  output_len: 1
  cached: {{max_tokens: 0}}
  task: {task}
splits: {{formal: {{total: 1}}}}
"""
    with pytest.raises(WlgenError, match=f"s.yaml:7 .*{said}"):
        spec_file.parse(text, "s.yaml")
