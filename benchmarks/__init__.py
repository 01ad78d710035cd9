"""How redist does against its peers: problems, planners, executors and metrics as a study that can be repeated."""
