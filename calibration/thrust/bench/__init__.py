"""The thrust bench: scale, motor and battery readings, the sweep and what stops it, raw data."""
