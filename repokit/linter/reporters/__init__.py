"""A report in, text out.

text         for people, at a terminal or in a log
json         for programs: schemas/report.schema.json is the contract
sarif        for code scanning
github       commands of GitHub Actions, which become annotations
junit        for CI systems that show tests
markdown     for comments and summaries of jobs
statistics   counts by rule
context      what they know beside the report, and what several of them say in the same words
"""
