"""Published numbers, tables and figures."""
