"""A report in, text out.

text   for people, at a terminal or in a log
json   for programs: schemas/report.schema.json is the contract
"""
