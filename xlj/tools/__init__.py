"""What commands do around training: plan a run, compare many runs, measure speed, write reports."""
