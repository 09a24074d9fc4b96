"""Two published quadrotors flown by sticks, tasks with scores, and the fit of a model to a pilot's log."""
