"""Every kind of fault that a repository's own files show has a recipe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

# Left out: kinds that are no state of files, but of a build, a push or the network.
KINDS: Final = (
    *("ST01", "ST02", "ST03", "ST04", "ST05", "ST07", "WV01"),
    *("IX01", "IX02", "IX04", "IX05", "IX06", "IX07", "FM02", "FM04", "FM08", "KY07", "KY08", "TI03"),
    *("CF01", "CF02", "CF03", "CF04", "CF05", "CF06", "CF07", "CF08", "CF09", "CF10", "CF11", "CF12", "CF13"),
    *("GC01", "GC02", "GC03", "GC04"),
    *(
        "TK01",
        "TK02",
        "TK03",
        "TK05",
        "TK07",
        "TK08",
        "TK09",
        "TK10",
        "TK11",
        "TK12",
        "TK13",
        "TK14",
        "TK15",
        "TK16",
        "TK17",
    ),
    *("CT01", "CT02", "CT03", "CT04", "CT05", "PP01", "PP02", "PP03", "PP05"),
    *("FM01", "FM05", "FM07", "BL01", "BL02"),
    *("ST08", "WV02", "WV03", "WV04", "TI01", "TI02", "BL03"),
    *("KY01", "KY03", "KY04", "KY05", "KY06", "KY09"),
    *("AD01", "AD02", "AD03", "AD04", "AD05", "AD07"),
    *("QT01", "QT02", "QT03", "QT04", "QT05", "QT06", "QT08"),
    *("GG01", "GG02", "GG03", "GG04", "GG06", "GG07", "GG08"),
    *("MC01", "MC02", "MC03", "MC04", "MC05", "MC06", "LY01", "LY02", "LY03", "LY04", "SE01"),
)
RECIPES: Final = [
    recipe
    for path in sorted(Path(__file__).parent.glob("test_faults_*.py"))
    for recipe in re.findall(r'^    "([A-Z]{2}\d{2} [^"]+)": ', path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_a_recipe(kind):
    assert [recipe for recipe in RECIPES if recipe.startswith(kind)]


def test_no_recipe_is_told_twice():
    assert len(set(RECIPES)) == len(RECIPES)
