"""The paper's tables: draft x {mirror, flat} x {distilled, +AARL}, and what explains them.

In the order of the data: cells -> making (drafts) -> prompts -> measuring (rows.jsonl per cell) -> figures
(ablation.json) -> report (ablation.html);
attention: where each draft attends; tokens: which tokens each gets right by itself; estimate: what it all costs
"""
