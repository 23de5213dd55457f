"""Chat templates of eight families, against transformers' own tokenizing apply_chat_template."""

from __future__ import annotations

import json
from functools import cache
from itertools import product

import pytest
import transformers
from kit import families
from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer

from wlgen.encodings import Message
from wlgen.encodings.chat_template import Options, load
from wlgen.encodings.deepseek_v4 import packaged_tokenizer
from wlgen.errors import WlgenError

PINNED = {"llama3": {"date_string": "26 Jul 2024"}}
ONE, SYSTEM = ("user",), ("system", "user")
TURNS, ALL = ("user", "assistant", "user"), ("system", "user", "assistant", "user")
CASES = [
    (name, roles)
    for name, roles in product(families.FAMILIES, (ONE, SYSTEM, TURNS, ALL))
    if not (name == "gemma" and "system" in roles) and not (name == "mistral" and roles == ALL)
]
BODIES = [
    "Seven ships left the harbor at dawn. None came back! Why?",
    "write it down",
    "Ünder the old trees, 12 of them",
    "2048 is a number; so is 4096.",
    "船出了港口。",
    'One paragraph here.\n\nAnother paragraph,\n- with a list\n- of "two" things',
    "Harbor: Near the river, the old farmer painted the bridge. " * 30 + "Done",
]


@pytest.fixture(scope="module")
def encodings(tmp_path_factory):
    """Return the encoding of a family's folder, and transformers' tokenizer of the same."""

    @cache
    def of(name):
        folder = families.FAMILIES[name](tmp_path_factory.mktemp(name))
        options = Options(path=str(folder), template_kwargs=PINNED.get(name, {}))
        return load(options, place="spec.yaml:3"), AutoTokenizer.from_pretrained(folder)

    return of


def reference(loaded, messages, **kwargs: object):
    """Return the ids that a server gives a conversation."""
    dicts = [m._asdict() for m in messages]
    return loaded.apply_chat_template(dicts, add_generation_prompt=True, return_dict=False, **kwargs)


def conversations(roles):
    """Yield conversations in which each body takes each place, with different neighbours."""
    for shift in range(len(BODIES)):
        yield [Message(role, BODIES[(shift + 2 * n) % len(BODIES)]) for n, role in enumerate(roles)]


def bodies_between(framing, ids):
    """Return the ids between the gaps, each gap found at its first place from the left."""
    found = []
    position = len(framing.ids[0])
    assert tuple(ids[:position]) == framing.ids[0]
    for gap in framing.ids[1:-1]:
        start = next(n for n in range(position + 1, len(ids)) if tuple(ids[n : n + len(gap)]) == gap)
        found.append(ids[position:start])
        position = start + len(gap)
    stop = len(ids) - len(framing.ids[-1])
    assert tuple(ids[stop:]) == framing.ids[-1]
    return [*found, ids[position:stop]]


@pytest.mark.parametrize(("name", "roles"), CASES)
def test_prompt_ids_are_what_transformers_gives_a_server(encodings, name, roles):
    encoding, loaded = encodings(name)
    for messages in conversations(roles):
        assert encoding.prompt_ids(messages) == reference(loaded, messages, **PINNED.get(name, {}))


@pytest.mark.parametrize(("name", "roles"), CASES)
def test_rendered_text_is_the_gaps_with_the_contents_between(encodings, name, roles):
    encoding, _ = encodings(name)
    texts = encoding.frame(roles).texts
    for messages in conversations(roles):
        bodies = [*(m.content for m in messages), ""]
        assert encoding.render(messages) == "".join(t + b for t, b in zip(texts, bodies, strict=True))


