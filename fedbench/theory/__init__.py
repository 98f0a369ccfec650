"""The papers' theory: optimal parameters, step sizes, comparison tables. Only `curvature` needs torch."""
