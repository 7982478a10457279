"""Does the model look, and does it do what it says? One folder, in the order of the data:

samples -> conditions -> measuring (rows.jsonl) -> figures (looking.json) -> report (looking.html)
"""
