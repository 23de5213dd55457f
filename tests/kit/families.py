"""Small real tokenizers with chat templates, one for each family of models.

Each function writes a folder as a model repository has it (tokenizer.json, tokenizer_config.json) and returns
it. The vocabularies hold 1000 to 4000 tokens, the same on every run, among them most of the words below: with
a space in front, without, and capitalised. Templates are this project's own, in the manner of the family's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from wlgen.encodings.deepseek_v4 import packaged_tokenizer

WORDS = 1200
UNK = "<unk>"
BERT_UNK = "[UNK]"
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHARACTERS = [chr(code) for code in range(33, 127)]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

CHATML = """\
{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# Llama 3.2 writes today's date unless date_string is given.
LLAMA3 = """\
{{- bos_token }}
{%- if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' + system }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA2 = """\
{%- if messages[0]['role'] == 'system' %}
{%- set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}
{%- set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user, assistant') }}
{%- endif %}
{%- if message['role'] == 'user' %}
{{- bos_token + '[INST] ' + (system if loop.first else '') + message['content'].strip() + ' [/INST]' }}
{%- else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}"""

GEMMA = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

# The system prompt goes into the last user turn, so it is out of order where there are several.
MISTRAL = """\
{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] + '\\n\\n' %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- bos_token }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}
{{- '[INST] ' + (system if loop.last else '') + message['content'] + '[/INST]' }}
{%- else %}{{ ' ' + message['content'] | trim + eos_token }}{% endif %}
{%- endfor %}"""

# No special token anywhere: the seams are plain text.
PLAIN = """\
{%- for message in messages %}
{{- ('' if loop.first else '\\n') + '### ' + message['role'] | capitalize + ':\\n' + message['content'] }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '\\n### Assistant:\\n' }}{% endif %}"""

BERT = """\
{{- '[CLS]' }}
{%- for message in messages %}{{ message['role'] + ': ' + message['content'] + ' [SEP] ' }}{% endfor %}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"""


@cache
def words() -> tuple[str, ...]:
    """Return common English words, the most common first: whole words of the DeepSeek vocabulary."""
    vocabulary = packaged_tokenizer()[0].get_vocab(with_added_tokens=False)
    spaced = (t[1:] for t in sorted(vocabulary, key=vocabulary.__getitem__) if re.fullmatch("Ġ[a-z]{3,9}", t))
    return tuple([word for word in spaced if f"Ġ{word.capitalize()}" in vocabulary][:WORDS])


@cache
def training_text() -> tuple[str, ...]:
    """Return lines that hold each word as it stands after a space, at a line's start and capitalised."""
    lines = [f"{w.capitalize()} {w} {w} {w.capitalize()}\n{w} {w}\n" * 3 for w in words()]
    marks = 'The end.\nThe end.\n\n"No," said I; why? Yes! (a: b) [c/d] #1 2 3 4 5 6 7 8 9 0 <x> y-z\n'
    return (*lines, marks * 20)


def chatml(folder: Path, *, template: str | None = CHATML, **config: object) -> Path:
    """Qwen: byte-level BPE with GPT-4's pattern, no BOS, a default system message."""
    specials = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer"}
    return _write(folder, _chatml(), template, specials | config)


def llama3(folder: Path, *, template: str | None = LLAMA3, **config: object) -> Path:
    """Llama 3: byte-level BPE, BOS in the template and the post-processor, trim, a date."""
    specials = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    return _write(
        folder, _llama3(), template, specials | {"tokenizer_class": "PreTrainedTokenizerFast"} | config
    )


def llama2(folder: Path, *, template: str | None = LLAMA2, **config: object) -> Path:
    """Llama 2: SentencePiece BPE with byte fallback; the space before a body belongs to its first word."""
    specials = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "tokenizer_class": "LlamaTokenizer",
    }
    return _write(folder, _llama2(), template, specials | {"legacy": False, "add_bos_token": True} | config)


def gemma(folder: Path, *, template: str | None = GEMMA, **config: object) -> Path:
    """Gemma: SentencePiece BPE without a space in front, trim, no system role."""
    specials = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return _write(folder, _gemma(), template, specials | {"tokenizer_class": "GemmaTokenizer"} | config)


