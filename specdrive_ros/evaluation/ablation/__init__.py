"""The paper's tables: draft x {mirror, flat} x {distilled, +AARL}, and why they are as they are.

In the order of the data: cells -> making (drafts) -> prompts -> measuring (rows.jsonl a cell) -> figures
(ablation.json) -> report (ablation.html);
attention: where each draft looks; tokens: which tokens each gets right by itself; estimate: what all that takes
"""
