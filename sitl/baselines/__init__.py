"""Other stacks that fly in the same air, for comparison with this one."""
