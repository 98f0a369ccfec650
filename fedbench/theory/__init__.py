"""What theorems prescribe: step-size rules, what they read and what they return."""
