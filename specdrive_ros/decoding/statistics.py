"""How reasoning is counted, in one place: accepted length and routine share.

Accepted length L = tokens written per pass of the target, the target's own token of each pass included, the prefill
not counted. Routine share = what drafts supplied of all tokens = (L - 1) / L. (Three public code bases count three
ways; this is the paper's.)
"""


def accepted_length(tokens: int, target_passes: int, reasonings: int = 1) -> float:
    """L; where every reasoning rode along in a prefill and no pass was needed, tokens per reasoning; 0 for nothing."""
    if not tokens:
        return 0.0
    return tokens / (target_passes or max(reasonings, 1))


def routine_share(tokens: int, target_passes: int) -> float:
    """0 to 1; 1 where no pass was needed at all."""
    return max(0.0, 1.0 - target_passes / tokens) if tokens else 0.0

