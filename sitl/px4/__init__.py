"""Real PX4 in the place of the built-in autopilot: started by `companion fly --fcu px4`, never part of this project."""
