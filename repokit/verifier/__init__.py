"""A finished directory against its manifest, and against the library that loads it.

manifest      every file by size and sha256
load_check    what there is to load, and what became of it: read it first
load_process  the child process: its environment, its time, its end
load_child    what runs there: the only code of repokit that imports torch and transformers
load_trial    the first answer of what was loaded
load_report   steps and keys, for people and programs
"""
