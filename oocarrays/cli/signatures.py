"""Commands from functions: names, types, defaults and help of options come from signatures and docstrings.

    @command(compare)                                      oocarrays compare A B
    def compare_command(a: str, b: str, *,
                        json: bool = False, **how): ...    [--json] [--rtol NUMBER] …, of the parameters of `compare`

    parameter                  option                      parameter                   option
    a: str                     A                           json: bool = False          --json
    disks: list[str] = ()      [DISK ...]                  skipna: bool = True         --no-skipna
    *, ranks: int              --ranks N, required         method: Literal["a", "b"]   --method {a,b}
    *, keep: list[str] = ()    --keep ARRAY, repeated      in `KINDS`                  as the table says
    resources: Resources       those that it takes         target: Target, results     likewise

Help is the text of the command's own docstring, of `KINDS`, or the first sentence of the function's docstring.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from oocarrays.cli.options import KINDS, Kind, number, whole
from oocarrays.options.given import Resources, Target, nested, resources_taken
from oocarrays.options.shapes import Results

Empty = inspect.Parameter.empty


def command(
    *calls: Callable[..., Any],
    leave_out: tuple[str, ...] = (),
    stopped: Callable[[argparse.Namespace], str] = lambda options: "",
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function whose ``**`` stands for the parameters by name of ``calls``."""
    return lambda act: Command(act, calls, frozenset(leave_out), stopped)


