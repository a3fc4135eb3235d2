"""paperlib: Memory-R+ and MEDS, their GRPO/DAPO loop, and every table and figure of both papers.

Floors, imports go down only: tasks < methods < rl < evaluation < experiments < report.
"""

__version__ = "0.1.0"
