"""What a run would need and reach on chips that are not here, from its compiled programs."""
