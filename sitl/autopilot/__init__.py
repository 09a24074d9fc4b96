"""The built-in autopilot: behaves and talks like PX4 1.17 on a hexrotor X, in simulated or real time."""
