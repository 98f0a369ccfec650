"""Loggers: a run's rows sent to TensorBoard, MLflow, Weights & Biases or a CSV file, beside its own files."""
