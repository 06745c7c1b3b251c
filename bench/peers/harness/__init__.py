"""The parts of compare.py: cases, children, environment, results, tables and the plot."""
