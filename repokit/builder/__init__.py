"""From a recipe and a checkpoint to a finished repository.

sources      what lies in a checkpoint, file by file
stored       the weights as they are stored: in safetensors; torch_weights: in pickles; memory_weights: in a program
arrays       arrays of any library as bytes
layouts      which checkpoints can be built from, and what is said of the others
training_run what a trainer wrote about its run
draft        `init`: what a checkpoint says, as a recipe
naming       wrapper prefixes repaired, renames one-to-one
fitting      which class the tensors are of; prefixes that their architecture does not have
transforms/  cast, gather, interleave, tie: one module each
sharding     which tensor goes into which file
documents    config.json and generation_config.json: what the recipe changes in them
card, generated_cards, license    README.md and LICENSE
weights      which tensors, under which names, in which dtype, in which file, from which bytes
kinds        what is built: a full model, an adapter, a quantized model, GGUF files
plan         Plan: frozen, ordered, serialisable; with the exact header bytes of every shard
planner      recipe -> Plan
reading      what a plan is made of, as streams of bytes
preview      the planned repository as a Source, so that it is linted before one byte is written
execute      Plan -> a staging directory beside the target
journal      which files of an interrupted build are finished
locking      one build of an output at a time
staging      free space, atomic publish
build        all of it in order: lint the plan, write beside the target, lint that, put it into place
"""