@pytest.mark.parametrize(("name", "roles"), CASES)
def test_prompt_ids_are_the_gaps_with_something_of_the_body_alone_between(encodings, name, roles):
    """What stands between two gaps is the same whatever the other messages are."""
    encoding, _ = encodings(name)
    framing = encoding.frame(roles)
    assert all(framing.ids[1:-1])
    seen = {}
    for messages in conversations(roles):
        for number, part in enumerate(bodies_between(framing, encoding.prompt_ids(messages))):
            assert part
            key = (number, messages[number].content)
            assert seen.setdefault(key, part) == part
        if any(gap in m.content for gap in framing.texts[1:-1] for m in messages):
            continue  # "\n\n" in a body looks like the gap
        other = [Message(m.role, "A quite different text.") for m in messages[:-1]] + messages[-1:]
        last = bodies_between(framing, encoding.prompt_ids(other))[-1]
        assert last == seen[len(roles) - 1, messages[-1].content]


@pytest.mark.parametrize("name", ["llama2", "llama3", "gemma", "mistral", "bert"])
def test_the_bos_that_a_template_writes_is_one_special_token(encodings, name):
    encoding, loaded = encodings(name)
    assert encoding.frame(ONE).ids[0][0] == (loaded.cls_token_id if name == "bert" else loaded.bos_token_id)


def tokens(encoding, ids):
    return [encoding.tokenizer.id_to_token(i) for i in ids]


def test_the_space_after_inst_belongs_to_the_first_word(encodings):
    """Llama 2: "[INST] " + "the" is "]" "▁the"; a head that ended with "▁" would promise a token too many."""
    encoding, _ = encodings("llama2")
    head, _ = encoding.frame(ONE).ids
    assert tokens(encoding, head)[-1] == "]"
    assert tokens(encoding, encoding.prompt_ids([Message("user", "the end")]))[len(head)] == "▁the"


def test_the_default_system_message_is_in_the_head(encodings):
    encoding, _ = encodings("chatml")
    framing = encoding.frame(ONE)
    assert "Be helpful." in framing.texts[0]
    assert len(framing.ids[0]) > len(encoding.frame(SYSTEM).ids[0])


def test_the_encoding_is_transformers_where_that_differs_from_tokenizer_json(encodings, tmp_path):
    """LlamaTokenizer replaces the file's normalizer, which writes a space behind <s> too."""
    encoding, loaded = encodings("llama2")
    folder = families.llama2(tmp_path)
    from_file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "<s>[INST] The end [/INST]"
    ids = loaded.encode(text, add_special_tokens=False)
    assert encoding.encode(text) == ids
    if int(transformers.__version__.partition(".")[0]) >= 5:  # 4 keeps the file's normalizer
        assert from_file.encode(text, add_special_tokens=False).ids != ids


def test_cutting_and_padding_of_the_file_are_off(tmp_path):
    folder = families.chatml(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(folder / "tokenizer.json"))
    encoding = load(Options(path=str(folder)), place="spec.yaml:3")
    messages = [Message("user", BODIES[-1])]
    assert len(encoding.prompt_ids(messages)) > 300
    assert encoding.prompt_ids(messages) == reference(AutoTokenizer.from_pretrained(folder), messages)


def test_requests_carry_the_template_kwargs(encodings):
    assert encodings("llama3")[0].server_kwargs == PINNED["llama3"]
    assert encodings("chatml")[0].server_kwargs == {}


def test_template_kwargs_change_the_framing(tmp_path):
    template = (
        families.CHATML + "{% if enable_thinking is defined and not enable_thinking %}<think>\n{% endif %}"
    )
    folder = str(families.chatml(tmp_path, template=template))
    thinking = load(Options(path=folder), place="spec.yaml:3").frame(ONE)
    silent = load(
        Options(path=folder, template_kwargs={"enable_thinking": False}), place="spec.yaml:3"
    ).frame(ONE)
    assert silent.texts[1] == thinking.texts[1] + "<think>\n"
    assert silent.tokens > thinking.tokens


def test_unknown_template_kwargs_are_refused_all_at_once_with_the_nearest_name(tmp_path):
    folder = families.llama3(tmp_path)
    kwargs = {"date_strng": "26 Jul 2024", "add_generation_prompt": False}
    with pytest.raises(WlgenError) as refusal:
        load(Options(path=str(folder), template_kwargs=kwargs), place="spec.yaml:3 encoding")
    first, second = str(refusal.value).split("\n")
    assert first.startswith("spec.yaml:3 encoding.template_kwargs.date_strng: ")
    assert first.endswith("Did you mean 'date_string'?")
    assert "an argument that servers set" in second


