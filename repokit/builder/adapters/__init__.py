"""Repositories of PEFT's adapters.

repository  the plan of one
weights     where adapters lie in a source
naming      their tensors under the names that PEFT saves
document    adapter_config.json: what changes in it
private     what in it is not for others
checks      what is of no use to anybody
card        README.md
draft       the recipe that `init` writes
"""
