"""Configuration of topics, groups and brokers: keys, types, values, checks."""
