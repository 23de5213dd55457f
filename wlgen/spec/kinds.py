"""Kinds that a spec chooses by name: an encoding, a task or a cache rule, each with its own options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import PydanticKnownError, core_schema

from wlgen import cache_rules, encodings, engines, registry, tasks
from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.errors import WlgenError
from wlgen.pages import ceil_to
from wlgen.strict.model import Strict, key, refusal
from wlgen.strict.problems import clip
from wlgen.strict.validate import describe
from wlgen.workload.bounds import CachedTokens, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind chosen by name, with its options. {name: raw, path: DIR} is the kind raw with one option."""

    name: str
    options: BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleKind:
    """A chosen cache rule. content: the mapping that a spec would hold, {rule: sglang, page_size: 128}."""

    rule: CacheRule
    content: dict[str, Any]

    @property
    def written(self) -> str:
        """The content as one line of YAML: `rule: sglang, page_size: 128`."""
        return ", ".join(f"{key}: {json.dumps(value).strip(chr(34))}" for key, value in self.content.items())


def _known_engine(name: str) -> str:
    known = registry.names(engines)
    if name not in known:
        expected = " or ".join(map(repr, known))
        raise refusal(expected=expected, found=repr(name), remedy=registry.nearest(name, known))
    return name


EngineName = Annotated[str, AfterValidator(_known_engine)]


class EngineNumbers(Strict):
    """A cache rule given by an engine and its numbers: {engine: sglang, page_size: 128}."""

    engine: EngineName = key(
        "The engine whose way of reusing prefixes the numbers belong to.",
        example=registry.names(engines)[0],
    )
    page_size: Tokens = key("Tokens of one allocation page (vLLM: block).", unit="tokens", example="128")
    hit_quantum: Tokens | None = key(
        "Hits come only in multiples of hit_quantum. Left out, it is page_size; hybrid models need more.",
        unit="tokens",
        example="2048",
        default=None,
    )
    speculative: bool = key(
        "Whether EAGLE or MTP speculation is on, which costs some reuse.", example="true", default=False
    )
    sliding_window: CachedTokens = key(
        "The window of a model that mixes full and sliding-window attention; 0 for other models.",
        unit="tokens",
        example="4096",
        default=0,
    )
    retention: CachedTokens | None = key(
        "Tokens from one state that the engine keeps inside a hybrid model's prompt to the next (vLLM: "
        "--prefix-cache-retention-interval). Left out or 0, the engine keeps states only where prompts end.",
        unit="tokens",
        example="16384",
        default=None,
    )

    @model_validator(mode="after")
    def _whole_pages(self) -> EngineNumbers:
        quantum, page_size = self.hit_quantum, self.page_size
        if quantum is not None and quantum % page_size:
            expected = f"a multiple of page_size {page_size}"
            remedy = f"The next one is {ceil_to(quantum, page_size)}."
            raise refusal(expected=expected, found=str(quantum), remedy=remedy, key="hit_quantum")
        if self.retention and not engines.engine(self.engine).retains:
            found = f"{self.retention}, but {self.engine} has no such setting"
            raise refusal(expected="no retention, or 0", found=found, key="retention")
        if self.retention and self.retention % (quantum or page_size):
            expected = f"a multiple of hit_quantum {quantum or page_size}"
            remedy = f"The next one is {ceil_to(self.retention, quantum or page_size)}."
            raise refusal(expected=expected, found=str(self.retention), remedy=remedy, key="retention")
        return self

    def rule(self) -> CacheRule:
        """Return the rule, named by its engine."""
        numbers = self.model_dump(exclude_none=True) | {"hit_quantum": self.hit_quantum or self.page_size}
        return engines.cache_rule(RuleNumbers(name=self.engine, **numbers))


