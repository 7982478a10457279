"""How each family of scenes is laid out: one function a family, `(rng, recovery) -> Draft`."""
