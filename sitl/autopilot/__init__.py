"""The PX4 emulator: behaves like PX4 1.17 on a hexrotor X, in flight and on MAVLink, in simulated or real time."""
