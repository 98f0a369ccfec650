"""The papers' theory: parameter optimisation, prescribed step sizes, comparison tables. No torch."""
