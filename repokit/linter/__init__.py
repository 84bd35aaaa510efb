"""From a repository to findings.

finding     what a rule says, and the report that they make
rule        what a rule is: a page that one would send to a user
rules/      the rules, one module per family; rules/__init__.py is the table
examples    known-good repositories in memory, and the changes that break them; examples_gguf, examples_quantized,
            examples_torch, examples_skeleton: those of other formats and of tensors against config.json
selection   which rules run, which findings count
engine      runs the rules, keeps count of what could not be checked
places      line and column of a finding
explain     what a rule says to people
reporters/  a report in, text out
"""
