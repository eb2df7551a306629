"""Fine-tunes encoders on tasks: data, runs over seeds and languages, scores and results."""
