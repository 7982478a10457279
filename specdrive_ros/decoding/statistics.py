"""How reasoning is counted, in one place: accepted length and routine share.

Accepted length L = tokens written per pass of the target, including the target's own token of each pass, not counting
the prefill. Routine share = share of all tokens that drafts supplied = (L - 1) / L. (Three public code bases count this
in three ways; this is the paper's.)
"""


def accepted_length(tokens: int, target_passes: int, reasonings: int = 1) -> float:
    """L; tokens per reasoning if every reasoning rode along in a prefill and no pass was needed; 0 without tokens."""
    if not tokens:
        return 0.0
    return tokens / (target_passes or max(reasonings, 1))


def routine_share(tokens: int, target_passes: int) -> float:
    """0 to 1; 1 if no pass was needed at all."""
    return max(0.0, 1.0 - target_passes / tokens) if tokens else 0.0

