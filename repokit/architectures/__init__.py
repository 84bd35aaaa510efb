"""Which tensors a checkpoint must hold, as a function of its config.json, without torch.

transformers knows the truth, but costs seconds and a gigabyte, and cannot see a plan. So a developer's program
(`deriver`) asks it hundreds of random small configs per class, finds the expressions that give every name and shape,
verifies them on configs that it had not seen, and writes them down; this package evaluates them.

    grammar      the closed language of the expressions
    member       the data of one model type
    folding      its short form: what the classes of a type share
    completion   config.json -> what the expressions see: defaults, nulls, spellings
    expansion    blocks of templates -> every tensor's name and shape
    names        the spellings that loaders take for the same tensor
    composition  models made of models
    skeleton     the public call
    live         a skeleton of one config from the installed transformers; live_child: the process that asks it
    quantized    from the weights to the tensors of a quantized checkpoint; one quantized_* for each family of methods,
                 quantized_parts and quantized_lists for what they share
    errors       what can keep a skeleton from being given
    deriver      the developer's program that makes the data (needs the extra `load`)
"""

from repokit.architectures.errors import ConfigUnusable, NotCovered
from repokit.architectures.member import Evidence, Kind, Template
from repokit.architectures.skeleton import Skeleton, covered, evidence, skeleton

__all__ = [
    "ConfigUnusable",
    "Evidence",
    "Kind",
    "NotCovered",
    "Skeleton",
    "Template",
    "covered",
    "evidence",
    "skeleton",
]
