"""Raw prompts: no framing, or the special tokens that a completions endpoint adds."""

from __future__ import annotations

import hashlib

import pytest
from kit import families
from transformers import AutoTokenizer

from wlgen.encodings import Message
from wlgen.encodings.deepseek_v4 import packaged_tokenizer
from wlgen.encodings.raw import Options, load
from wlgen.errors import WlgenError

ONE = ("user",)
BODIES = ["The river garden is quiet.", "write it down", "12 Ünder", "船出了港口。", 'One.\n\nTwo, "three"']
ADDED = {
    "llama3": (["<|begin_of_text|>"], []),
    "llama2": (["<s>"], []),
    "gemma": (["<bos>"], []),
    "mistral": (["<s>"], []),
    "chatml": ([], []),
    "plain": ([], []),
    "t5": ([], ["</s>"]),
    "bert": (["[CLS]"], ["[SEP]"]),
}


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", ADDED)
def test_prompt_ids_are_those_of_a_completions_endpoint(tmp_path, name, special):
    folder = families.FAMILIES[name](tmp_path)
    encoding = load(Options(path=str(folder), add_special_tokens=special), place="spec.yaml:3")
    loaded = AutoTokenizer.from_pretrained(folder)
    for body in BODIES:
        ids = loaded.encode(body, add_special_tokens=special)
        assert encoding.prompt_ids([Message("user", body)]) == ids


@pytest.mark.parametrize("name", ADDED)
def test_the_framing_is_what_the_post_processor_adds(tmp_path, name):
    folder = families.FAMILIES[name](tmp_path)
    bare = load(Options(path=str(folder)), place="spec.yaml:3").frame(ONE)
    assert (bare.texts, bare.ids) == (("", ""), ((), ()))
    encoding = load(Options(path=str(folder), add_special_tokens=True), place="spec.yaml:3")
    framing = encoding.frame(ONE)
    tokens = tuple([encoding.tokenizer.id_to_token(i) for i in ids] for ids in framing.ids)
    assert tokens == ADDED[name]
    assert encoding.render([Message("user", "The end")]) == "The end".join(framing.texts)


def test_the_default_tokenizer_is_deepseek_v4():
    encoding = load(Options(), place="spec.yaml:3")
    tokenizer, sha256 = packaged_tokenizer()
    assert encoding.tokenizer is tokenizer
    assert encoding.tokenizer_sha256 == sha256
    assert not encoding.chat
    assert encoding.frame(ONE).tokens == 0


def test_a_folder_needs_no_chat_template(tmp_path):
    folder = families.llama3(tmp_path, template=None)
    encoding = load(Options(path=str(folder)), place="spec.yaml:3")
    content = (folder / "tokenizer.json").read_bytes()
    assert encoding.tokenizer_sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("roles", [(), ("system", "user"), ("assistant",)])
def test_roles_are_refused(roles):
    with pytest.raises(WlgenError, match="a raw prompt has no roles"):
        load(Options(), place="spec.yaml:3").frame(roles)