def taken(how: dict[str, Any], call: Callable[..., Any]) -> dict[str, Any]:
    """Remove the arguments by name of a function from others, and return them."""
    by_name = [each.name for each in inspect.signature(call).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return {name: how.pop(name) for name in by_name if name in how}


def asked(call: Callable[..., Any], target: Any, how: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the target and the arguments by name of a function, with typed ones in their `Target` and `Resources`."""
    rest = dict(how)
    names = [each.name for each in fields(Results)] if "results" in inspect.signature(call).parameters else []
    results = {name: rest.pop(name) for name in names if name in rest}
    to, rest = nested(call, target, rest)
    return to, rest | ({"results": Results(**results)} if results else {})


@dataclass(frozen=True)
class Command:
    act: Callable[..., Any]
    """Function that does the work, and returns an exit code or None."""
    calls: tuple[Callable[..., Any], ...]
    """Functions whose parameters it passes on; of parameters with the same name, the last one counts."""
    leave_out: frozenset[str]
    """Parameters that have no option."""
    stopped: Callable[[argparse.Namespace], str]
    """Function that returns the next step after an interruption, as text."""

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        texts = documented(self.act)
        own = {each.name: each for each in _of(self.act, texts, own=True)}
        passed = {each.name: each for call in self.calls for each in _of(call, texts)}
        more = {name: each for name, each in passed.items() if name not in own and name not in self.leave_out}
        last = ("draw", "dry_run", "json", "quiet")
        return tuple(sorted((own | more).values(), key=lambda each: each.name in last))

    @property
    def flags(self) -> Mapping[str, str]:
        return {each.name: each.flags[0] for each in self.parameters if not each.is_positional}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.description = (inspect.getdoc(self.act) or "").partition("\n")[0] or parser.description
        for each in self.parameters:
            each.add_option(parser)
        parser.set_defaults(run=self)

    def __call__(self, options: argparse.Namespace) -> int:
        return int(self.act(**{each.name: each.value(options) for each in self.parameters}) or 0)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """Parameter of a function, and its option."""

    name: str
    annotation: str
    default: Any
    is_positional: bool
    text: str
    """Help, from a docstring; empty without one."""
    kind: Kind

    def add_option(self, parser: argparse.ArgumentParser) -> None:
        how = self._how()
        if self.is_positional:
            parser.add_argument(self.name, **how)
        else:
            parser.add_argument(*self.flags, dest=self.name, required=self.default is Empty, **how)

    def value(self, options: argparse.Namespace) -> Any:
        given = getattr(options, self.name)
        return given if self.kind.collect is None else self.kind.collect(given)

    @property
    def flags(self) -> tuple[str, ...]:
        plain = self.name.rstrip("_").replace("_", "-")
        return self.kind.flags or (f"--no-{plain}" if self.default is True else f"--{plain}",)

    def _how(self) -> dict[str, Any]:
        if self.annotation.startswith("bool"):
            return {"action": "store_false" if self.default is True else "store_true", "help": self._help("")}
        choices = self.kind.choices or (() if self.kind.parse else _choices(self.annotation))
        listed = self.annotation.startswith("list")
        is_list = self.kind.repeat or listed
        parse = None if listed else self.kind.parse
        how: dict[str, Any] = {"type": parse or _parser(self.annotation, choices), "help": self._help()}
        if choices:
            how["choices"] = choices
        else:
            usual = {whole: "N", number: "NUMBER"}.get(how["type"], self.name.rstrip("_").upper())
            how["metavar"] = self.kind.metavar or usual
        if is_list and (self.is_positional or self.kind.several):
            return how | {"nargs": "*" if self.is_positional and self.default is not Empty else "+", "default": []}
        if is_list:
            return how | {"action": "append", "default": []}
        return how if self.default is Empty else how | {"default": self.default}

    def _help(self, default: str | None = None) -> str:
        shown = self.default if default is None else default
        plain = shown in (None, Empty, "", ()) or "(default" in self.text
        return (self.text if plain else f"{self.text} (default: {shown})").replace("%", "%%")


def _of(call: Callable[..., Any], texts: Mapping[str, tuple[str, str]], *, own: bool = False) -> Iterator[Parameter]:
    """Yield the parameters of a function; those without a keyword only of the command's own function."""
    others = documented(call)
    for each in _flat(call, others):
        by_place = each.kind is each.POSITIONAL_OR_KEYWORD
        if each.kind is each.KEYWORD_ONLY or (by_place and (own or each.default is not Empty)):
            kind, (metavar, text) = KINDS.get(each.name, Kind()), texts.get(each.name, ("", ""))
            kind = kind._replace(metavar=metavar or kind.metavar)
            text = text or kind.help or _first(others.get(each.name, ("", ""))[1])
            yield Parameter(
                name=each.name, annotation=str(each.annotation), default=each.default, is_positional=own and by_place,
                text=text, kind=kind,
            )  # fmt: skip


def _flat(call: Callable[..., Any], texts: dict[str, tuple[str, str]]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function, and instead of nested ones their fields, whose texts are added."""
    found = inspect.signature(call).parameters
    yield from (each for name, each in found.items() if name not in ("resources", "results"))
    kinds = (Target, getattr(call, "target", ())), (Resources, resources_taken(call))
    takes_results = ((Results, [each.name for each in fields(Results)]),) if "results" in found else ()
    for kind, names in (*(kinds if "resources" in found else kinds[:1]), *takes_results):
        texts |= {name: text for name, text in documented(kind).items() if name not in found}
        for each in fields(kind):
            if each.name in names and each.name not in found:
                annotation, by_name = each.type, inspect.Parameter.KEYWORD_ONLY
                yield inspect.Parameter(each.name, by_name, default=each.default, annotation=annotation)


def documented(call: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """Return metavar and text of parameters in a docstring: ``name: text``, ``name METAVAR: text``, or as numpydoc."""
    head, _, below = (inspect.getdoc(call) or "").partition("\nParameters\n----------\n")
    section = re.split(r"\n\n\w+\n-+\n", below)[0]
    entries = re.findall(r"^(\w+(?: [^a-z ]\S*)?): (.*(?:\n +.*)*)", head, re.MULTILINE)
    entries += re.findall(r"^(\w[^:\n]*)(?: : .*)?\n((?: +.*\n?|\n)+)", section, re.MULTILINE)
    each = ((name.strip().partition(" "), text) for names, text in entries for name in names.split(","))
    return {name: (metavar, _plain(text)) for (name, _, metavar), text in each}


def _plain(text: str) -> str:
    line = " ".join(text.replace("`", "").split()).removesuffix(".")
    return line if line[1:2].isupper() or line.startswith("Dask") else line[:1].lower() + line[1:]


def _first(text: str) -> str:
    """Return the first sentence of a text, with its default in brackets."""
    sentence, _, rest = text.partition(". ")
    default = re.search(r"(?:^|; )[Bb]y default,? ([^.]*)", f"; {rest}" if rest.startswith("By default") else sentence)
    bare = re.sub(r"; by default.*", "", sentence)
    return f"{bare} (default: {default[1]})" if default else bare


def _choices(annotation: str) -> tuple[Any, ...]:
    """Return the values of an annotation such as ``Literal["a", "b"] | None``."""
    found = re.match(r"Literal(\[.*?\])", annotation)
    return tuple(ast.literal_eval(found[1])) if found else ()


def _parser(annotation: str, choices: Sequence[Any]) -> Callable[[str], Any]:
    if re.search(r"\bstr\b", annotation):
        return str
    if annotation.startswith("int") or (choices and isinstance(choices[0], int)):
        return whole
    return number if annotation.startswith("float") else str
