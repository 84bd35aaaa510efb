"""Derives one config class: samples, fit, completion, verification with counterexamples, and the record of it all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import transformers

from repokit.architectures.deriver.building import Sample
from repokit.architectures.deriver.classes import config_class, source_hash
from repokit.architectures.deriver.completing import Completing, all_keys, closure
from repokit.architectures.deriver.composition import completed
from repokit.architectures.deriver.facts import facts, kinds
from repokit.architectures.deriver.features import Features
from repokit.architectures.deriver.fields import effective, keyword_arguments
from repokit.architectures.deriver.fitting import Fitted, Fitter
from repokit.architectures.deriver.hints import RULES
from repokit.architectures.deriver.sampling import Sampler
from repokit.architectures.deriver.tracing import traced
from repokit.architectures.deriver.truth import Refused, Shape, truth
from repokit.architectures.deriver.verifying import Verdict, demoted, hold, pattern, readings
from repokit.architectures.grammar import INDICES, NotInGrammar, expression
from repokit.architectures.member import FORMAT, ConfigFacts, Evidence, blocks, parsed
from repokit.architectures.names import Names

FRESH: Final = 24  # configs that a class must be exact on
FEWEST: Final = 20
ROUNDS: Final = 3
MEMORY: Final = "#memory"  # after a class's name: the form that the model holds in memory
MOST_MEMORY: Final = 60  # samples whose form in memory is looked at
TRACED: Final = 8  # samples whose construction is traced


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds of processor time: for exploring (at least), for fitting one class, for one set of fresh configs.

    Attributes:
        patient: Explore as long as the type's classes need.
        singly: Derive the classes that are not verified yet one by one.
    """

    explore: float = 5.0
    fit: float = 4.0
    fresh: float = 10.0
    patient: bool = False
    singly: bool = False


