"""The flight controller: MAVLink to and from PX4, one node."""