def refusal(folder, roles=ONE):
    encoding = load(Options(path=str(folder)), place="spec.yaml:3")
    with pytest.raises(WlgenError) as caught:
        encoding.frame(roles)
    return str(caught.value)


def test_a_template_that_writes_todays_date_is_refused_until_it_is_pinned(tmp_path):
    folder = families.llama3(tmp_path)
    message = refusal(folder)
    assert "tomorrow no token behind it would be shared" in message
    assert 'template_kwargs: {date_string: "26 Jul 2024"}' in message


def test_a_date_in_a_part_that_is_not_written_does_no_harm(tmp_path):
    """The default system message of Mistral holds a date; with a system message of one's own it is unused."""
    template = (
        "{% set today = strftime_now('%d %B') %}"
        "{% if messages[0]['role'] != 'system' %}Today is {{ today }}.\n{% endif %}" + families.PLAIN
    )
    folder = families.plain(tmp_path, template=template)
    assert "Pin it by a variable" in refusal(folder)
    load(Options(path=str(folder)), place="spec.yaml:3").frame(SYSTEM)


def test_a_role_that_the_template_raises_on_is_refused_in_its_words(tmp_path):
    message = refusal(families.gemma(tmp_path), SYSTEM)
    assert "takes the roles system, user, found one that fails: System role not supported" in message


def test_a_system_message_written_out_of_order_is_refused(tmp_path):
    assert "writes message 2 of 4 (user) before message 1 of 4 (system)" in refusal(
        families.mistral(tmp_path), ALL
    )


