"""What Hydra starts, one run or a sweep of many: planned, computed by any launcher, collected in tables."""
