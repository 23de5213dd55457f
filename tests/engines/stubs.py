"""Empty modules in place of the kernels and servers that an engine imports and a cache never calls."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any


class _Stub(type):
    """A class that stands for whatever is asked of it: a base class, a decorator, a constant."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _new(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]  # a decorator leaves what it decorates
        return super().__call__() if cls.__bases__ != (object,) else _new(cls.__name__)

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, _key: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __bool__(cls) -> bool:
        return False


def _new(name: str) -> Any:
    def start(*_args: Any, **_kwargs: Any) -> None:
        return None

    def any_schema(*_args: Any) -> Any:  # a pydantic model may name the class in a field
        return {"type": "any"}

    return _Stub(name, (), {"__init__": start, "__get_pydantic_core_schema__": any_schema})


class _Module(types.ModuleType):
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _new(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = set(names)

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> Any:
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, _module: types.ModuleType) -> None:
        return None


def stub(*names: str) -> None:
    """Let each top-level package of `names` import as an empty one, also where it is installed."""
    sys.meta_path.insert(0, _Finder(names))
