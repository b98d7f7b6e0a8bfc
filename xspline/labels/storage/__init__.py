"""Files of statistics and fields: what they hold, and how it is written and read."""