@dataclass(frozen=True, slots=True)
class KindKey:
    """Marks a key whose mapping chooses a kind of `folder`; the kind's own model checks its options.

    The folder is looked up when a spec is read, so that a new kind is one new file. chooser: the key that
    names the kind, such as `name` in {name: raw}.
    """

    folder: ModuleType
    chooser: str = "name"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Validate with `read`, and write a chosen kind as `content` says."""
        del source, handler
        written = core_schema.plain_serializer_function_ser_schema(self.content)
        return core_schema.no_info_plain_validator_function(self.read, serialization=written)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the mapping as any one of the kinds, each with its own options."""
        del schema, handler
        return {"anyOf": [self._schema(name, model) for name, model in self.models()]}

    def _schema(self, name: str, model: type[BaseModel]) -> dict[str, Any]:
        made = model.model_json_schema(by_alias=True)
        if made.pop("$defs", None):  # pydantic's way to say "any JSON value"; a schema allows that unasked
            for each in made["properties"].values():
                each.pop("additionalProperties", None)
        if name:
            chooser = {self.chooser: {"const": name, "description": made.get("description", "")}}
            made["properties"] = chooser | made.get("properties", {})
            made["required"] = [self.chooser, *made.get("required", [])]
        return made

    def models(self) -> Iterator[tuple[str, type[BaseModel]]]:
        """Yield the name of each kind and the model of its options."""
        for name in registry.names(self.folder):
            yield name, registry.load(self.folder, name, place=name).Options

    def model_of(self, value: Any) -> type[BaseModel] | None:
        """Return the model of the options of the kind that a mapping chooses, None where it chooses none."""
        name = value.get(self.chooser) if isinstance(value, dict) else None
        known = isinstance(name, str) and name in registry.names(self.folder)
        options: type[BaseModel] | None = (
            registry.load(self.folder, str(name), place="").Options if known else None
        )
        return options

    def read(self, value: Any) -> Any:
        """Return the kind that a mapping chooses, its options validated."""
        if isinstance(value, Kind):
            return value
        name, options = self._chosen(value)
        return Kind(name=name, options=self._options(name).model_validate(options))

    def content(self, kind: Any) -> dict[str, Any]:
        """Return how the manifest keeps a chosen kind."""
        return {self.chooser: kind.name, **kind.options.model_dump(mode="json", exclude_none=True)}

    def _options(self, name: str) -> type[BaseModel]:
        options: type[BaseModel] = registry.load(self.folder, name, place=name).Options
        return options

    def _chosen(self, value: Any) -> tuple[str, dict[str, Any]]:
        """Return the name of the kind that a mapping chooses, and its options."""
        known = registry.names(self.folder)
        if isinstance(value, str):
            remedy = self._from_text(value, known)
            raise refusal(expected="a mapping of keys", found=describe(value), remedy=remedy)
        if not isinstance(value, dict):
            raise PydanticKnownError("dict_type")
        options = dict(value)
        name = options.pop(self.chooser, None)
        if not isinstance(name, str):
            expected = f"the key {self.chooser} (one of {', '.join(known)}){self._alternative}"
            found = describe(name) if self.chooser in value else clip(", ".join(map(str, value))) or "no key"
            raise refusal(expected=expected, found=found, key=self.chooser)
        if name not in known:
            kind = self.folder.__name__.rsplit(".", 1)[-1].rstrip("s").replace("_", " ")
            expected, remedy = f"a known {kind}: {', '.join(known)}", registry.nearest(name, known)
            raise refusal(expected=expected, found=repr(clip(name)), remedy=remedy, key=self.chooser)
        return name, options

    @property
    def _alternative(self) -> str:
        return ""

    def _from_text(self, text: str, known: list[str]) -> str:
        """Return what to write in place of a bare name."""
        del known
        return f"Write {{{self.chooser}: {clip(text)}}}."