@dataclass
class Derivation:
    """One config class under derivation.

    Attributes:
        document: The member, once `run` has returned.
        log: Per class what is unknown, what was wrong, and how long it took.
    """

    config_name: str
    class_names: Sequence[str]
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    log: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """The member document of the type, with every class that could be derived.

        Raises:
            Underivable: The type has no config that can be built here.
        """
        start = time.process_time()
        self.sampler = Sampler(self.config_name, self.class_names, seed=self.seed)
        needed = self.sampler.recommended_seconds if self.budget.patient else 0.0
        self.sampler.explore(seconds=max(self.budget.explore, needed))
        self.samples = list(self.sampler.samples)
        self.shapes: dict[str, dict[int, dict[str, Shape]]] = {}
        self._collect(range(len(self.samples)))
        self.log["sampled"] = round(time.process_time() - start, 1)
        self._about_classes()
        self._trace()
        self.log["traced"] = round(time.process_time() - start, 1)
        fitted = self._rounds()
        self.log["fitted"] = round(time.process_time() - start, 1)
        return self._document(fitted)

    # -- what is known of the classes ------------------------------------------------------------------------------

    def _config(self, sample: Sample) -> Any:  # noqa: ANN401 - a PreTrainedConfig
        return config_class(self.config_name)(**self._given(sample))

    def _given(self, sample: Sample) -> dict[str, Any]:
        return keyword_arguments(sample.given, self.sampler.inventory.subs)

    def _collect(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for name, held in self.samples[number].shapes.items():
                self.shapes.setdefault(name, {})[number] = held

    def _about_classes(self) -> None:
        """Facts and kinds of every class, and its tensors in memory where converters make them differ."""
        self.facts: dict[str, dict[str, Any]] = {}
        self.kinds: dict[str, dict[str, str]] = {}
        telling = self._telling()
        for name in list(self.shapes):
            models = []
            for number in telling:
                with contextlib.suppress(Refused, Exception):
                    held = truth(getattr(transformers, name), self._config(self.samples[number]), seconds=4)
                    models.append(held.model)
                    letters = self.kinds.setdefault(name, {})
                    letters.update(kinds(held.model, held.disk, held.memory))
            if models:
                self.facts[name] = facts(getattr(transformers, name), models)
            if self._converted(name):
                self._collect_memory(name)

    def _telling(self) -> list[int]:
        """The base, and the samples whose tensors have names that no earlier one has."""
        seen: set[tuple[str, str]] = set()
        chosen = []
        for number, sample in enumerate(self.samples):
            names = {(name, tensor) for name, held in sample.shapes.items() for tensor in held}
            if not names <= seen:
                chosen.append(number)
                seen |= names
        return chosen[:8]

    def _converted(self, name: str) -> bool:
        with contextlib.suppress(Refused, Exception):
            held = truth(getattr(transformers, name), self._config(self.samples[0]), seconds=10)
            names = Names(self.facts[name].get("names"))
            on_disk = {names.canonical(tensor): shape for tensor, shape in held.disk.items()}
            in_memory = {names.canonical(tensor): shape for tensor, shape in held.memory.items()}
            return on_disk != in_memory
        return False

    def _collect_memory(self, name: str, numbers: Iterable[int] | None = None) -> None:
        for number in list(self.shapes[name])[:MOST_MEMORY] if numbers is None else numbers:
            with contextlib.suppress(Refused, Exception):
                held = truth(getattr(transformers, name), self._config(self.samples[number]), seconds=4)
                self.shapes.setdefault(name + MEMORY, {})[number] = held.memory

    def _trace(self) -> None:
        """Candidates from the classes' own code."""
        self.expressions: dict[str, None] = {}
        self.conditions: dict[str, None] = {}
        hidden = {key: item.default for key, item in self.sampler.inventory.keys.items() if item.hidden}
        longest = sorted((name for name in self.shapes if MEMORY not in name), key=lambda name: -len(self.shapes[name]))
        for name in longest[:3]:
            for number in self._telling()[:TRACED]:
                with contextlib.suppress(Refused, Exception):
                    config = self._config(self.samples[number])
                    hints = traced(getattr(transformers, name), config, hidden=hidden, seconds=2.0)
                    self.expressions.update(dict.fromkeys(filter(_in_grammar, hints.expressions)))
                    self.conditions.update(dict.fromkeys(filter(_in_grammar, hints.conditions)))

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _rounds(self) -> dict[str, list[Any]]:
        """Class -> its blocks, right on everything that was drawn, or unknown where they are not."""
        self._back: dict[int, bool] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.unknown: dict[str, list[tuple[str, str]]] = {}
        done: dict[str, list[Any]] = {}
        open_classes = list(self.shapes)
        fresh: list[int] = []
        for number in range(ROUNDS):
            for name, fitted in self._fit(open_classes).items():
                done[name], self.unknown[name] = fitted.blocks, fitted.unknown
            self._complete(done)
            fresh = self._draw()
            self._verify(done, fresh)
            wrong = [name for name in done if not self.verdicts[name].right]
            if not wrong:
                return done
            if number and all(self.unknown[name] for name in wrong):
                break  # what could not be found on these samples is not found on a few more
            open_classes = wrong
        return self._demoted(done, fresh)

    def _fit(self, names: Sequence[str]) -> dict[str, Fitted]:
        singles = [number for number, sample in enumerate(self.samples) if sample.changed is not None]
        fitter = Fitter(
            Features([sample.effective for sample in self.samples]),
            singles,
            list(self.expressions),
            list(self.conditions),
            frozenset(self.sampler.inventory.keys),
        )
        numbers = range(len(self.samples))
        fitted = {
            name: fitter.fit([self.shapes[name].get(number) for number in numbers], self.budget.fit) for name in names
        }
        self.expressions = dict.fromkeys([*fitter.worked, *self.expressions])
        return fitted

    def _complete(self, done: Mapping[str, list[Any]]) -> None:
        """The rules for the keys that the blocks mention."""
        texts = {text for document in done.values() for text in _texts(document)}
        everything = all_keys(self.sampler.inventory, self.config_name)
        given = [dict(next(self._readings(everything, sample, "given"))[1]) for sample in self.samples]
        singles = [number for number, sample in enumerate(self.samples) if sample.changed is not None]
        completing = Completing(given, [sample.effective for sample in self.samples], singles, self.budget.fit)
        self.rules = completing.rules(closure(texts, {}), RULES.get(self.config_name, {}))
        self.unfinished = completing.unknown
        keys = closure(texts, self.rules)
        self.config = {
            "class": self.config_name,
            "defaults": {k: _listed(v) for k, v in everything.defaults.items() if k in keys},
            "aliases": [list(pair) for pair in everything.aliases if set(pair) & keys],
            "derive": self.rules,
            "subs": dict(self.sampler.inventory.subs),
            "initial": {k: _listed(v) for k, v in everything.initial.items() if k in keys},
        }

    def _readings(self, config_facts: ConfigFacts, sample: Sample, only: str | None = None) -> Any:  # noqa: ANN401 - pairs
        saved = sample.saved if self._comes_back(sample) else None
        every = readings(config_facts, sample.effective, self._given(sample), saved)
        return (pair for pair in every if only is None or pair[0] == only)

    def _comes_back(self, sample: Sample) -> bool:
        """Whether transformers reads the same config from what it wrote: some classes lose `num_labels` on the way."""
        key = id(sample)
        if key not in self._back:
            with contextlib.suppress(Refused, Exception):
                again = config_class(self.config_name).from_dict(dict(sample.saved))
                self._back[key] = effective(again).items() <= sample.effective.items()
        return self._back.setdefault(key, False)

    def _draw(self) -> list[int]:
        first = len(self.samples)
        plain = [name for name in self.shapes if MEMORY not in name]
        for _ in range(3):  # a class may refuse what its siblings take
            self.samples += self.sampler.fresh(FRESH, seconds=self.budget.fresh)
            numbers = list(range(first, len(self.samples)))
            self._collect(numbers)
            if all(sum(number in self.shapes[name] for number in numbers) >= FEWEST for name in plain):
                break
        for name in [name for name in self.shapes if MEMORY in name]:
            own = name.removesuffix(MEMORY)
            self._collect_memory(own, [number for number in numbers if number in self.shapes[own]])
        return numbers

    def _verify(self, done: Mapping[str, list[Any]], fresh: Iterable[int]) -> None:
        config_facts = parsed("x", {**self._head("x"), "config": self.config, "classes": {}}).config
        self.verdicts = {name: Verdict() for name in done}
        skeletons = {name: blocks(document) for name, document in done.items()}
        for number in fresh:
            environments = list(self._readings(config_facts, self.samples[number]))
            for name, skeleton in skeletons.items():
                held = self.shapes[name].get(number)
                if held is not None:
                    verdict = self.verdicts[name]
                    verdict.configs += 1
                    outcomes = [
                        hold(skeleton, seen, held, verdict, reading) for reading, seen in environments
                    ]  # each is blamed
                    verdict.exact += all(outcomes)

    def _demoted(self, done: Mapping[str, list[Any]], fresh: list[int]) -> dict[str, list[Any]]:
        """What was wrong is made unknown, until everything that is left is right on configs not seen before."""
        kept = dict(done)
        for _ in range(ROUNDS):
            wrong = {name for name in kept if not self.verdicts[name].right}
            if not wrong:
                return kept
            for name in wrong:
                kept[name] = [*demoted(kept[name], self.verdicts[name]), *_unheard(self.verdicts[name])]
                self.unknown[name] = [*self.unknown[name], ("wrong", "; ".join(self.verdicts[name].examples[:3]))]
            self._complete(kept)
            fresh = self._draw()
            self._verify(kept, fresh)
        return {name: document for name, document in kept.items() if self.verdicts[name].right}

    # -- the record ------------------------------------------------------------------------------------------------

    def _head(self, model_type: str) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "model_type": model_type,
            "transformers": transformers.__version__,
            "date": datetime.now(UTC).date().isoformat(),
            "source": source_hash(self.config_name),
        }

    def _document(self, done: Mapping[str, list[Any]]) -> dict[str, Any]:
        classes = {}
        for name in self.class_names:
            if name in done and self.verdicts[name].configs >= FEWEST // 2:
                classes[name] = self._record(name, done)
        self.log["classes"] = {
            name: {
                "evidence": classes[name]["evidence"] if name in classes else "none",
                "configs": self.verdicts[name].configs if name in self.verdicts else 0,
                "unknown": self.unknown.get(name, [])[:12],
                "refused": self.sampler.refusals.get(name),
            }
            for name in self.class_names
        }
        self.log["unfinished"] = self.unfinished
        self.log["samples"] = len(self.samples)
        model_type = config_class(self.config_name).model_type
        return completed({**self._head(model_type), "config": self.config, "classes": classes})

    def _record(self, name: str, done: Mapping[str, list[Any]]) -> dict[str, Any]:
        whole = not self.unknown[name] and self.verdicts[name].configs >= FEWEST
        record: dict[str, Any] = {
            "evidence": str(Evidence.VERIFIED if whole else Evidence.PARTIAL),
            "configs": self.verdicts[name].configs,
            "blocks": _with_kinds(done[name], self.kinds.get(name, {})),
        }
        if (memory := done.get(name + MEMORY)) is not None and not self.unknown[name + MEMORY]:
            record["memory"] = _with_kinds(memory, self.kinds.get(name, {}))
        return {**record, **self.facts.get(name, {"prefix": ""})}


