"""From a repository to findings.

finding     what a rule says, and the report that they make
rule        what a rule is: a page that one would send to a user
rules/      the rules, one module per family; rules/__init__.py is the table
examples    known-good repositories in memory, and the changes that break them; examples_gguf, examples_quantized,
            examples_torch, examples_skeleton: those of other formats and of tensors against config.json;
            examples_values: of values; examples_onnx: of ONNX
selection   which rules run, which findings count
baseline    findings that are known
fix         what a fix is: edits, as data; fixes/: those that take more than a line, one module a family
proposals   which findings have a fix, and what it is called
editing     edits carried out on a view; fixing: in rounds, each held against the lint after it; recorded: the manifest
            of a build that is fixed; difference: what would change; in_place: carries it out in a directory
engine      runs the rules, keeps count of what could not be checked
places      line and column of a finding
explain     what a rule says to people; page: whole, on a terminal; example_changes: what an example changes;
            incidents: where a defect was met
reporters/  a report in, text out
"""
