"""Checks that block frames, setpoints or flights: another controller, ground stations, parameters, bad setpoints."""
