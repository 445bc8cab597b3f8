"""The soak: a real relay and its standby under load, for as long as one likes, with faults that a seed chooses."""
