"""Repositories of GGUF files, copied byte for byte.

repository  the plan of one
files       which files are one model, and what each of them is
card        README.md
draft       the recipe that `init` writes
"""