HOSTILE = {
    "writes the text of message 1 of 1 (user) 2 times": "{{ content }}\nRead it again: {{ content }}",
    "leaves out or changes the text of message 1 of 1": "Q: {{ content | lower }}",
    "writes other text around message 1 of 1 (user)": "{{ content | length }} letters: {{ content }}",
    "writes other text around message 1 of 1": "{{ 'Long. ' if content | length > 500 }}{{ content }}",
    "cuts or changes the text of message 1 of 1": "Q: {{ content[:5000] }}",
    "cuts or changes the text of message 1 of 1 (user)": "{{ content | replace('\\n\\n', '\\n') }}",
    "takes the roles user, found one that fails": "{{ content.nothing.here }}",
    "found one that fails: unexpected '}'": "{{ content }",
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_a_template_without_fixed_text_is_refused_with_the_reason(tmp_path, reason):
    folder = families.plain(tmp_path, template="{% set content = messages[0]['content'] %}" + HOSTILE[reason])
    assert reason in refusal(folder)


def test_an_answer_whose_text_the_template_drops_is_refused(tmp_path):
    template = families.PLAIN.replace("message['content']", "(message['content'] if loop.last else '...')")
    assert "leaves out or changes the text of message 1 of 3" in refusal(
        families.plain(tmp_path, template=template), TURNS
    )


def test_reasoning_that_is_cut_from_answers_does_no_harm(tmp_path):
    """Qwen3 and DeepSeek R1 keep what stands behind </think>; bodies hold no such text."""
    template = families.CHATML.replace("message['content'] ", "message['content'].split('</think>')[-1] ")
    folder = families.chatml(tmp_path, template=template)
    assert load(Options(path=str(folder)), place="spec.yaml:3").frame(TURNS).tokens > 0


def test_a_template_that_ignores_the_generation_prompt_works(tmp_path):
    template = families.CHATML.split("{%- if add_generation_prompt")[0]
    encoding = load(Options(path=str(families.chatml(tmp_path, template=template))), place="spec.yaml:3")
    assert tokens(encoding, encoding.frame(ONE).ids[1]) == ["<|im_end|>", "Ċ"]


def test_a_template_without_anything_after_the_body_works(tmp_path):
    encoding = load(
        Options(path=str(families.plain(tmp_path, template="Q: {{ messages[0]['content'] }}"))),
        place="spec.yaml:3",
    )
    assert encoding.frame(ONE).ids[1] == ()


def test_a_template_that_trims_a_list_of_parts_otherwise_is_refused(tmp_path):
    """VLLM hands such a template a list of parts where SGLang hands it the string."""
    template = (
        "{% set content = messages[0]['content'] %}{% if content is string %}Q: {{ content }}\n"
        "{% else %}Q: {% for part in content %}{{ part['text'] }}{% endfor %} {% endif %}A:"
    )
    assert "differently when it is a list of parts" in refusal(families.plain(tmp_path, template=template))


def test_a_template_that_writes_parts_alike_works(tmp_path):
    template = (
        "{% set content = messages[0]['content'] %}Q: {% if content is string %}{{ content }}"
        "{% else %}{% for part in content %}{{ part['text'] }}{% endfor %}{% endif %}{{ '\\nA:' }}"
    )
    encoding = load(Options(path=str(families.plain(tmp_path, template=template))), place="spec.yaml:3")
    assert encoding.frame(ONE).texts == ("Q: ", "\nA:")


@pytest.mark.parametrize("where", ["jinja file", "named default", "config"])
def test_the_template_is_found_where_models_keep_it(tmp_path, where):
    folder = families.chatml(tmp_path, template=families.CHATML if where == "config" else None)
    if where == "jinja file":
        (folder / "chat_template.jinja").write_text(families.CHATML)
    if where == "named default":
        named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": families.CHATML}]
        config = json.loads((folder / "tokenizer_config.json").read_text()) | {"chat_template": named}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    framing = load(Options(path=str(folder)), place="spec.yaml:3").frame(ONE)
    assert framing.texts[1] == "<|im_end|>\n<|im_start|>assistant\n"


def test_a_folder_without_a_template_names_raw_and_the_missing_file(tmp_path):
    folder = families.chatml(tmp_path, template=None)
    with pytest.raises(
        WlgenError, match=r"with a chat template, found none.*jinja.*\{name: raw, path: ...\}"
    ):
        load(Options(path=str(folder)), place="spec.yaml:3")


def test_the_folder_of_deepseek_v4_which_has_no_template_names_its_encoding(tmp_path):
    tokenizer, _ = packaged_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(WlgenError, match=r"found none. For DeepSeek V4 write \{name: deepseek-v4\}"):
        load(Options(path=str(tmp_path)), place="spec.yaml:3")


@pytest.mark.parametrize("swallowed", ["rstrip", "lstrip"])
def test_special_tokens_may_swallow_the_white_space_beside_them(tmp_path, swallowed):
    """Phi-3 ends its role tokens with a line break, which its tokenizer drops."""
    folder = families.chatml(
        tmp_path, template="{{ '<|user|>\\n' + messages[0]['content'] + '\\n<|end|>\\n' }}"
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    marks = [AddedToken(mark, **{swallowed: True}) for mark in ("<|user|>", "<|end|>")]
    tokenizer.add_special_tokens(marks)
    tokenizer.save(str(folder / "tokenizer.json"))
    encoding = load(Options(path=str(folder)), place="spec.yaml:3")
    gaps = [tokens(encoding, ids) for ids in encoding.frame(ONE).ids]
    # In front of the lstrip token the line break is gone; else it joins a full stop, or stands alone.
    assert gaps == [
        ["<|user|>"] + ["Ċ"] * (swallowed == "lstrip"),
        ["<|end|>"] + ["Ċ"] * (swallowed == "lstrip"),
    ]


def test_named_templates_without_a_default_are_listed(tmp_path):
    folder = families.chatml(tmp_path, template=None)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "rag", "template": "x"}, {"name": "tool_use", "template": "y"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(WlgenError, match="templates named rag, tool_use, and no default"):
        load(Options(path=str(folder)), place="spec.yaml:3")


def test_a_conversation_of_no_message_is_refused(encodings):
    with pytest.raises(WlgenError, match=r"takes the roles \(none\)"):
        encodings("chatml")[0].frame(())
