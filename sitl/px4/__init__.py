"""Real PX4 in place of the PX4 emulator: started by `companion fly --fcu px4`, never part of this project."""
