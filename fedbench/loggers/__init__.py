"""Loggers: a run's rows sent to TensorBoard, MLflow or Weights & Biases, beside its own files."""