def _in_grammar(text: str) -> bool:
    try:
        expression(text)
    except NotInGrammar:
        return False
    return True


def _texts(document: Iterable[Any]) -> Iterable[str]:
    for condition, ranges, _, entries in document:
        yield from (text for text in (condition, *ranges) if text is not None)
        yield from (size for _, shape, *_ in entries for size in shape if size is not None)


def _listed(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _unheard(verdict: Verdict) -> list[Any]:
    """Names that no template gives, as templates of which only the rank is known."""
    found: dict[str, int] = {}
    for name, rank in verdict.unheard.items():
        indices = iter(INDICES)
        segments = [f"{{{next(indices, 'm')}}}" if part.isdecimal() else part for part in name.split(".")]
        found[".".join(segments)] = rank
    return [
        [None, [None] * name.count("{"), False, [[name, [None] * rank]]]
        for name, rank in found.items()
        if name.count("{") <= len(INDICES)
    ]


def _with_kinds(document: list[Any], letters: Mapping[str, str]) -> list[Any]:
    """The blocks with the kind of module of each template, where it is not the usual one."""
    return [
        [condition, ranges, free, [[name, shape, *_kind(name, shape, letters)] for name, shape, *_ in entries]]
        for condition, ranges, free, entries in document
    ]


def _kind(template: str, shape: Sequence[Any], letters: Mapping[str, str]) -> list[str]:
    matches = pattern(template).fullmatch
    letter = next((letter for name, letter in letters.items() if matches(name)), None)
    usual = "l" if len(shape) == 2 and template.endswith(".weight") else "p"
    return [] if letter is None or letter == usual else [letter]
