"""Fine-tuning on a task: its data, runs over seeds and languages, scores and results."""
