"""The wire to the flight controller: transports, frames, messages, signatures, and the senders on the link."""
