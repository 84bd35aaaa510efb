"""Layers that a file may hold in another form: a tensor of all experts for one of each expert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.architectures.differences import Form, Misshapen, fits
from repokit.architectures.marks import MARK, marked

if TYPE_CHECKING:
    from repokit.architectures.comparison import Closer
    from repokit.architectures.member import Template
    from repokit.architectures.skeleton import Skeleton


def templates_of(skeleton: Skeleton) -> list[Template]:
    """Every template that has a tensor, once. By identity: to hash one costs more than 45,000 tensors allow."""
    every = skeleton.templates.values()
    return list(dict(zip(map(id, every), every, strict=True)).values())


class Scope(NamedTuple):
    """What two forms are chosen for: one layer. Text before its number, and the number; none: the whole model."""

    before: str
    number: str


WHOLE: Final = Scope("", "")


class SecondForm:
    """Layers in which converters of the loader accept another form: a tensor of all experts for one of each."""

    def __init__(self, closer: Closer, memory: Skeleton) -> None:
        self.closer, self.result, self.held = closer, closer.result, closer.held
        self.disk, self.memory = closer.skeleton, memory
        canonical = closer.names_of_skeleton.canonical
        on_disk = self._names(self.disk, canonical)
        in_memory = self._names(memory, canonical)
        common = set(on_disk.values()) & set(in_memory.values())
        self.only_on_disk = {name: spelled for name, spelled in on_disk.items() if spelled not in common}
        self.only_in_memory = {name: spelled for name, spelled in in_memory.items() if spelled not in common}

    @staticmethod
    def _names(skeleton: Skeleton, canonical: Callable[[str], str]) -> dict[str, str]:
        """Template name -> canonical name with marks."""
        return {template.name: canonical(marked(template.name)) for template in templates_of(skeleton)}

    def look(self) -> None:
        """Layers in the second form are compared with it; layers in both are torn."""
        self._shapes()
        if not self.result.unexpected or not self.only_in_memory:
            return
        wanted = self._expected(self.memory, self.only_in_memory)
        by_spelling = {self.closer.names_of_skeleton.canonical(name): name for name in wanted}
        found: dict[Scope, dict[str, str]] = {}  # skeleton's name -> file's name, by layer
        for name in self.result.unexpected:
            own = name if name in wanted else by_spelling.get(self.closer.spelled(name))
            if own is not None:
                found.setdefault(wanted[own], {})[own] = name
        if found:
            self._judge(found, wanted)

    def _shapes(self) -> None:
        """Tensors of one name in both forms and of another shape in the second: transposed ones."""
        shapes = self.memory.shapes
        self.result.misshapen = [
            wrong
            for wrong in self.result.misshapen
            if (second := shapes.get(wrong.name)) is None or not fits(wrong.held, second)
        ]

    def _expected(self, skeleton: Skeleton, only: Mapping[str, str]) -> dict[str, Scope]:
        """Every tensor that only one form has, with its layer."""
        return {
            name: self._scope(name, template.name, only[template.name])
            for name, template in skeleton.templates.items()
            if template.name in only
        }

    def _scope(self, name: str, template: str, spelled: str) -> Scope:
        head, brace, _ = template.partition("{")
        if not brace:
            return WHOLE
        return Scope(MARK.split(spelled, 1)[0], name[len(head) :].partition(".")[0])

    def _judge(self, found: Mapping[Scope, Mapping[str, str]], wanted: Mapping[str, Scope]) -> None:
        on_disk = self._expected(self.disk, self.only_on_disk)
        missing = set(self.result.missing)
        # By layer, as the file has them: what it holds of the form on disk.
        separate: dict[Scope, list[str]] = {}
        for name, scope in on_disk.items():
            if name not in missing and scope in found:
                separate.setdefault(scope, []).append(name)
        whole = {scope for scope in found if scope not in separate}
        explained = {name for own in found.values() for name in own.values()}
        self.result.unexpected = [name for name in self.result.unexpected if name not in explained]
        self.result.missing = [name for name in self.result.missing if on_disk.get(name) not in found]
        for scope in found:
            if scope in separate:
                self.result.torn += [*found[scope].values(), *separate[scope]]
        for own, scope in wanted.items():
            if scope in whole:
                self._held(own, found[scope].get(own))
        layers = set(on_disk.values())
        self.result.form = Form.MEMORY if whole and layers <= whole else Form.BOTH if whole else Form.DISK

    def _held(self, own: str, name: str | None) -> None:
        shape = self.memory.shapes[own]
        if name is None:
            self.result.missing.append(own)
        elif name != own:
            self.closer.take(name, own, shape)
        elif not fits(self.held[name], shape):
            self.result.misshapen.append(Misshapen(name, self.held[name], shape))
