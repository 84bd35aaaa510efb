"""A skeleton fitted to a made-up architecture gives every tensor of configs that it has not seen."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from repokit.architectures.completion import Completed
from repokit.architectures.deriver.features import Features
from repokit.architectures.deriver.fitting import Fitter
from repokit.architectures.deriver.verifying import Verdict, demoted, hold
from repokit.architectures.grammar import Value
from repokit.architectures.member import blocks

Config = dict[str, Value]
Shapes = dict[str, tuple[int, ...]]
BASE: Config = {
    "width": 32, "heads": 4, "kv_heads": 2, "layers": 3, "experts": 4, "dense_until": 1, "bias": False, "rank": None,
    "tied": True, "vocabulary": 100, "kinds": ("full", "linear", "full"),
}  # fmt: skip


def decoder(config: Config) -> Shapes:
    """Dense layers first, then experts; a low-rank projection where there is a rank; two kinds of attention."""
    width, head = int(str(config["width"])), int(str(config["width"])) // int(str(config["heads"]))
    held: Shapes = {"embed.weight": (int(str(config["vocabulary"])), width)}
    if not config["tied"]:
        held["head.weight"] = (int(str(config["vocabulary"])), width)
    for layer in range(int(str(config["layers"]))):
        name = f"layers.{layer}"
        if config["rank"] is None:
            held[f"{name}.q.weight"] = (width, width)
        else:
            held[f"{name}.q_a.weight"] = (int(str(config["rank"])), width)
            held[f"{name}.q_b.weight"] = (width, int(str(config["rank"])))
        held[f"{name}.k.weight"] = (head * int(str(config["kv_heads"])), width)
        if config["kinds"][layer] == "linear":  # type: ignore[index]
            held[f"{name}.decay"] = (int(str(config["heads"])),)
        if config["bias"]:
            held[f"{name}.k.bias"] = (head * int(str(config["kv_heads"])),)
        if layer < int(str(config["dense_until"])):
            held[f"{name}.mlp.weight"] = (4 * width, width)
        else:
            held |= {f"{name}.experts.{e}.weight": (2 * width, width) for e in range(int(str(config["experts"])))}
    return held


def drawn(rng: random.Random) -> Config:
    heads, layers = rng.choice([2, 4, 8]), rng.randint(1, 5)
    return {
        "width": heads * rng.choice([4, 6, 10]),
        "heads": heads,
        "kv_heads": rng.choice([1, 2]),
        "layers": layers,
        "experts": rng.randint(2, 6),
        "dense_until": rng.randint(0, layers),
        "bias": rng.random() < 0.5,
        "rank": rng.choice([None, 3, 5]),
        "tied": rng.random() < 0.5,
        "vocabulary": rng.randint(50, 90),
        "kinds": tuple(rng.choice(["full", "linear"]) for _ in range(layers)),
    }


def fitted(architecture: Callable[[Config], Shapes], seed: int) -> list[object]:
    rng = random.Random(seed)
    configs = [BASE, *({**BASE, "width": 64, "heads": 4}, {**BASE, "bias": True}, {**BASE, "tied": False})]
    configs += [drawn(rng) for _ in range(80)]
    fit = Fitter(Features(configs), [1, 2, 3]).fit([architecture(config) for config in configs], seconds=60)
    assert fit.unknown == []
    return fit.blocks


@pytest.fixture(scope="module")
def skeleton() -> list[object]:
    return fitted(decoder, seed=0)


@pytest.fixture(scope="module")
def unseen() -> list[Config]:
    rng = random.Random(99)
    return [drawn(rng) for _ in range(40)]


def verdict(document: list[object], unseen: list[Config]) -> Verdict:
    found = Verdict()
    for config in unseen:
        found.configs += 1
        found.exact += hold(blocks(document), Completed(config), decoder(config), found, "effective")
    return found


def test_unseen_configs_come_out_exact(skeleton: list[object], unseen: list[Config]) -> None:
    assert verdict(skeleton, unseen).examples == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("'kinds[i]==", "'kinds[i]!="), ("'2*width'", "'3*width'"), ("'layers'", "'layers+1'"), ("'4*width'", "'128'")],
)
def test_a_planted_wrong_expression_is_caught(
    skeleton: list[object], unseen: list[Config], right: str, wrong: str
) -> None:
    text = repr(skeleton).replace('"', "'")
    assert right.strip("'") in text
    planted = _replaced(skeleton, right.strip("'"), wrong.strip("'"))
    assert not verdict(planted, unseen).right


def _replaced(document: object, right: str, wrong: str) -> list[object]:
    if isinstance(document, list):
        return [_replaced(item, right, wrong) for item in document]
    return document.replace(right, wrong) if isinstance(document, str) and "." not in document else document  # type: ignore[return-value]


def test_what_was_wrong_becomes_unknown_and_the_rest_stays_right(skeleton: list[object], unseen: list[Config]) -> None:
    planted = _replaced(skeleton, "2*width", "3*width")
    known = demoted(planted, verdict(planted, unseen))
    assert verdict(known, unseen).right
    assert any(size is None for block in blocks(known) for template in block.templates for size in template.shape)
