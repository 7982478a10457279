"""The layout of each family of scenes: one function per family, `(rng, recovery) -> Draft`."""