def mistral(folder: Path, *, template: str | None = MISTRAL, **config: object) -> Path:
    """Mistral v3: SentencePiece BPE, [INST] as special tokens, the system prompt in the last user turn."""
    specials = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return _write(
        folder, _mistral(), template, specials | {"tokenizer_class": "PreTrainedTokenizerFast"} | config
    )


def plain(folder: Path, *, template: str | None = PLAIN, **config: object) -> Path:
    """GPT-2: byte-level BPE with its own pattern, and a template of plain text."""
    specials = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    return _write(
        folder, _plain(), template, specials | {"tokenizer_class": "PreTrainedTokenizerFast"} | config
    )


def t5(folder: Path, *, template: str | None = PLAIN, **config: object) -> Path:
    """T5: Unigram with Metaspace; white space made one space; EOS from the post-processor."""
    specials = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return _write(folder, _t5(), template, specials | {"tokenizer_class": "PreTrainedTokenizerFast"} | config)


def bert(folder: Path, *, template: str | None = BERT, **config: object) -> Path:
    """BERT: lower-casing WordPiece, which drops white space and accents."""
    specials = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    return _write(
        folder, _bert(), template, specials | {"tokenizer_class": "PreTrainedTokenizerFast"} | config
    )


FAMILIES: dict[str, Callable[[Path], Path]] = {
    family.__name__: family for family in (chatml, llama3, llama2, gemma, mistral, plain, t5, bert)
}


def _write(folder: Path, tokenizer: str, template: str | None, config: dict[str, object]) -> Path:
    """Write a model folder; a template of None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    if template is not None:
        config = config | {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    return folder


def _special(tokens: Sequence[str]) -> list[AddedToken]:
    return [AddedToken(token, special=True, normalized=False) for token in tokens]


def _byte_level(specials: Sequence[str], pattern: str | None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, last])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens(_special(specials))
    return tokenizer


@cache
def _chatml() -> str:
    tokenizer = _byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], GPT4)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer.to_str()


@cache
def _llama3() -> str:
    names = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer = _byte_level(names, GPT4)
    bos = (names[0], tokenizer.token_to_id(names[0]))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    return tokenizer.to_str()


@cache
def _plain() -> str:
    return _byte_level(["<|endoftext|>"], None).to_str()


def _sentencepiece_bpe(specials: Sequence[str]) -> Tokenizer:
    """Train as SentencePiece does: merges never cross a space or a line; then take the pre-tokenizer away."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, fuse_unk=True, byte_fallback=True))
    lines = pre_tokenizers.Split("\n", "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [lines, pre_tokenizers.Metaspace(prepend_scheme="never")]
    )
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=[*specials, *BYTES], show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    fields = json.loads(tokenizer.to_str())
    fields["added_tokens"] = [t for t in fields["added_tokens"] if t["content"] in specials]
    fields["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(fields))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@cache
def _llama2() -> str:
    tokenizer = _sentencepiece_bpe(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


@cache
def _gemma() -> str:
    tokenizer = _sentencepiece_bpe(["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    return tokenizer.to_str()


@cache
def _mistral() -> str:
    tokenizer = _sentencepiece_bpe(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


@cache
def _t5() -> str:
    pieces = [f"▁{word}" for lower in words() for word in (lower, lower.capitalize())]
    scored = [*((piece, -8.0) for piece in pieces), *((mark, -12.0) for mark in ("▁", *CHARACTERS))]
    tokenizer = Tokenizer(models.Unigram([("<pad>", 0.0), ("</s>", 0.0), (UNK, 0.0), *scored], unk_id=2))
    tokenizer.normalizer = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(_special(["<pad>", "</s>", UNK]))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer.to_str()


@cache
def _bert() -> str:
    specials = ["[PAD]", BERT_UNK, "[CLS]", "[SEP]"]
    lower = [c for c in CHARACTERS if c == c.lower()]
    pieces = [*specials, *lower, *(f"##{c}" for c in lower), *words()]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=BERT_UNK))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(_special(specials))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer.to_str()
