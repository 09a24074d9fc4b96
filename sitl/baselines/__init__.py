"""Other stacks in the same air: what the figures of this one are compared with."""
