"""From a recipe and a checkpoint to a finished repository.

checkpoints/  what lies in a source, and where the bytes of every tensor are
kinds         what is built: a full model, an adapter, a quantized model, GGUF files
inputs        what a recipe reads, and whether its output may be replaced
planner       recipe -> Plan, of a full model; merging/, adapters/, quantized/, gguf/: what is different of the others
plan          Plan: frozen, ordered, serialisable; with the exact header bytes of every shard
weights       which tensors, under which names, in which dtype, in which file, from which bytes
naming        wrapper prefixes repaired, renames one-to-one
fitting       which class the tensors are of; prefixes that their architecture does not have
vocabulary    more or fewer rows for token ids; a head of its own
sharding      which tensor goes into which file
transforms/   cast, gather, interleave, merge, tie: one module each
documents     config.json and generation_config.json: what the recipe changes in them
card, generated_cards, license    README.md and LICENSE
against_base  what the result lost or changed against its base
draft         `init`: what a checkpoint says, as a recipe
reading       what a plan is made of, as streams of bytes
preview       the planned repository as a Source, so that it is linted before one byte is written
execution/    Plan -> files: by threads, processes, tasks and clusters, on a disk and in a store
build         all of it in order: lint the plan, write beside the target, lint that, put it into place
"""
