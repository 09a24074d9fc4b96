"""The pilot's side: sticks, flight modes, and what is sent of them."""
