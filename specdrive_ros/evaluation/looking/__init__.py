"""Does the model look, and does it do what it says? Modules in the order of the data:

samples -> conditions -> measuring (rows.jsonl) -> figures (looking.json) -> report (looking.html)
"""
