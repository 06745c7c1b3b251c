"""What compare.py is made of: cases, children, environment, results, tables and the plot."""