class EncodingKey(KindKey):
    """Chooses an encoding; {path: DIR}, a person's own tokenizer, needs no name and is a chat template."""

    __slots__ = ()

    def _chosen(self, value: Any) -> tuple[str, dict[str, Any]]:
        own = isinstance(value, dict) and "path" in value
        return super()._chosen({"name": "chat-template", **value} if own else value)

    def _schema(self, name: str, model: type[BaseModel]) -> dict[str, Any]:
        made = super()._schema(name, model)
        if name == "chat-template":
            made["required"] = [key for key in made["required"] if key != self.chooser]
        return made

    def model_of(self, value: Any) -> type[BaseModel] | None:
        """Return the model of the chosen encoding, which is the chat template where there is only a path."""
        own = isinstance(value, dict) and "path" in value
        return super().model_of({"name": "chat-template", **value} if own else value)

    @property
    def _alternative(self) -> str:
        return " or the key path"

    def _from_text(self, text: str, known: list[str]) -> str:
        if text in known:
            return super()._from_text(text, known)
        return "Write {path: DIR}, where DIR is a folder with the tokenizer.json of the model, or its hub id."


class RuleKey(KindKey):
    """Chooses a cache rule, by its name or by an engine and its numbers."""

    __slots__ = ()

    def read(self, value: Any) -> Any:
        """Return the rule that a mapping names, or that its engine and numbers make up."""
        if isinstance(value, RuleKind):
            return value
        if isinstance(value, dict) and "engine" in value:
            return self._by_numbers(value)
        name, options = self._chosen(value)
        model = self._options(name)
        for number in set(EngineNumbers.model_fields) & set(options) - set(model.model_fields):
            remedy = f"{number} goes with engine: write {{engine: sglang, page_size: 128, {number}: ...}}."
            expected = f"one of the keys {', '.join(model.model_fields)} beside rule: {name}"
            raise refusal(expected=expected, found=number, remedy=remedy, key=number)
        kind = Kind(name=name, options=model.model_validate(options))
        return RuleKind(rule=named_rule(kind), content=super().content(kind))

    def content(self, kind: Any) -> dict[str, Any]:
        """Return how the manifest keeps a rule."""
        written: dict[str, Any] = kind.content
        return written

    def model_of(self, value: Any) -> type[BaseModel] | None:
        """Return the model of the named rule's options, or of an engine's numbers."""
        by_numbers = isinstance(value, dict) and "engine" in value
        return EngineNumbers if by_numbers else super().model_of(value)

    def models(self) -> Iterator[tuple[str, type[BaseModel]]]:
        """Yield each named rule, and "" with the model of an engine's numbers."""
        yield from super().models()
        yield "", EngineNumbers

    def _by_numbers(self, value: dict[str, Any]) -> RuleKind:
        if "rule" in value:
            remedy = "Delete engine: the rule knows its engine."
            raise refusal(expected="rule or engine", found="both", remedy=remedy, key="engine")
        numbers = EngineNumbers.model_validate(value)
        rule = numbers.rule()
        return RuleKind(
            rule=rule, content=numbers.model_dump(exclude_none=True) | {"hit_quantum": rule.hit_quantum}
        )

    @property
    def _alternative(self) -> str:
        return " or the key engine"


def rule_kind(name: str, **options: Any) -> RuleKind:
    """Return a named rule with these options; its content holds only them, and no defaults."""
    model = registry.load(cache_rules, name, place="cache").Options
    rule = named_rule(Kind(name=name, options=model.model_validate(options)))
    return RuleKind(rule=rule, content={"rule": name, **options})


def named_rule(kind: Kind) -> CacheRule:
    """Return the cache rule of a chosen kind."""
    try:
        rule: CacheRule = registry.load(cache_rules, kind.name, place="cache").rule(
            kind.options, place="cache"
        )
    except WlgenError as failure:  # numbers that do not fit each other
        (problem,) = failure.problems
        raise refusal(expected=problem.expected, found=problem.found, remedy=problem.remedy) from failure
    return rule


EncodingKind: TypeAlias = Annotated[Kind, EncodingKey(encodings)]
TaskKind: TypeAlias = Annotated[Kind, KindKey(tasks)]
CacheKind: TypeAlias = Annotated[RuleKind, RuleKey(cache_rules, "rule")]
