"""How findings are repaired, where that takes more than a line: one module a family, loaded when a fix is asked for.

Everything here gives edits (repokit.linter.fix), and None where a repair would need a fact that the repository does
not hold, or would have to choose where even a person could not.
"""
